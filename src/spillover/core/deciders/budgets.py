"""Decides that a budget has reached a share of its limit, which people are told of once for each period."""

from collections.abc import Iterable
from typing import Final

from spillover.core.events import AnyEvent, BudgetReached
from spillover.core.proposals import Done, LookAtBudgets, Reply
from spillover.core.records.money import BudgetPeriod
from spillover.core.state import State
from spillover.model.ids import ClusterName

SHARES: Final = (100, 80)
"""Percent of a limit that are told, the highest first."""
_FULL: Final = 99
"""Percent from which on a budget counts as used up: what is left rarely pays for another job."""


def look(state: State, proposal: LookAtBudgets, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record the shares that budgets have reached and that were not told yet."""
    events: list[AnyEvent] = []
    for key in dict.fromkeys(proposal.keys):
        period = state.budget_periods.get(key)
        if period is None or (limit := limit_of(state, key)) is None:
            continue
        if (percent := untold(period, limit)) is not None:
            events.append(BudgetReached(key, now, percent, period.spent, period.held, limit))
    return events, Done()


def to_tell(state: State, now: int) -> Iterable[str]:
    """Yield the keys of present budget periods that have reached a share that was not told yet."""
    for key, period in state.budget_periods.items():
        limit = limit_of(state, key) if period.until > now else None
        if limit is not None and untold(period, limit) is not None:
            yield key


def untold(period: BudgetPeriod, limit: int) -> int | None:
    """Return the share that a budget has reached, in percent, unless it was told of this limit; None if none is new."""
    used, told = period.spent + period.held, period.told if period.told_of == limit else 0
    for share in SHARES:
        if share <= told:
            return None
        if used > 0 and used * 100 >= min(share, _FULL) * limit:
            return share
    return None


def limit_of(state: State, key: str) -> int | None:
    """Return the present limit of a budget period, in millionths; None if its budget is gone."""
    of, name, per, _ = key.split("/")
    if of != "pool":
        return state.caps.limit(of, name, per)
    spec = state.clusters.get(ClusterName(name))
    budget = None if spec is None or spec.pool is None else spec.pool.budget
    return None if budget is None or budget.per != per else budget.limit
