"""Whether a job may be rented under its caps, and what has to be held for it.

The most that an attempt can cost is held when it is rented: at its walltime, with the grace and the slack that an agent has to
end it. A job without a walltime is given the one that the rest of its caps pays for. So what is spent and held together never
passes a cap, in whatever order attempts end. A `BudgetCheck` lives for one cycle and counts what that cycle is about to hold: nothing
of it has to be undone.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from spillover.core.estimates import estimate
from spillover.core.events import PeriodRef
from spillover.core.jobs import Job, Kind
from spillover.core.state import State
from spillover.model.budget import Cap, Of
from spillover.model.cluster import PER_RATE, ClusterSpec, cost_of_job, egress_cost, rate_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reasons import OverBudget, OverMaxCost, Reason, TooDear
from spillover.model.units import DAY, FOREVER, MINUTE

LEAST: Final = MINUTE
"""Nanoseconds that a job without a walltime is rented for at the least: less is not worth starting it."""
LONGEST: Final = 3650 * DAY
"""Nanoseconds that it is given at the most."""
REFUSALS: Final = 64
"""Jobs of one lane that a cycle looks at in vain because of their caps."""
ALL_REFUSALS: Final = 1024
"""Jobs of all lanes likewise; from then on, one of each lane."""

Refusal: TypeAlias = OverMaxCost | OverBudget


class CostHold(Struct, frozen=True, array_like=True, gc=False):
    """What is to be held for a job that is rented."""

    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run; None if it has a walltime of its own, or needs none."""
    periods: tuple[PeriodRef, ...]


