"""Compares two runs of the same jobs: how far they differ, and which projects gain or lose."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from spillover.model.units import MONEY, SECOND
from spillover.sim.outcome import JobOutcome
from spillover.sim.reports.statistics import Statistics, percentile
from spillover.sim.trace import TraceJob

Verdict = Literal["wins", "loses", "same", "unclear"]
"""By waiting time; `unclear` if the change is within the error of the simulation for the project."""


class Deviation(Struct, frozen=True):
    """The error of a simulation: its difference from what happened, under the same policies."""

    jobs: int
    """Jobs that ran in both."""
    mean_wait_s: float
    """Simulated minus real mean wait; positive means too long."""
    mean_wait_share: float | None
    """As a share of the real wait; None if no job waited."""
    cost: float
    """Simulated minus real cost."""
    cost_share: float | None
    mean_start_s: float
    """Mean distance of start times, early or late."""
    p50_start_s: float
    """The smallest distance that at least half of the jobs do not exceed."""
    p90_start_s: float
    elsewhere_jobs: int
    """Jobs on another cluster than in reality."""
    elsewhere: float
    """Their share, from 0 to 1."""
    never_ran: int
    """Jobs that ran in reality but not in the simulation."""


class ProjectChange(Struct, frozen=True):
    """What a policy changes for one project, compared with what happened."""

    project: str
    jobs: int
    wait_s: float
    """Real mean wait."""
    wait_as_ran_s: float
    """Simulated with the real policies; its distance from `wait_s` is the error of the simulation."""
    wait_then_s: float
    """Simulated with the other policy."""
    wait_change_s: float
    """`wait_then_s` minus `wait_s`."""
    cost: float
    """Real cost."""
    cost_as_ran: float
    cost_then: float
    cost_change: float
    verdict: Verdict


def deviation(
    happened: Sequence[JobOutcome],
    simulated: Sequence[JobOutcome],
    before: Statistics,
    after: Statistics,
    counted: range,
) -> Deviation:
    """Measure how far a simulation is from what happened, for the jobs with these indexes."""
    ran = {one.job: one for one in simulated}
    off: list[int] = []
    elsewhere = 0
    for past in happened[counted.start : counted.stop]:
        one = ran.get(past.job)
        if one is not None:
            off.append(abs(one.start - past.start))
            elsewhere += one.cluster != past.cluster
    off.sort()
    count = len(off)
    wait, cost = after.mean_wait_s - before.mean_wait_s, after.rented_cost - before.rented_cost
    return Deviation(
        jobs=count,
        mean_wait_s=wait,
        mean_wait_share=wait / before.mean_wait_s if before.mean_wait_s else None,
        cost=cost,
        cost_share=cost / before.rented_cost if before.rented_cost else None,
        mean_start_s=sum(off) / (count * SECOND) if count else 0.0,
        p50_start_s=percentile(off, 50) / SECOND,
        p90_start_s=percentile(off, 90) / SECOND,
        elsewhere_jobs=elsewhere,
        elsewhere=elsewhere / count if count else 0.0,
        never_ran=after.never_ran,
    )


def by_project(
    jobs: Sequence[TraceJob],
    happened: Sequence[JobOutcome],
    as_ran: Sequence[JobOutcome],
    then: Sequence[JobOutcome],
    counted: range,
) -> list[ProjectChange]:
    """Return the change for each project, from the largest total gain in waiting time to the largest loss.

    Omits jobs that do not run in all three, because their waits have no end.
    """
    in_all = {one.job for one in as_ran}.intersection(one.job for one in then)
    count: dict[str, int] = {}
    for at in counted:
        if at in in_all:
            count[jobs[at].project] = count.get(jobs[at].project, 0) + 1
    sums = [_sums(jobs, outcomes, in_all, counted) for outcomes in (happened, as_ran, then)]
    found = [_change(project, jobs_of, *(one[project] for one in sums)) for project, jobs_of in count.items()]
    found.sort(key=lambda one: (one.wait_change_s * one.jobs, one.cost_change, one.project))
    return found


class _Sum(Struct):
    """Total wait and cost of the jobs of one project."""

    waited: int = 0
    cost: int = 0


def _sums(
    jobs: Sequence[TraceJob], outcomes: Sequence[JobOutcome], of: set[int], counted: range
) -> Mapping[str, _Sum]:
    """Sum up by project."""
    found: dict[str, _Sum] = {}
    for one in outcomes:
        if one.job in of and one.job in counted:
            total = found.setdefault(jobs[one.job].project, _Sum())
            total.waited += one.start - one.submit
            total.cost += one.cost
    return found


def _change(project: str, jobs: int, happened: _Sum, as_ran: _Sum, then: _Sum) -> ProjectChange:
    """Return the change for one project."""
    scale = jobs * SECOND
    change, error = then.waited - happened.waited, abs(as_ran.waited - happened.waited)
    verdict: Verdict
    if change == 0:
        verdict = "same"
    elif abs(change) <= error:
        verdict = "unclear"
    else:
        verdict = "wins" if change < 0 else "loses"
    return ProjectChange(
        project=project,
        jobs=jobs,
        wait_s=happened.waited / scale,
        wait_as_ran_s=as_ran.waited / scale,
        wait_then_s=then.waited / scale,
        wait_change_s=change / scale,
        cost=happened.cost / MONEY,
        cost_as_ran=as_ran.cost / MONEY,
        cost_then=then.cost / MONEY,
        cost_change=(then.cost - happened.cost) / MONEY,
        verdict=verdict,
    )
