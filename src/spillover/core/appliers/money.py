"""Applies cost holds: made when a job is rented, settled when its attempt ends.

A hold belongs to the budget periods in which it was made. The final cost of the attempt counts in the same periods.
"""

from msgspec.structs import replace

from spillover.core.events import BudgetReached, BudgetsConfigured, CostHeld
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.money import BudgetPeriod, Hold, Paid
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model.budget import Caps


def budgets(state: State, event: BudgetsConfigured) -> None:
    """Replace the budgets, which may leave more than before. Amounts under the same keys still count."""
    state.facts.budgets = event.budgets
    state.caps = Caps(event.budgets)
    state.touch_facts()
    state.loosened = True


def reached(state: State, event: BudgetReached) -> None:
    """Record which share of a budget was told."""
    period = state.budget_periods[event.key]
    period.told, period.told_of = event.percent, event.limit
    state.touch_budget_period(event.key)


def held(state: State, event: CostHeld) -> None:
    """Hold the cost of a job that was just rented."""
    job = state.jobs.get(event.job)
    if job is None or not isinstance(job.phase, Placed) or job.extra.hold is not None:
        raise Impossible(f"CostHeld on {job or event.job!r}: {event!r}")
    keys = tuple([each.key for each in event.periods])
    job.extra = replace(job.extra, hold=Hold(event.amount, event.limit, keys))
    state.touch_job(job.id)
    for each in event.periods:
        period = state.budget_periods.get(each.key)
        if period is None:
            _forget_old(state, event.at)
            period = state.budget_periods[each.key] = BudgetPeriod(each.key, each.until)
        period.held += event.amount
        state.touch_budget_period(each.key)


def settle(state: State, job: Job, cost: int, at: int) -> None:
    """Release the hold of an attempt that ended, and record its cost; `cost` is that of all attempts."""
    hold = job.extra.hold
    if hold is None:
        return
    job.extra = replace(job.extra, hold=None)
    spent = cost - job.cost
    over = max(0, spent - hold.amount)
    if over:
        state.facts.overruns += 1
        state.touch_facts()
    for key in hold.periods:
        period = state.budget_periods[key]
        period.held -= hold.amount
        period.spent += spent
        period.over += over
        if not period.held and period.until <= at:
            del state.budget_periods[key]
        state.touch_budget_period(key)
    state.loosened = True


def note(job: Job, cost: int, at: int) -> None:
    """Record the cost and cluster of an attempt that is not the last; the phase has those of the last one."""
    phase = job.phase
    if cost > job.cost and isinstance(phase, Placed | Running):
        paid = (*job.extra.paid, Paid(at, phase.cluster, cost - job.cost))
        job.extra = replace(job.extra, paid=paid)


def _forget_old(state: State, now: int) -> None:
    """Drop past periods, unless something is held in them."""
    for key in [
        key for key, period in state.budget_periods.items() if period.until <= now and not period.held
    ]:
        del state.budget_periods[key]
        state.touch_budget_period(key)
