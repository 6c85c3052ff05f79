"""What ended jobs teach about those to come: a fold over events, kept in the book.

Runtimes are learned for each user, name and shape, and, so that a new combination is not a stranger, for each user and name and
for each user and shape. These coarser ones learn only from the first few jobs of each finer one: a job that runs every minute
does not outweigh all others, and what is well known costs one addition.

Learned from are jobs that succeeded, and those that ran until their time was over: such a job holds its place for that long.
One that failed says little about those that do not, and is left out; so is one that somebody cancelled.
"""

from heapq import nsmallest
from typing import Final

from spillover.core.events import JobEnded, JobState
from spillover.core.jobs import Job
from spillover.core.samples import WINDOW, About, Sample
from spillover.core.state import State
from spillover.model.job import Shape
from spillover.model.units import DAY

FEW: Final = 3
"""Jobs from which on a sample is believed."""
MOST: Final = 365 * DAY
"""Nanoseconds that count of one job."""
KEPT: Final = 10_000
"""Samples that are kept; of more, those that have not learned for the longest time are dropped."""
DROPPED: Final = KEPT // 8
"""Samples that are dropped together."""
_TELLING: Final = frozenset({JobState.SUCCEEDED, JobState.TIMED_OUT})
"""How jobs end that are learned from."""


def learn(state: State, job: Job, event: JobEnded) -> None:
    """Take in how long a job ran, if that says something about others."""
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
    if sample.count <= FEW:
        for about in (("name", user, job.name, None), ("shape", user, "", shape)):
            _add(state, history.get(about) or _begin(state, about), ran)
        if len(history) > KEPT:
            _forget(state, nsmallest(DROPPED, history.values(), key=_age))


def predict(state: State, user: str, name: str, shape: Shape) -> int | None:
    """Nanoseconds that a job is expected to run, by those most like it; None if there were too few."""
    history = state.history
    for about in (("job", user, name, shape), ("name", user, name, None), ("shape", user, "", shape)):
        sample = history.get(about)
        if sample is not None and sample.count >= FEW:
            return max(1, sample.mean)
    return None


def _begin(state: State, about: About) -> Sample:
    """An empty sample."""
    state.facts.sampled += 1
    sample = Sample(str(state.facts.sampled), about)
    state.history[about] = state.samples[sample.key] = sample
    return sample


def _add(state: State, sample: Sample, ran: int) -> None:
    """Let a sample learn."""
    sample.count += 1
    sample.total += ran
    sample.used = state.facts.learned
    if sample.count >= 2 * WINDOW:
        sample.halve()
    state.dirty["history"][sample.key] = None


def _age(sample: Sample) -> tuple[int, int]:
    return sample.used, int(sample.key)


def _forget(state: State, dropped: list[Sample]) -> None:
    for sample in dropped:
        del state.history[sample.about], state.samples[sample.key]
        state.dirty["history"][sample.key] = None
