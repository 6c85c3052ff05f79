"""Learns runtimes from ended jobs. The result follows from events and is part of the state.

What is said of a new job rests on earlier runs of *this* job: of the same user, with the same name and command, at best
with the same shape. Without such runs, those of the same program under the same name count, if it ran with several
different arguments: then the name tells more than the arguments. Anything less never says that a job is short: runs of
a program with other arguments, such as `sleep`, and other jobs of the user with the same shape and walltime do not make
it expected to be shorter than an unknown job, unless its own walltime says so too. A name alone says nothing: people
use one name for different things.

A sample keeps the last runtimes, and a prediction is a high quantile of them. Samples of other jobs learn only from the
first few runs of each job with a name. So a job that runs every minute does not outweigh all others, and a well-known
job costs one addition.

Samples learn from jobs that succeeded, and from jobs that reached their walltime, because those hold their capacity
that long. Failed and cancelled jobs say little about others and do not count.

How runtimes differ from what was expected (`spread`) is learned for jobs with about the same expected runtime, of one
user and of all users.
"""

from bisect import bisect_right
from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

from spillover.core.events import Evidence, JobEnded, JobState, Like
from spillover.core.learned import spread
from spillover.core.learned.samples import WINDOW, About, Sample
from spillover.core.learned.spread import BINS, EDGES, ONE, halve, kinds_of
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.model.job import Shape, Terms
from spillover.model.units import DAY

FEW: Final = 3
"""Runs that a sample needs before it is trusted."""
LIKELY: Final = (9, 10)
"""Share of the runs that took no longer than what is expected."""
MOST: Final = 365 * DAY
"""Longest runtime that counts, in nanoseconds."""
KEPT: Final = 10_000
"""Samples to keep. Beyond that, those that have not learned for the longest time are dropped."""
DROPPED: Final = KEPT // 8
"""Samples to drop at once."""
_PROGRAMS: Final = (
    "bash call env java job julia mpirun node perl python python3 pypy3 Rscript ruby sh srun sudo time torchrun uv zsh "
    "alpine busybox debian pytorch tensorflow ubuntu wrap"
)
ANYTHING: Final = frozenset([*_PROGRAMS.split(), *(f"python3.{minor}" for minor in range(8, 20))])
"""Names of programs and images that run anything, which jobs without a name of their own have."""
_MOST_OF_USER: Final = 2 * spread.OF_USER
_MOST_OF_ALL: Final = 2 * spread.WINDOW
_TELLING: Final = frozenset({JobState.SUCCEEDED, JobState.TIMED_OUT})
"""End states that samples learn from."""
OF_PROGRAM: Final = 8
"""Bytes of the digest of a program, which begins the digests of what a job runs."""
_NOT_CLEAR: Final = bytes(OF_PROGRAM)


def learn(state: State, job: Job, event: JobEnded) -> None:
    """Learn the runtime of an ended job, if it is useful for others."""
    ran, ended = event.usage.ran, event.state
    if ran <= 0 or ended not in _TELLING:
        return
    history = state.history
    if ran > MOST:
        ran = MOST
    state.facts.learned += 1
    runs = _learn_job(state, job, ran)
    terms = job.terms
    _count_spread(state, job, terms, ran)
    if runs <= FEW:
        _learn_about(state, ("shape", job.user, _limit(terms), job.kind.shape), ran)
        if len(history) > KEPT:
            _forget(state, nsmallest(DROPPED, history.values(), key=_age))


def _learn_job(state: State, job: Job, ran: int) -> int:
    """Learn from a run of a job for later runs of it, and of its program; return how many runs of it are known."""
    user, name, command = job.user, job.name, job.command
    own = job.named and name not in ANYTHING
    if not (own or command):
        return 0
    called = f"{name} {command.hex()}" if command else name
    about: About = ("job", user, called, job.kind.shape)
    sample = state.history.get(about) or _begin(state, about)
    _add(state, sample, ran)
    runs = sample.count
    if runs > FEW:
        return runs
    if not command:
        _learn_about(state, ("name", user, name, None), ran)
        return runs
    whole = _learn_about(state, ("job", user, called, None), ran)
    program = _program(user, name, command, own=own)
    if program is not None and whole.count <= FEW:
        sample = _learn_about(state, program, ran)
        sample.kinds += whole.count == 1
    return runs


