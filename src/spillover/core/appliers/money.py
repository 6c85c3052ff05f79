"""Money that is held while a job runs on rented capacity, and settled when its attempt is over.

A hold belongs to the periods in which it was made, and what the attempt cost in the end is spent in those.
"""

from msgspec.structs import replace

from spillover.core.events import BudgetsConfigured, CostHeld
from spillover.core.jobs import Job, Placed, Running
from spillover.core.money import BudgetPeriod, Hold, Paid
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model.budget import Caps


def budgets(state: State, event: BudgetsConfigured) -> None:
    """Other caps, which may leave more than before. What was spent and held under the same key still counts."""
    state.facts.budgets = event.budgets
    state.caps = Caps(event.budgets)
    state.touch_facts()
    state.loosened = True


def held(state: State, event: CostHeld) -> None:
    """A job that was just rented holds what it can cost."""
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
    """An attempt is over, and all attempts of its job have cost so much: let its hold go, and book what it cost."""
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
    """Remember what an attempt cost that is not the last, and where; of the last one the phase tells."""
    phase = job.phase
    if cost > job.cost and isinstance(phase, Placed | Running):
        paid = (*job.extra.paid, Paid(at, phase.cluster, cost - job.cost))
        job.extra = replace(job.extra, paid=paid)


def _forget_old(state: State, now: int) -> None:
    """Drop periods of periods that are over, unless something is held in them."""
    for key in [
        key for key, period in state.budget_periods.items() if period.until <= now and not period.held
    ]:
        del state.budget_periods[key]
        state.touch_budget_period(key)
