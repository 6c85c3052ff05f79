"""What a dry run says of each job: where, when, at what cost, and why."""

from collections.abc import Sequence

from spillover.control.views import money, reason_view, when
from spillover.core.state import Job, State
from spillover.deciding.engine import Trial
from spillover.deciding.explain import Explanation
from spillover.deciding.plan import Placement
from spillover.forms.jobs import JobForm
from spillover.model.cluster import ClusterSpec, Role, cost_of
from spillover.model.ids import JobId
from spillover.model.reasons import AfterJobs, Reason
from spillover.model.units import FOREVER, SECOND
from spillover.wire.api import Forecast, Forecasts, ReasonView


def forecasts(state: State, ids: Sequence[str], forms: Sequence[JobForm], tried: Trial) -> Forecasts:
    """One forecast for each job, in the order they were given."""
    placed: dict[str, Placement] = {}
    for placement in tried.plan.placements:
        placed.setdefault(placement.job, placement)
    latest = dict(tried.plan.admitted)
    shown = []
    for job_id, form in zip(ids, forms, strict=True):
        if JobId(job_id) not in tried.jobs:
            shown.append(_known(form, job_id))
            continue
        job, said = tried.jobs[JobId(job_id)]
        shown.append(_forecast(state, tried, job, said, placed.get(job_id), latest.get(JobId(job_id))))
    return Forecasts(shown)


def _forecast(
    state: State, tried: Trial, job: Job, said: Explanation, placement: Placement | None, latest: int | None
) -> Forecast:
    """What would become of one job."""
    now = tried.now
    spills_at = latest + state.facts.jumped if latest is not None and latest < FOREVER else None
    cluster, starts_at, node = None, None, None
    reason: Reason | None = said.reason
    if reason is not None and reason.never:
        spills_at = None
    if type(reason) is AfterJobs:
        reason = AfterJobs(tuple(_name_of(each, tried) for each in reason.jobs))
    if placement is not None:
        cluster, node, starts_at, reason = placement.cluster, placement.node, now, placement.why
    elif spills_at is not None:
        could = [
            each.cluster
            for each in said.verdicts
            if each.role is Role.RENTED and (each.reason is None or not each.reason.never)
        ]
        if could:
            cluster, starts_at = could[0], max(now, spills_at)
    spec = state.clusters.get(cluster) if cluster is not None else None
    view = reason_view(reason)
    return Forecast(
        name=job.name,
        cluster=cluster,
        node=node,
        starts_at=when(starts_at),
        reason=view or ReasonView("unknown", "nothing keeps it", never=False),
        cost=None if spec is None else money(_cost(spec, job, said.estimate.runtime)),
        spills_at=when(spills_at) if placement is None else None,
        estimate_s=said.estimate.runtime / SECOND,
    )


def _name_of(job: JobId, tried: Trial) -> JobId:
    """The name of a job that is only tried, as its id means nothing to anybody; else its id."""
    return JobId(tried.jobs[job][0].name) if job in tried.jobs else job


def _cost(spec: ClusterSpec, job: Job, runtime: int) -> int:
    """What the job is expected to cost there, all members of an array together."""
    members = job.extra.members
    each = cost_of(spec.price, spec.billing, job.kind.shape.resources, runtime)
    return each * (1 if members is None else members.size)


def _known(form: JobForm, job_id: str) -> Forecast:
    """A job that is there already under its key."""
    reason = ReasonView("known", f"is {job_id}, submitted under this key before", never=False)
    return Forecast(form.spec.name, None, None, None, reason, None, None, None)