def predict(
    state: State, user: str, name: str, command: bytes, shape: Shape, terms: Terms, *, named: bool = True
) -> tuple[int, Evidence] | None:
    """Predict the runtime of a job in nanoseconds, with the runs that say so; None if there are too few."""
    history = state.history
    for like, about in _levels(user, name, command, shape, terms, named):
        sample = history.get(about)
        if sample is None or sample.count < FEW:
            continue
        runs = sorted(sample.known(FEW))
        up, down = LIKELY
        ran = runs[-(-len(runs) * up // down) - 1]
        sure = like is Like.JOB or (like is Like.NAME and (sample.kinds >= FEW or not command))
        if not sure and terms.walltime is None:
            ran = max(ran, state.facts.policies.unknown_runtime)
        return max(1, ran), Evidence(like, len(runs), bisect_right(runs, ran))
    return None


def _levels(
    user: str, name: str, command: bytes, shape: Shape, terms: Terms, named: bool
) -> Iterator[tuple[Like, About]]:
    """Yield what earlier jobs may have in common with a job, the closest first."""
    own = named and name not in ANYTHING
    if command:
        called = f"{name} {command.hex()}"
        yield Like.JOB, ("job", user, called, shape)
        yield Like.JOB, ("job", user, called, None)
        if (program := _program(user, name, command, own=own)) is not None:
            yield Like.NAME if own else Like.PROGRAM, program
    elif own:  # simulated: then names are all that is known
        yield Like.NAME, ("job", user, name, shape)
        yield Like.NAME, ("name", user, name, None)
    yield Like.SHAPE, ("shape", user, _limit(terms), shape)


def _program(user: str, name: str, command: bytes, *, own: bool) -> About | None:
    """Return the sample of runs of a program, with whatever arguments; None if it is not clear what the program is."""
    if not own:  # it is called like its program
        return None if name in ANYTHING else ("program", user, name, None)
    program = command[:OF_PROGRAM]
    return None if program == _NOT_CLEAR else ("name", user, f"{name} {program.hex()}", None)


def _limit(terms: Terms) -> str:
    return "" if terms.walltime is None else str(terms.walltime)


def _begin(state: State, about: About) -> Sample:
    """Create an empty sample."""
    state.facts.sampled += 1
    sample = Sample(str(state.facts.sampled), about)
    state.history[about] = state.samples[sample.key] = sample
    return sample


def _begin_histogram(state: State, about: About) -> Sample:
    """Create an empty histogram."""
    sample = _begin(state, about)
    sample.bins = [0] * BINS
    return sample


def _learn_about(state: State, about: About, ran: int) -> Sample:
    """Add a runtime to the sample of jobs that have this in common."""
    sample = state.history.get(about) or _begin(state, about)
    _add(state, sample, ran)
    return sample


def _add(state: State, sample: Sample, ran: int) -> None:
    """Add a runtime to a sample."""
    if sample.total:
        sample.runs, sample.total = sample.known(FEW), 0
    sample.count += 1
    runs = sample.runs
    runs.append(ran)
    if len(runs) > WINDOW:
        del runs[0]
    sample.used = state.facts.learned
    state.dirty["history"][sample.key] = None


def _count_spread(state: State, job: Job, terms: Terms, ran: int) -> None:
    """Count how long a job ran compared with what was expected."""
    expected = terms.walltime if terms.estimate is None else terms.estimate
    if expected is None:  # as `estimate`, which would create an object for every job that ends
        expected = state.facts.policies.unknown_runtime if job.predicted is None else job.predicted
    # As `ratio_of`, without a call for every job that ends.
    at = bisect_right(EDGES, ran * ONE // (expected if expected > 0 else 1))
    history, dirty, user = state.history, state.dirty["history"], job.user
    of_user, of_all = kinds_of(user, expected)
    mine = history.get(of_user) or _begin_histogram(state, of_user)
    whole = history.get(of_all) or _begin_histogram(state, of_all)
    mine.used = whole.used = state.facts.learned
    mine.bins[at] += 1
    mine.count = count = mine.count + 1
    if count >= _MOST_OF_USER and (user or count >= _MOST_OF_ALL):
        halve(mine)
    dirty[mine.key] = None
    whole.bins[at] += 1
    whole.count = count = whole.count + 1
    if count >= _MOST_OF_ALL:
        halve(whole)
    dirty[whole.key] = None


def _age(sample: Sample) -> tuple[int, int]:
    return sample.used, int(sample.key)


def _forget(state: State, dropped: list[Sample]) -> None:
    for sample in dropped:
        del state.history[sample.about], state.samples[sample.key]
        state.dirty["history"][sample.key] = None
