"""What the budget of a pool holds for its machines, so that what is paid never exceeds it.

A machine is ordered only if the budget pays for its boot, for the work it is ordered for and for the idle time after that,
in whole billing steps. While it stays longer, the hold is extended in time; if the budget does not allow that, the machine
ends before the hold does.
"""

from typing import Final

from spillover.core.events import MachineHeld, PeriodRef
from spillover.core.records.machines import RentedMachine, machine_cost
from spillover.core.state import State
from spillover.deciding.renting.offers import OpenOffer
from spillover.model.budget import period_of
from spillover.model.cluster import Billing, ClusterSpec, billed
from spillover.model.pools import MachineId, MachineState, Offer
from spillover.model.units import MINUTE, SECOND

AHEAD: Final = 10 * MINUTE
"""For how long a hold is extended at a time, at least."""
ENDING: Final = MINUTE
"""How long before the end of what is held a machine must begin to end, so that it is gone by then."""
LATE: Final = 10 * SECOND
"""How long before the end of its hold a machine that should be gone, and is not, gets another one."""


class PoolMoney:
    """What the budget of one pool leaves after the holds of this plan."""

    def __init__(self, state: State, spec: ClusterSpec, now: int) -> None:
        self._now = now
        self._billing: Billing = spec.billing
        self.period: PeriodRef | None = None
        """The present budget period; None if the pool has no budget."""
        self.left = 0
        """Millionths that the budget leaves."""
        budget = None if spec.pool is None else spec.pool.budget
        if budget is not None and spec.pool is not None:
            period = period_of(budget.per, now)
            key = f"pool/{spec.name}/{budget.per}/{period.label}"
            known = state.budget_periods.get(key)
            self.period = PeriodRef(key, period.until)
            self.left = budget.limit - (0 if known is None else known.spent + known.held)

    def pays(self, offer: OpenOffer, machines: int, stays: int) -> bool:
        """Return whether the budget pays for machines that do this much work."""
        return self.period is None or machines * self._first(offer, stays)[0] <= self.left

    def take(self, offer: OpenOffer, machines: int, stays: int) -> None:
        """Count what machines hold that are to be ordered."""
        if self.period is not None:
            self.left -= machines * self._first(offer, stays)[0]

    def hold(self, machine: MachineId, offer: OpenOffer, stays: int) -> MachineHeld | None:
        """Return the first hold of a machine; None without a budget."""
        if self.period is None:
            return None
        amount, time = self._first(offer, stays)
        return MachineHeld(machine, amount, self._now + time, self.period)

    def extend(self, machine: RentedMachine) -> MachineHeld | None:
        """Return a further hold for a machine whose hold ends soon, if the budget pays for it; None otherwise.

        A machine that the provider does not destroy costs something whether the budget pays for it or not. It is held
        all the same, so that nothing is ordered with that money.
        """
        if self.period is None or machine.held_until > self._now + _ahead_of(machine):
            return None
        amount, until = self._further(machine)
        amount = max(0, amount)
        if amount > self.left and machine.state is not MachineState.ENDING:
            return None
        self.left -= amount
        return MachineHeld(machine.id, amount, until, self.period)

    # --- whole clusters

    def pays_cluster(
        self, machine: RentedMachine, offer: OpenOffer, before: MachineHeld | None = None
    ) -> bool:
        """Return whether the budget pays for a whole cluster with these nodes, which this plan may have held for before."""
        return self.period is None or self._needs(machine, offer)[0] <= self.left + _amount(before)

    def hold_cluster(
        self, machine: RentedMachine, offer: OpenOffer, before: MachineHeld | None = None
    ) -> MachineHeld | None:
        """Return what is held for a whole cluster instead of what this plan held before; None without a budget."""
        if self.period is None:
            return None
        amount, until = self._needs(machine, offer)
        self.left += _amount(before) - max(0, amount)
        return MachineHeld(machine.id, max(0, amount), until, self.period)

    def _needs(self, machine: RentedMachine, offer: OpenOffer) -> tuple[int, int]:
        """Return what must be held for a whole cluster, in millionths, and until when that pays, nanoseconds UTC."""
        if machine.holds:
            return self._further(machine)
        until = self._now + first_held(self._billing, offer.boot)
        return machine.bill_since(self._now, self._billing, until), until

    def _further(self, machine: RentedMachine) -> tuple[int, int]:
        """Return what must be held besides what is held, in millionths, and until when that pays, nanoseconds UTC."""
        began = machine.wanted_at if machine.made_at is None else machine.made_at
        paid = billed(self._billing, max(0, machine.held_until - began))
        ahead = ENDING if machine.state is MachineState.ENDING else AHEAD
        until = began + billed(self._billing, max(paid, self._now - began) + ahead)
        held = sum([each.amount for each in machine.holds]) + machine.cost
        return machine.bill_since(began, self._billing, until) - held, until

    # --- time

    def runs_out(self, machine: RentedMachine) -> bool:
        """Return whether a machine must end now, because the budget does not pay for it any longer."""
        return self.period is not None and machine.held_until <= self._now + ENDING

    def next_look(self, machine: RentedMachine) -> int:
        """Return when the hold of a machine must be extended or, if the budget does not allow that, the machine ends."""
        extend = machine.held_until - _ahead_of(machine)
        return extend if extend > self._now else machine.held_until - ENDING

    def _first(self, offer: OpenOffer, stays: int) -> tuple[int, int]:
        """Return what a new machine holds, in millionths, and for how many nanoseconds that pays."""
        time = first_held(self._billing, offer.boot, stays)
        return self._cost(offer.offer, time), time

    def _cost(self, offer: Offer, time: int) -> int:
        return machine_cost(offer, self._billing, time)


def _ahead_of(machine: RentedMachine) -> int:
    """Return how long before the end of its hold a machine gets another one."""
    return LATE if machine.state is MachineState.ENDING else AHEAD // 2 + ENDING


def _amount(hold: MachineHeld | None) -> int:
    return 0 if hold is None else hold.amount


def first_held(billing: Billing, boot: int, stays: int = 0) -> int:
    """Return for how long a pool holds money when it orders a machine that works for a time, as that is billed."""
    return billed(billing, 2 * boot + stays + AHEAD)
