"""Reports costs of ended and running jobs, and the use of budgets."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spillover.control.live.loop import Loop
from spillover.control.views.jobs import money, when
from spillover.control.views.machine_costs import paid_for_machines
from spillover.core.deciders.endings import attempt_cost, elapsed
from spillover.core.records.jobs import NO_EXTRA, Ended, Job, Queued, Running
from spillover.core.state import State
from spillover.model.budget import EVERY, Budget, CostBy, Per, Period, period_of, period_prefix
from spillover.model.cluster import Role
from spillover.model.ids import JobId
from spillover.model.units import FOREVER, MINUTE, format_time
from spillover.ports.archive import Archive
from spillover.wire.api import BudgetView, CostReport, CostView

LEAST_PACE: Final = 10 * MINUTE
"""Before so much of a period has passed, its pace says nothing."""


class _Item(NamedTuple):
    """The cost of one attempt."""

    job: JobId
    key: str
    at: int
    """When the attempt ended; FOREVER while it runs."""
    cost: int = 0
    running: int = 0
    held: int = 0


class _Sum:
    """The sum of all costs under one key."""

    def __init__(self) -> None:
        self.cost = self.running = self.held = 0
        self.archived = 0
        """Jobs that are only in the archive."""
        self.jobs: dict[JobId, None] = {}

    def add(self, item: _Item) -> None:
        self.cost += item.cost
        self.running += item.running
        self.held += item.held
        self.jobs[item.job] = None

    def view(self, key: str) -> CostView:
        jobs = self.archived + len(self.jobs)
        return CostView(key, jobs, money(self.cost), money(self.running), money(self.held))


async def cost_report(
    loop: Loop,
    archive: Archive,
    by: CostBy,
    since: int | None,
    currency: str,
    project: str | None = None,
) -> CostReport:
    """Return costs since a time by key; of one project if it is given."""
    # The state first. Its jobs are left out of the archive's sums, so a job that is archived meanwhile counts exactly
    # once.
    now = loop.now()
    items = await loop.scan(lambda jobs: _items(loop.state, jobs, by, now, project))
    seen: dict[JobId, None] = {}
    sums: dict[str, _Sum] = {}
    total = _Sum()
    for item in items:
        seen[item.job] = None
        if since is None or item.at >= since:
            sums.setdefault(item.key, _Sum()).add(item)
            total.add(item)
    for spent in await archive.costs(by, since, list(seen), project):
        found = sums.setdefault(spent.key, _Sum())
        for each in (found, total):
            each.cost += spent.amount
            each.archived += spent.jobs
    rows = [found.view(key) for key, found in sorted(sums.items())]
    machines = paid_for_machines((await loop.read()).state, since, now) if project is None else None
    return CostReport(by, when(since), currency, rows, total.view("total"), machines)


def _items(state: State, jobs: Sequence[Job], by: CostBy, now: int, project: str | None) -> Iterator[_Item]:
    """Yield the costs of ended and running attempts of jobs in the state."""
    for job in jobs:
        if job.extra is NO_EXTRA and type(job.phase) is Queued:
            continue  # most jobs: never ran
        if job.extra.members is not None or project not in {None, job.kind.project}:
            continue
        phase = job.phase
        paid = [(each.at, each.cluster, each.amount) for each in job.extra.paid]
        if isinstance(phase, Ended) and phase.cluster is not None:
            paid.append((phase.at, phase.cluster, job.cost - sum(amount for _, _, amount in paid)))
        for at, cluster, amount in paid:
            if amount:
                yield _Item(job.id, _key(job, by, cluster, at), at, cost=amount)
        spec = state.cluster_of(job)
        if spec is not None and spec.role is Role.RENTED:
            hold = job.extra.hold
            yield _Item(
                job.id,
                _key(job, by, spec.name, now),
                FOREVER,
                running=attempt_cost(state, job, elapsed(state, job, now)) if type(phase) is Running else 0,
                held=hold.amount if hold is not None else 0,
            )


def _key(job: Job, by: CostBy, cluster: str, at: int) -> str:
    """Return the key that an attempt counts under."""
    match by:
        case "project":
            return job.kind.project
        case "user":
            return job.user
        case "cluster":
            return cluster
        case "day" | "week" | "month":
            return period_of(Per(by), at).label


def budget_views(state: State, now: int) -> list[BudgetView]:
    """Return budgets in their order; a budget for every name appears once for each name that has used it."""
    named = {(each.of, each.name, each.per) for each in state.facts.budgets}
    shown = []
    for budget in state.facts.budgets:
        if budget.name != EVERY:
            shown.append(_budget(state, budget, budget.name, now))
            continue
        label = period_of(budget.per, now).label
        keys = (key.split("/") for key in state.budget_periods)
        names = [
            name
            for of, name, per, period in keys
            if (of, per, period) == (budget.of, budget.per, label)
            and (budget.of, name, budget.per) not in named
        ]
        shown += [_budget(state, budget, name, now) for name in sorted(names) or [EVERY]]
    return shown


def _budget(state: State, budget: Budget, name: str, now: int) -> BudgetView:
    """Return one budget of one project or user."""
    period = period_of(budget.per, now)
    used = state.budget_periods.get(f"{period_prefix(budget.of, name, budget.per)}/{period.label}")
    spent, held, over = (used.spent, used.held, used.over) if used is not None else (0, 0, 0)
    return BudgetView(
        of=budget.of,
        name=name,
        per=budget.per,
        period=period.label,
        ends_at=None if period.until >= FOREVER else format_time(period.until),
        limit=money(budget.limit),
        spent=money(spent),
        held=money(held),
        left=money(budget.limit - spent - held),
        over=money(over),
        every=budget.name == EVERY,
        runs_out_at=when(_runs_out(budget.limit - spent - held, spent, period, now)),
    )


def _runs_out(left: int, spent: int, period: Period, now: int) -> int | None:
    """Return when a budget will be used up at the pace of its period so far; None if it lasts or is used up."""
    passed = now - period.since
    if left <= 0 or spent <= 0 or not period.since or passed < LEAST_PACE:
        return None
    at = now + left * passed // spent
    return at if at < period.until else None
