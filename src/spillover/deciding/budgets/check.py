"""Checks whether caps allow renting a job, and computes the cost hold.

A hold is the most that an attempt can cost: until its walltime, plus its grace and the slack that an agent has to kill
it. A job without a walltime gets the one that the rest of its caps pays for. So spent and held amounts together never
exceed a cap, in whatever order attempts end. A `BudgetCheck` exists for one cycle and counts the holds of that cycle.
It changes no state, so nothing needs to be undone.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import PeriodRef
from spillover.core.learned.estimates import estimate
from spillover.core.records.jobs import Job, Kind
from spillover.core.state import State
from spillover.model.budget import Cap, Of
from spillover.model.cluster import PER_RATE, ClusterSpec, cost_of_job, dearest, egress_cost, rate_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reasons import OverBudget, OverMaxCost, Reason, TooDear
from spillover.model.units import DAY, FOREVER, MINUTE

LEAST: Final = MINUTE
"""Shortest time in nanoseconds for which a job without a walltime is rented: less is not worth starting it."""
LONGEST: Final = 3650 * DAY
"""Longest time in nanoseconds for which such a job is rented."""
REFUSALS: Final = 64
"""How many jobs of one lane a cycle may find refused by caps before it leaves the lane."""
ALL_REFUSALS: Final = 1024
"""The same for all lanes together. After that, one job of each lane."""

Refusal: TypeAlias = OverMaxCost | OverBudget


class CostHold(Struct, frozen=True, array_like=True, gc=False):
    """The amount to hold for a job that is rented."""

    amount: int
    """Millionths."""
    limit: int | None
    """How long it may run, in nanoseconds; None if it has a walltime of its own, or needs none."""
    periods: tuple[PeriodRef, ...]


class BudgetCheck:
    """What caps leave after the holds of one cycle."""

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self._now = now
        self._taken: dict[str, int] = {}
        """Millionths that the cycle is about to hold, by period."""
        self._refused: dict[Kind, int] = {}
        """Number of refused jobs by lane."""
        self._refusals = 0
        self._known: dict[tuple[str, str], list[Cap]] = {}
        """Caps by project and user, cached."""
        self.renews = FOREVER
        """When the first budget that refused a job renews, nanoseconds UTC."""
        self.rest_may_rent = False
        """Whether other jobs of the lane given up last might still be rented, since only some were checked."""

    def concerns(self, job: Job) -> bool:
        """Return whether any cap limits the cost of renting a job."""
        return job.terms.max_cost is not None or bool(self._state.caps)

    def ask(
        self, job: Job, spec: ClusterSpec, expected: int | None, tasks: int = 0
    ) -> CostHold | Refusal | None:
        """Return the hold for renting a job there, or why it may not be rented; None if no cap concerns it.

        `expected` is the expected runtime in nanoseconds; None if unknown. `tasks` is the size of a gang of elastic
        size; 0 is its least.
        """
        caps = self._caps(job)
        shape, terms = job.kind.shape.sized(tasks) if tasks else job.kind.shape, job.terms
        if spec.price.machines:
            spec = replace(spec, price=dearest(spec.price, shape))
        rate = rate_of_job(spec.price, shape)
        if (terms.max_cost is None and not caps) or not (rate or egress_cost(spec.price, terms.data)):
            return None
        beyond = terms.grace + WALLTIME_SLACK
        runs = terms.walltime if terms.walltime is not None else max(LEAST, expected or 0)
        needed = cost_of_job(spec, shape, runs + beyond, terms.data)
        left = FOREVER
        if terms.max_cost is not None:
            left = terms.max_cost - _spent(job)
            if needed > left:
                return OverMaxCost(
                    runs, needed, left, terms.max_cost, terms.grace, terms.walltime is not None
                )
        for cap in caps:
            here = self.left(cap)
            if needed > here:
                return _over(cap, job, runs, needed, here)
            left = min(left, here)
        periods = tuple([PeriodRef(cap.key, cap.until) for cap in caps])
        if terms.walltime is not None or not rate:
            return CostHold(needed, None, periods)
        # Without a walltime, the job gets as many whole billing steps as the rest of its caps pays for.
        paid = (left - egress_cost(spec.price, terms.data)) * PER_RATE // rate
        step = max(1, spec.billing.step)
        limit = min(LONGEST, paid // step * step - beyond)
        return CostHold(cost_of_job(spec, shape, limit + beyond, terms.data), limit, periods)

    def allows(self, job: Job, spec: ClusterSpec, expected: int | None) -> bool:
        """Return whether the caps of a job allow renting it there."""
        answer = self.ask(job, spec, expected) if self.concerns(job) else None
        return answer is None or isinstance(answer, CostHold)

    def take(self, holding: CostHold) -> None:
        """Count a hold of this cycle."""
        for period in holding.periods:
            self._taken[period.key] = self._taken.get(period.key, 0) + holding.amount

    def refuse(self, job: Job, refusals: Iterable[Refusal]) -> None:
        """Record that a job may not be rented anywhere, for these reasons."""
        self._refused[job.kind] = self._refused.get(job.kind, 0) + 1
        self._refusals += 1
        for refusal in refusals:
            if isinstance(refusal, OverBudget):
                self.renews = min(self.renews, refusal.until)

    def gives_up(self, job: Job, specs: Iterable[ClusterSpec]) -> bool:
        """Return whether to skip the rest of a lane: its project has no money left, or enough jobs were checked.

        Sets `renews`, so that a cycle tries them again when a budget that concerns them renews, whatever refused this
        job.
        """
        caps = self._caps(job)
        least = min([cost_of_job(spec, job.kind.shape, WALLTIME_SLACK) for spec in specs], default=0)
        spent = [cap for cap in caps if cap.budget.of is Of.PROJECT and self.left(cap) < least]
        if self._refused.get(job.kind, 0) < REFUSALS and self._refusals < ALL_REFUSALS:
            caps = spent
            if not caps:
                return False
        self.rest_may_rent = not spent
        self.renews = min([self.renews, *(cap.until for cap in caps)])
        return True

    def _caps(self, job: Job) -> list[Cap]:
        whose = job.kind.project, job.user
        caps = self._known.get(whose)
        if caps is None:
            caps = self._known[whose] = self._state.caps.on(*whose, self._now) if self._state.caps else []
        return caps

    def left(self, cap: Cap) -> int:
        """Return what a cap leaves, in millionths."""
        period = self._state.budget_periods.get(cap.key)
        used = period.spent + period.held if period is not None else 0
        return cap.budget.limit - used - self._taken.get(cap.key, 0)


class CycleBudgets:
    """The budget check of one cycle, with its last answer and the holds for its placements."""

    def __init__(self, state: State, now: int) -> None:
        self._check = BudgetCheck(state, now)
        self.holding: CostHold | None = None
        """The hold for the job being tried on the cluster checked last; None if it needs none."""
        self.holds: list[tuple[int, CostHold]] = []
        """Cost holds of placements, by position."""
        self.refusals: list[Refusal] = []
        """Why the job being tried may not be rented on clusters that have room."""

    @property
    def renews(self) -> int:
        """When the first budget that refused a job renews, nanoseconds UTC."""
        return self._check.renews

    @property
    def rest_may_rent(self) -> bool:
        """Whether other jobs of the lane given up last might still be rented, since only some were checked."""
        return self._check.rest_may_rent

    def may_pay(self, job: Job, spec: ClusterSpec, tasks: int = 0) -> bool:
        """Return whether the caps of a job let it run there; record the hold, or the refusal. See `BudgetCheck.ask`."""
        answer = self._check.ask(job, spec, estimate(job, 0).runtime, tasks)
        if answer is not None and not isinstance(answer, CostHold):
            self.refusals.append(answer)
            return False
        self.holding = answer
        return True

    def hold(self, position: int) -> None:
        """Record the hold for a job that was placed at this position of the plan."""
        if self.holding is not None:
            self._check.take(self.holding)
            self.holds.append((position, self.holding))

    def goes_on(self, job: Job, specs: Iterable[ClusterSpec]) -> bool:
        """Record that caps refuse a job; return whether to try the jobs behind it in its lane."""
        refusals, self.refusals = self.refusals, []
        self._check.refuse(job, refusals)
        return not self._check.gives_up(job, specs)


def never_affordable(refusals: Iterable[tuple[ClusterName, Reason | None]]) -> TooDear | None:
    """Return why a job that only these clusters could run never will; None if one might, once caps leave more."""
    names: list[ClusterName] = []
    cheapest: Refusal | None = None
    for cluster, refusal in refusals:
        if not isinstance(refusal, OverMaxCost) and not (
            isinstance(refusal, OverBudget) and refusal.cost > refusal.limit
        ):
            return None
        names.append(cluster)
        if cheapest is None or refusal.cost < cheapest.cost:
            cheapest = refusal
    if cheapest is None:
        return None
    cap = "its max_cost" if isinstance(cheapest, OverMaxCost) else f"the budget of {cheapest.whose}"
    return TooDear(
        tuple(names), cheapest.runs, cheapest.cost, cheapest.limit, cap, cheapest.grace, cheapest.limited
    )


class BudgetRest(NamedTuple):
    """The rest of a budget that a job without a walltime holds or would hold."""

    whose: str
    """For example `project vision`."""
    amount: int
    """Millionths."""


def held_rest(state: State, job: Job, now: int) -> BudgetRest | None:
    """Return the budget of which a job without a walltime holds the rest; None if it holds none."""
    hold = job.extra.hold
    if hold is None or hold.limit is None:
        return None
    caps = [cap for cap in state.caps.on(job.kind.project, job.user, now) if cap.key in hold.periods]
    cap = min(caps, key=BudgetCheck(state, now).left, default=None)
    return None if cap is None else BudgetRest(_whose(cap), hold.amount)


def open_rest(state: State, job: Job, now: int) -> BudgetRest | None:
    """Return the budget of which a job without a walltime would hold the rest if rented now; None if there is none."""
    caps = state.caps.on(job.kind.project, job.user, now) if job.terms.walltime is None else []
    check = BudgetCheck(state, now)
    cap = min(caps, key=check.left, default=None)
    return None if cap is None else BudgetRest(_whose(cap), max(0, check.left(cap)))


def _whose(cap: Cap) -> str:
    return f"{cap.budget.of} {cap.name}"


def _spent(job: Job) -> int:
    """Return the cost of earlier attempts; 0 for an array, because each member has its own limit."""
    return 0 if job.extra.members is not None else job.cost


def _over(cap: Cap, job: Job, runs: int, needed: int, left: int) -> OverBudget:
    whose, per, limit = _whose(cap), cap.budget.per, cap.budget.limit
    terms = job.terms
    return OverBudget(
        whose, per, runs, needed, left, limit, cap.until, terms.grace, terms.walltime is not None
    )