class BudgetCheck:
    """What the caps leave, with what one cycle is about to hold."""

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self._now = now
        self._taken: dict[str, int] = {}
        """Millionths by period that the cycle is about to hold."""
        self._refused: dict[Kind, int] = {}
        """Jobs that were refused, by lane."""
        self._refusals = 0
        self._known: dict[tuple[str, str], list[Cap]] = {}
        """Caps that were asked for, by project and user."""
        self.renews = FOREVER
        """When the first of those budgets begins anew that refused a job, nanoseconds UTC."""
        self.worth_a_look = False
        """Whether others of the lane that was given up last might be rented all the same: only so many are looked at."""

    def concerns(self, job: Job) -> bool:
        """Whether any cap limits what renting a job may cost."""
        return job.terms.max_cost is not None or bool(self._state.caps)

    def ask(self, job: Job, spec: ClusterSpec, expected: int | None) -> CostHold | Refusal | None:
        """What has to be held to rent a job there, or why it may not be; None if no cap concerns it.

        `expected` is how long it is expected to run; None if nobody knows.
        """
        caps = self._caps(job)
        shape, terms = job.kind.shape, job.terms
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
        paid = (left - egress_cost(spec.price, terms.data)) * PER_RATE // rate
        step = max(1, spec.billing.step)
        limit = min(LONGEST, paid // step * step - beyond)
        return CostHold(cost_of_job(spec, shape, limit + beyond, terms.data), limit, periods)

    def allows(self, job: Job, spec: ClusterSpec, expected: int | None) -> bool:
        """Whether the caps on a job let it be rented there."""
        answer = self.ask(job, spec, expected) if self.concerns(job) else None
        return answer is None or isinstance(answer, CostHold)

    def take(self, holding: CostHold) -> None:
        """Count what is about to be held."""
        for period in holding.periods:
            self._taken[period.key] = self._taken.get(period.key, 0) + holding.amount

    def refuse(self, job: Job, refusals: Iterable[Refusal]) -> None:
        """Note that a job may not be rented anywhere, for these reasons."""
        self._refused[job.kind] = self._refused.get(job.kind, 0) + 1
        self._refusals += 1
        for refusal in refusals:
            if isinstance(refusal, OverBudget):
                self.renews = min(self.renews, refusal.until)

    def gives_up(self, job: Job, specs: Iterable[ClusterSpec]) -> bool:
        """Whether no other job of a lane is worth a look: its project has nothing left, or too many were looked at.

        They are worth one once a budget begins anew that keeps them from being looked at, whatever refused this one.
        """
        caps = self._caps(job)
        least = min([cost_of_job(spec, job.kind.shape, WALLTIME_SLACK) for spec in specs], default=0)
        spent = [cap for cap in caps if cap.budget.of is Of.PROJECT and self.left(cap) < least]
        if self._refused.get(job.kind, 0) < REFUSALS and self._refusals < ALL_REFUSALS:
            caps = spent
            if not caps:
                return False
        self.worth_a_look = not spent
        self.renews = min([self.renews, *(cap.until for cap in caps)])
        return True

    def _caps(self, job: Job) -> list[Cap]:
        whose = job.kind.project, job.user
        caps = self._known.get(whose)
        if caps is None:
            caps = self._known[whose] = self._state.caps.on(*whose, self._now) if self._state.caps else []
        return caps

    def left(self, cap: Cap) -> int:
        """What a cap leaves, in millionths."""
        period = self._state.budget_periods.get(cap.key)
        used = period.spent + period.held if period is not None else 0
        return cap.budget.limit - used - self._taken.get(cap.key, 0)


class CycleBudgets:
    """A check at work in one cycle: what was asked last, and what is to be held for the cycle's placements."""

    def __init__(self, state: State, now: int) -> None:
        self._check = BudgetCheck(state, now)
        self.holding: CostHold | None = None
        """What has to be held for the job that is looked at, where it was found to have a place."""
        self.holds: list[tuple[int, CostHold]] = []
        """What is to be held for placements, by their position."""
        self.refusals: list[Refusal] = []
        """Why the job that is looked at may not be rented where there is room."""

    @property
    def renews(self) -> int:
        """When the first of those budgets begins anew that refused a job, nanoseconds UTC."""
        return self._check.renews

    @property
    def worth_a_look(self) -> bool:
        """Whether others of the lane that was given up last might be rented all the same: only so many are looked at."""
        return self._check.worth_a_look

    def may_pay(self, job: Job, spec: ClusterSpec) -> bool:
        """Whether the caps on a job let it run there; notes what to hold for it, or why they do not."""
        answer = self._check.ask(job, spec, estimate(job, 0).runtime)
        if answer is not None and not isinstance(answer, CostHold):
            self.refusals.append(answer)
            return False
        self.holding = answer
        return True

    def hold(self, position: int) -> None:
        """The job that was looked at is placed, at this position of the plan."""
        if self.holding is not None:
            self._check.take(self.holding)
            self.holds.append((position, self.holding))

    def goes_on(self, job: Job, specs: Iterable[ClusterSpec]) -> bool:
        """Whether those of a lane are looked at that are behind a job which its caps keep from being rented."""
        refusals, self.refusals = self.refusals, []
        self._check.refuse(job, refusals)
        return not self._check.gives_up(job, specs)


def too_dear(refusals: Iterable[tuple[ClusterName, Reason | None]]) -> TooDear | None:
    """Why a job that only these clusters could run never will; None if one of them might, once caps leave more."""
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
    """What is left of a budget, and held by a job that has no walltime, or would be."""

    whose: str
    """As `project vision`."""
    amount: int
    """Millionths."""


def held_rest(state: State, job: Job, now: int) -> BudgetRest | None:
    """Of which budget a job holds all that was left, as it has no walltime; None if it does not."""
    hold = job.extra.hold
    if hold is None or hold.limit is None:
        return None
    caps = [cap for cap in state.caps.on(job.kind.project, job.user, now) if cap.key in hold.periods]
    cap = min(caps, key=BudgetCheck(state, now).left, default=None)
    return None if cap is None else BudgetRest(_whose(cap), hold.amount)


def open_rest(state: State, job: Job, now: int) -> BudgetRest | None:
    """Of which budget a job would hold all that is left if it were rented now; None if it has a walltime, or no budget concerns it."""
    caps = state.caps.on(job.kind.project, job.user, now) if job.terms.walltime is None else []
    check = BudgetCheck(state, now)
    cap = min(caps, key=check.left, default=None)
    return None if cap is None else BudgetRest(_whose(cap), max(0, check.left(cap)))


def _whose(cap: Cap) -> str:
    return f"{cap.budget.of} {cap.name}"


def _spent(job: Job) -> int:
    """What earlier attempts cost; each member of an array has a limit of its own."""
    return 0 if job.extra.members is not None else job.cost


def _over(cap: Cap, job: Job, runs: int, needed: int, left: int) -> OverBudget:
    whose, per, limit = _whose(cap), cap.budget.per, cap.budget.limit
    terms = job.terms
    return OverBudget(
        whose, per, runs, needed, left, limit, cap.until, terms.grace, terms.walltime is not None
    )
