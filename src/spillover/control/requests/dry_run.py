"""Describes the result of a dry run: where and when each job would start, its cost, and why."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from spillover.control.requests.projects import reason_within
from spillover.control.views.jobs import money, note_of, reason_view, start_view, when
from spillover.core.records.jobs import Job
from spillover.deciding.budgets.check import CostHold
from spillover.deciding.cycle.plan import GangPlacement, Placement
from spillover.deciding.expected import StartRange
from spillover.deciding.explain.explain import Explanation, capped_by
from spillover.deciding.forecast.costs import quote, quote_on
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.whatif import Trial
from spillover.forms.jobs.reading import JobForm
from spillover.model.cluster import Role
from spillover.model.ids import JobId
from spillover.model.reasons import AfterArrays, AfterJobs, OverBudget, OverMaxCost, Reason
from spillover.model.units import FOREVER, SECOND
from spillover.wire.api import Forecast, Forecasts, ReasonView


def forecasts(
    ids: Sequence[str],
    forms: Sequence[JobForm],
    tried: Trial,
    project: str | None = None,
    starts: Mapping[JobId, StartRange] | None = None,
) -> Forecasts:
    """Return a forecast for each job, in the given order; hide ids of other projects if a project is given."""
    index = tried.engine.index
    placed: dict[str, Placement | GangPlacement] = {}
    for placement in tried.plan.placements:
        placed.setdefault(placement.job, placement)
    holds = {tried.plan.placements[at].job: hold for at, hold in tried.plan.holds}
    latest = dict(tried.plan.admitted)
    shown = []
    for job_id, form in zip(ids, forms, strict=True):
        if JobId(job_id) not in tried.jobs:
            shown.append(_known(form, job_id))
            continue
        job, said = tried.jobs[JobId(job_id)]
        said = replace(said, reason=reason_within(said.reason, index.state, project))
        forecast = _forecast(index, tried, job, said, placed.get(job_id), latest.get(JobId(job_id)))
        forecast = _with_costs(index, forecast, job, said.estimate.runtime, holds.get(job.id))
        start = None if starts is None else start_view(starts.get(job.id))
        note = note_of(index, job, tried.now) or None
        shown.append(replace(forecast, note=note, expected_start=start))
    return Forecasts(shown)


def _forecast(
    index: SchedulingIndex,
    tried: Trial,
    job: Job,
    said: Explanation,
    placement: Placement | GangPlacement | None,
    latest: int | None,
) -> Forecast:
    """Return what would happen to one job."""
    now, state = tried.now, index.state
    spills_at = latest + state.facts.jumped if latest is not None and latest < FOREVER else None
    cluster, starts_at, node = None, None, None
    reason: Reason | None = said.reason
    if reason is not None and reason.never:
        spills_at = None
    if isinstance(reason, AfterJobs | AfterArrays):
        reason = replace(reason, jobs=tuple(_name_of(each, tried) for each in reason.jobs))
    if placement is not None:
        cluster, starts_at, reason = placement.cluster, now, placement.why
        node = placement.node if isinstance(placement, Placement) else placement.nodes[0]
    elif spills_at is not None and (capped := capped_by(said.verdicts)) is not None:
        spills_at, reason = None, capped  # its reason once the wait is over
    elif spills_at is not None and job.due is None:
        could = [
            each.cluster
            for each in said.verdicts
            if each.role is Role.RENTED
            and (each.reason is None or not each.reason.never)
            and not isinstance(each.reason, OverMaxCost | OverBudget)
        ]
        if could:
            cluster, starts_at = could[0], spills_at
    spec = state.clusters.get(cluster) if cluster is not None else None
    if spec is not None and starts_at is not None:
        starts_at += spec.startup
    view = reason_view(reason)
    return Forecast(
        name=job.name,
        cluster=cluster,
        node=node,
        starts_at=when(starts_at),
        reason=view or ReasonView("unknown", "nothing blocks it", never=False),
        cost=None if spec is None else money(quote_on(spec, job, said.estimate.runtime).expected),
        spills_at=when(spills_at) if placement is None else None,
        estimate_s=said.estimate.runtime / SECOND,
        nodes=len(set(placement.nodes)) if isinstance(placement, GangPlacement) else 0,
    )


def _name_of(job: JobId, tried: Trial) -> JobId:
    """Return the name of a job of this dry run, as its id means nothing to the user; else the id."""
    return JobId(tried.jobs[job][0].name) if job in tried.jobs else job


def _with_costs(
    index: SchedulingIndex, forecast: Forecast, job: Job, expected: int, hold: CostHold | None
) -> Forecast:
    """Add what the job would cost on rented capacity to a forecast."""
    if (quoted := quote(index, job, expected)) is None:
        return forecast
    most = quoted.at_walltime
    return replace(
        forecast,
        estimated_cost=money(quoted.expected),
        cost_at_walltime=None if most is None else money(most),
        given_walltime_s=None if hold is None or hold.limit is None else hold.limit / SECOND,
    )


def _known(form: JobForm, job_id: str) -> Forecast:
    """Return the forecast of a job that was already submitted under its key."""
    reason = ReasonView("known", f"is {job_id}, already submitted under this key", never=False)
    return Forecast(form.spec.name, None, None, None, reason, None, None, None)
