"""Reports what jobs asked for and used: hours on owned and rented capacity, what was left unused, and cost."""

from collections.abc import Iterator, Sequence

from spillover.control.controllers.archiving import finished_of
from spillover.control.live.loop import Loop
from spillover.control.views.jobs import money, when
from spillover.core.deciders.endings import attempt_cost, elapsed
from spillover.core.records.jobs import NO_EXTRA, Ended, Job, Queued, Running
from spillover.core.state import State
from spillover.model.budget import UsageBy
from spillover.model.cluster import Role
from spillover.model.ids import ClusterName, JobId
from spillover.ports.archive import (
    Amounts,
    Archive,
    Spell,
    UsageQuery,
    Used,
    asked,
    spells,
    summed,
)
from spillover.wire.api import Hours, UsageReport, UsageView

_CPU_HOUR = 1000 * 3600
_GIB_HOUR = 1024 * 3600


class _Sum:
    """The usage of one group."""

    def __init__(self) -> None:
        self.jobs = self.cost = 0
        self.owned = self.rented = Amounts()

    def add(self, used: Used, *, rented: bool) -> None:
        self.jobs += used.jobs
        self.cost += used.cost
        if rented:
            self.rented += used.amounts
        else:
            self.owned += used.amounts

    def view(self, key: dict[str, str]) -> UsageView:
        both = self.owned + self.rented
        return UsageView(
            key=key,
            jobs=self.jobs,
            owned=_hours(self.owned.cpu, self.owned.gpu, self.owned.memory),
            rented=_hours(self.rented.cpu, self.rented.gpu, self.rented.memory),
            measured=_hours(both.cpu_measured, both.gpu_measured, both.memory_measured),
            unused=_hours(both.cpu_unused, both.gpu_unused, both.memory_unused),
            cost=money(self.cost),
        )


def _hours(cpu: int, gpu: int, memory: int) -> Hours:
    return Hours(cpu / _CPU_HOUR, gpu / _CPU_HOUR, memory / _GIB_HOUR)


async def usage_report(
    loop: Loop,
    archive: Archive,
    by: Sequence[UsageBy],
    since: int | None,
    currency: str,
    project: str | None = None,
) -> UsageReport:
    """Return what attempts used that ended since a time or run now, in groups; of one project if it is given."""
    query = UsageQuery(tuple(by), since, project=project)
    sums: dict[tuple[str, ...], _Sum] = {}
    total = _Sum()
    state = (await loop.read()).state
    for used in await usage_of(loop, archive, query):
        rented = is_rented(state, used)
        for found in (sums.setdefault(used.keys, _Sum()), total):
            found.add(used, rented=rented)
    rows = [found.view(dict(zip(by, keys, strict=True))) for keys, found in sorted(sums.items())]
    return UsageReport(list(by), when(since), currency, rows, total.view({}))


async def usage_of(loop: Loop, archive: Archive, query: UsageQuery) -> list[Used]:
    """Return sums over attempts of the archive, and over those of the state that have ended or run."""
    # The state first. Its jobs are left out of the archive's sums, so a job that is archived meanwhile counts exactly
    # once.
    now = loop.now()
    live = await loop.scan(lambda jobs: _live(loop.state, jobs, query, now))
    counted = [spell for spell in live if query.since is None or spell.at >= query.since]
    seen = list(dict.fromkeys(spell.job for spell in live))
    kept = await archive.usage(UsageQuery(query.by, query.since, seen, query.project, query.array))
    return [*kept, *summed(query.by, counted)]


def is_rented(state: State, used: Used) -> bool:
    """Return whether attempts ran on rented capacity; on a cluster that was removed, if they cost something."""
    spec = state.clusters.get(ClusterName(used.cluster))
    return used.cost > 0 if spec is None else spec.role is Role.RENTED


def _live(state: State, jobs: Sequence[Job], query: UsageQuery, now: int) -> Iterator[Spell]:
    """Yield the attempts of jobs in the state."""
    for job in jobs:
        if job.extra is NO_EXTRA and type(job.phase) is Queued:
            continue  # most jobs: never ran
        if job.extra.members is not None or query.project not in {None, job.kind.project}:
            continue
        if query.array is None or job.id.startswith(f"{query.array}."):
            yield from live_spells(state, job, now)


def live_spells(state: State, job: Job, now: int) -> Iterator[Spell]:
    """Yield the attempts of one job in the state, the running one up to now."""
    if type(job.phase) is Ended:
        row = finished_of(job)
        yield from spells(row) if row is not None else ()
        return

    def spell(at: int, cluster: str, amounts: Amounts, cost: int = 0, *, last: bool = False) -> Spell:
        kind = job.kind
        return Spell(JobId(job.id), at, kind.project, job.user, kind.queue, cluster, last, amounts, cost=cost)

    for tried in job.extra.tried:
        whole = job.kind.shape.sized(tried.tasks).total
        yield spell(tried.at, tried.cluster, asked(whole, tried.ran))
    for paid in job.extra.paid:
        yield spell(paid.at, paid.cluster, Amounts(), paid.amount)
    if isinstance(job.phase, Running):
        ran = elapsed(state, job, now)
        spec = state.cluster_of(job)
        rented = spec is not None and spec.role is Role.RENTED
        cost = attempt_cost(state, job, ran) if rented else 0
        yield spell(now, job.phase.cluster, asked(job.shape.total, ran), cost, last=True)
