"""Learns runtimes from ended jobs. The result follows from events and is part of the state.

There is a sample for each user, name and shape. For new combinations, there are also coarser samples for each user and
name, and for each user and shape. The coarser samples learn only from the first few jobs of each finer one. So a job
that runs every minute does not outweigh all others, and a well-known job costs one addition.

Samples learn from jobs that succeeded, and from jobs that reached their walltime, because those hold their capacity
that long. Failed and cancelled jobs say little about others and do not count.

How runtimes differ from what was expected (`spread`) is learned for jobs with about the same expected runtime, of one
user and of all users.
"""

from bisect import bisect_right
from heapq import nsmallest
from typing import Final

from spillover.core.events import JobEnded, JobState
from spillover.core.learned import spread
from spillover.core.learned.samples import WINDOW, About, Sample
from spillover.core.learned.spread import BINS, EDGES, ONE, halve, kinds_of
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.model.job import Shape
from spillover.model.units import DAY

FEW: Final = 3
"""Jobs that a sample needs before it is trusted."""
MOST: Final = 365 * DAY
"""Longest runtime that counts, in nanoseconds."""
KEPT: Final = 10_000
"""Samples to keep. Beyond that, those that have not learned for the longest time are dropped."""
DROPPED: Final = KEPT // 8
"""Samples to drop at once."""
_MOST_OF_USER: Final = 2 * spread.OF_USER
_MOST_OF_ALL: Final = 2 * spread.WINDOW
_TELLING: Final = frozenset({JobState.SUCCEEDED, JobState.TIMED_OUT})
"""End states that samples learn from."""


def learn(state: State, job: Job, event: JobEnded) -> None:
    """Learn the runtime of an ended job, if it is useful for others."""
    ran, ended = event.usage.ran, event.state
    if ran <= 0 or ended not in _TELLING:
        return
    history, user, shape = state.history, job.user, job.kind.shape
    if ran > MOST:
        ran = MOST
    state.facts.learned += 1
    about: About = ("job", user, job.name, shape)
    sample = history.get(about)
    if sample is None:
        sample = _begin(state, about)
    _add(state, sample, ran)
    _count_spread(state, job, ran)
    if sample.count <= FEW:
        for about in (("name", user, job.name, None), ("shape", user, "", shape)):
            _add(state, history.get(about) or _begin(state, about), ran)
        if len(history) > KEPT:
            _forget(state, nsmallest(DROPPED, history.values(), key=_age))


def predict(state: State, user: str, name: str, shape: Shape) -> int | None:
    """Predict the runtime of a job in nanoseconds from the most similar ones; None if there are too few."""
    history = state.history
    for about in (("job", user, name, shape), ("name", user, name, None), ("shape", user, "", shape)):
        sample = history.get(about)
        if sample is not None and sample.count >= FEW:
            return max(1, sample.mean)
    return None


def _begin(state: State, about: About) -> Sample:
    """Create an empty sample."""
    state.facts.sampled += 1
    sample = Sample(str(state.facts.sampled), about)
    state.history[about] = state.samples[sample.key] = sample
    return sample


def _add(state: State, sample: Sample, ran: int) -> None:
    """Add a runtime to a sample."""
    sample.count += 1
    sample.total += ran
    sample.used = state.facts.learned
    if sample.count >= 2 * WINDOW:
        sample.halve()
    state.dirty["history"][sample.key] = None


def _count_spread(state: State, job: Job, ran: int) -> None:
    """Count how long a job ran compared with what was expected."""
    terms = job.terms
    expected = terms.walltime if terms.estimate is None else terms.estimate
    if expected is None:  # as `estimate`, which would create an object for every job that ends
        expected = state.facts.policies.unknown_runtime if job.predicted is None else job.predicted
    # As `ratio_of`, without a call for every job that ends.
    at = bisect_right(EDGES, ran * ONE // (expected if expected > 0 else 1))
    history, learned, dirty = state.history, state.facts.learned, state.dirty["history"]
    most = _MOST_OF_USER if job.user else _MOST_OF_ALL
    for about in kinds_of(job.user, expected):
        each = history.get(about)
        if each is None:
            each = _begin(state, about)
            each.bins = [0] * BINS
        each.bins[at] += 1
        each.count = count = each.count + 1
        each.used = learned
        if count >= most:
            halve(each)
        dirty[each.key] = None
        most = _MOST_OF_ALL  # the second are those of all users


def _age(sample: Sample) -> tuple[int, int]:
    return sample.used, int(sample.key)


def _forget(state: State, dropped: list[Sample]) -> None:
    for sample in dropped:
        del state.history[sample.about], state.samples[sample.key]
        state.dirty["history"][sample.key] = None
