"""Forecasts when waiting jobs start, as a range: the times by which they start in half, and in nine of ten, cases.

A case is one run of the scheduler forward from now, in which each job runs as long as jobs like it did compared with
what was expected. If nothing is known about that, all jobs run as long as expected.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Struct

from spillover.core.decide import decide
from spillover.core.events import JobSubmitted
from spillover.core.learned.spread import ONE, draw_ratio, is_known, ratio_of, spread_of
from spillover.core.proposals import Submit
from spillover.core.records.jobs import Job
from spillover.deciding.cycle.draws import mixed
from spillover.deciding.engine import Engine
from spillover.deciding.forecast.estimates import estimate
from spillover.deciding.forward import Runtime, as_expected, first_jobs, run_forward
from spillover.deciding.whatif import Snapshot
from spillover.model.ids import JobId
from spillover.model.units import FOREVER, MINUTE

MOST_JOBS: Final = 1000
"""The most waiting jobs of one forecast: the first ones of the queue."""
MOST_STEPS: Final = 20_000
"""The most steps of all cases of a forecast."""
MOST_CASES: Final = 40
LEAST_CASES: Final = 5
"""There are fewer cases than `MOST_CASES` if they take many steps. One case takes at most a fifth of all steps."""


class StartRange(Struct, frozen=True):
    """When a job starts."""

    p50: int | None
    """It starts by then in half of all cases, nanoseconds UTC; None if it would not start within the forecast."""
    p90: int | None
    """In nine of ten cases."""


class StartForecast(Struct, frozen=True):
    """The expected starts of the first jobs of the queue."""

    starts: dict[JobId, StartRange]
    """Also of members of arrays."""
    wanted: dict[JobId, None]
    """The jobs that were looked at. Those without a start would not start within the forecast."""


def _never() -> bool:
    return False


def expected_starts(
    engine: Engine,
    now: int,
    more: Collection[JobId] = (),
    *,
    most_jobs: int = MOST_JOBS,
    most_steps: int = MOST_STEPS,
    enough: Callable[[], bool] = _never,
) -> StartForecast:
    """Forecast the starts of the first waiting jobs, and of `more`. The engine does not change.

    `enough` returns whether to stop: then the forecast has fewer cases, and the first case may be cut.
    """
    wanted = dict.fromkeys([*first_jobs(engine, most_jobs), *more])
    most = most_steps // LEAST_CASES
    if not wanted:
        return StartForecast({}, wanted)
    if not is_known(engine.state):
        return _one_case(engine, now, wanted, most, enough)
    cases: list[dict[JobId, int]] = []
    steps = 0
    while len(cases) < LEAST_CASES or (len(cases) < MOST_CASES and steps + steps // len(cases) <= most_steps):
        snapshot = Snapshot(engine)
        found = run_forward(snapshot, now, wanted, as_learned(snapshot, len(cases)), most, enough)
        if cases and enough():
            break  # the last case may be cut, and would say that jobs start too far ahead
        cases.append(found.at)
        steps += found.steps
    jobs = {job: None for case in cases for job in case}
    return StartForecast({job: _range(cases, job) for job in jobs}, wanted)


def _one_case(
    engine: Engine, now: int, wanted: dict[JobId, None], most: int, enough: Callable[[], bool]
) -> StartForecast:
    """Forecast with the runtimes that the scheduler expects."""
    snapshot = Snapshot(engine)
    found = run_forward(snapshot, now, wanted, as_expected(snapshot), most, enough)
    return StartForecast({job: StartRange(at, at) for job, at in found.at.items()}, wanted)


def _range(cases: Sequence[dict[JobId, int]], job: JobId) -> StartRange:
    """Return the times by which a job started in half and in nine of ten cases."""
    starts = sorted([case.get(job, FOREVER) for case in cases])
    p50, p90 = starts[(len(starts) - 1) // 2], starts[-(-len(starts) * 9 // 10) - 1]
    return StartRange(p50 if p50 < FOREVER else None, p90 if p90 < FOREVER else None)


def as_learned(engine: Engine, case: int) -> Runtime:
    """Return runtimes drawn from those of similar jobs; the same case of the same state gives the same ones."""
    expecting, seed = as_expected(engine), mixed(engine.state.facts.cycles, case)
    known: dict[tuple[str, int], Sequence[int] | None] = {}
    unknown = engine.policies.chosen.unknown_runtime

    def runtime(job: Job, ran: int) -> int:
        expected = estimate(job, unknown).runtime
        about = (job.user, expected)
        if about not in known:
            known[about] = spread_of(engine.state, *about)
        bins = known[about]
        if bins is None:
            return expecting(job, ran)
        chance = mixed(seed, job.number) & 0xFFFF
        ratio = draw_ratio(bins, ratio_of(ran, expected), chance)
        if ratio is None:  # no similar job ran this long: the longer it ran, the longer it may take
            return ran + max(MINUTE, ran * 3 // 10 * 2 * chance >> 16)
        total = expected * ratio // ONE
        if job.walltime is not None and ran < job.walltime:
            total = min(total, job.walltime)
        return max(total, ran + 1)

    return runtime


def starts_if_submitted(
    engine: Engine,
    now: int,
    proposal: Submit,
    most_steps: int = MOST_STEPS,
    enough: Callable[[], bool] = _never,
) -> dict[JobId, StartRange]:
    """Forecast the starts of jobs as if they were submitted now. The engine does not change."""
    tried = Snapshot(engine)
    events, _ = decide(tried.state, proposal, max(now, tried.now))
    for event in events:
        tried.apply(event)
    jobs = [event.job for event in events if type(event) is JobSubmitted]
    return expected_starts(tried, now, jobs, most_jobs=0, most_steps=most_steps, enough=enough).starts
