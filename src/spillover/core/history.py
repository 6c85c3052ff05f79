"""What ended jobs teach about those to come: a fold over events, kept in the book.

Runtimes are learned for each user, name and shape, and, so that a new combination is not a stranger, for each user and name and
for each user and shape. These coarser ones learn only from the first few jobs of each finer one: a job that runs every minute
does not outweigh all others, and what is well known costs one addition. Beside them stands how far expectations were off, for
each of their sources and each user.

Learned from are jobs that succeeded, and those that ran until their time was over: such a job holds its place for that long.
One that failed says little about those that do not, and is left out; so is one that somebody cancelled.
"""

from heapq import nsmallest
from math import isqrt
from typing import Final, NamedTuple

from spillover.core.estimates import Source, estimate
from spillover.core.events import JobEnded, JobState
from spillover.core.samples import UNIT, WINDOW, About, Sample, log2_of
from spillover.core.state import Job, State
from spillover.model.job import Shape
from spillover.model.units import DAY

FEW: Final = 3
"""Jobs from which on a sample is believed."""
ENOUGH: Final = 16
"""Jobs from which on its spread is believed as it is."""
MOST: Final = 365 * DAY
"""Nanoseconds that count of one job."""
KEPT: Final = 10_000
"""Samples that are kept; of more, those that have not learned for the longest time are dropped."""
DROPPED: Final = KEPT // 8
"""Samples that are dropped together."""
ASSUMED: Final[dict[Source, int]] = {
    "estimate": UNIT,
    "walltime": 2 * UNIT,
    "history": UNIT,
    "default": 3 * UNIT,
}
"""Spread of log2(real ÷ expected), in UNIT-ths, while nothing was learned: by a factor of 2, 4, 2 and 8 either way."""


class Doubt(NamedTuple):
    """How far a job's expected runtime may be off. Logarithms are to the base of 2, in UNIT-ths (`core.samples`)."""

    bias: int
    """Mean of log2(real ÷ expected): below 0 if jobs of this kind run shorter than expected."""
    spread: int
    """Its standard deviation: two thirds of all jobs are within it of the bias."""
    jobs: int
    """How many it was learned from; 0 if it is only assumed."""


def learn(state: State, job: Job, event: JobEnded) -> None:
    """Take in how long a job ran, if that says something about others."""
    ran, ended = min(event.usage.ran, MOST), event.state
    if ran <= 0 or (ended is not JobState.SUCCEEDED and ended is not JobState.TIMED_OUT):
        return
    history, user, shape = state.history, job.user, job.kind.shape
    state.facts.learned += 1
    state.touch_facts()
    log = log2_of(ran)
    about: About = ("job", user, job.name, shape)
    sample = history.get(about) or _begin(state, about)
    _add(state, sample, ran, log)
    if sample.count <= FEW:
        for about in (("name", user, job.name, None), ("shape", user, "", shape)):
            _add(state, history.get(about) or _begin(state, about), ran, log)
    expected: int | None = job.terms.estimate  # the usual case, without making an Estimate
    source: Source = "estimate"
    if expected is None:
        expected, source = estimate(job, state.facts.policies.unknown_runtime)
    if expected > 0:
        off = log - log2_of(expected)
        about = (source, user, "", None)
        sample = history.get(about) or _begin(state, about)
        _add(state, sample, 0, off)
        if sample.count <= FEW:
            about = (source, "", "", None)
            _add(state, history.get(about) or _begin(state, about), 0, off)
    if len(history) > KEPT:
        _forget(state, nsmallest(DROPPED, history.values(), key=_age))


def predict(state: State, user: str, name: str, shape: Shape) -> int | None:
    """Nanoseconds that a job is expected to run, by those like it; None if there were too few."""
    sample = _like(state, user, name, shape)
    return None if sample is None else max(1, sample.mean)


def spread_of(state: State, job: Job) -> Doubt:
    """How far the expected runtime of a job may be off: by jobs like it, by those of its user, or by those of all."""
    expected, source = estimate(job, state.facts.policies.unknown_runtime)
    if source == "history":
        sample = _like(state, job.user, job.name, job.kind.shape)
        if sample is not None:
            return Doubt(sample.log - log2_of(expected), _believed(sample, ASSUMED[source]), sample.count)
    for user in (job.user, ""):
        off = state.history.get((source, user, "", None))
        if off is not None and off.count >= FEW:
            return Doubt(off.log, _believed(off, ASSUMED[source]), off.count)
    return Doubt(0, ASSUMED[source], 0)


def forget_default(state: State) -> None:
    """Another runtime is assumed of jobs that nothing is known of: how far the old one was off says nothing about it."""
    _forget(state, [sample for about, sample in state.history.items() if about[0] == "default"])


def _like(state: State, user: str, name: str, shape: Shape) -> Sample | None:
    """Jobs that are most like one, if there were a few."""
    history = state.history
    for about in (("job", user, name, shape), ("name", user, name, None), ("shape", user, "", shape)):
        sample = history.get(about)
        if sample is not None and sample.count >= FEW:
            return sample
    return None


def _believed(sample: Sample, assumed: int) -> int:
    """The spread of a sample, held near what is assumed while it is small."""
    spread, count = sample.spread, sample.count
    if count >= ENOUGH:
        return spread
    return isqrt((count * spread * spread + FEW * assumed * assumed) // (count + FEW))


def _begin(state: State, about: About) -> Sample:
    """An empty sample."""
    state.facts.sampled += 1
    sample = Sample(str(state.facts.sampled), about)
    state.history[about] = state.samples[sample.key] = sample
    return sample


def _add(state: State, sample: Sample, value: int, log: int) -> None:
    """Let a sample learn."""
    sample.count += 1
    sample.total += value
    sample.logs += log
    sample.squares += log * log
    sample.used = state.facts.learned
    if sample.count >= 2 * WINDOW:
        sample.halve()
    state.dirty["history", sample.key] = None


def _age(sample: Sample) -> tuple[int, int]:
    return sample.used, int(sample.key)


def _forget(state: State, dropped: list[Sample]) -> None:
    for sample in dropped:
        del state.history[sample.about], state.samples[sample.key]
        state.dirty["history", sample.key] = None
