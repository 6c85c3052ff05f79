"""Simulated pools: machines that boot, fail to boot, are refused, and are taken back, as the study says.

Nothing here decides. The engine orders and ends machines with the code of the live server. What happens to each machine
follows from the seed of the study and the id of the machine.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from spillover.core.events import AnyEvent, MachineGone, MachineRefused, MachinesEnding, MachinesWanted, Wish
from spillover.core.pool_proposals import SeeGone, SeeMade, SeeNotice, SeeRefused
from spillover.core.proposals import Proposal, Register
from spillover.core.records.machines import MachineBill
from spillover.core.state import State
from spillover.model.ids import ClusterName, NodeName
from spillover.model.pools import MachineId, Offer, OfferKey, Pool, RefusalCause
from spillover.model.units import FOREVER, HOUR, MONEY, SECOND
from spillover.sim.dice import dice_of

NOTICE: Final = 120 * SECOND
"""How long before its end a provider announces that it takes a machine back."""
_SPREAD: Final = 0.25
"""Standard deviation of the logarithm (base 2) of boot times."""
_P90: Final = 1.2815515655446004
"""How many standard deviations nine of ten values are below."""


class Boots(Struct, frozen=True):
    """How long machines of an offer boot, in nanoseconds."""

    half: int
    """Half of them are ready by then."""
    late: int
    """Nine of ten are; if that is the same, boots vary as those of pools do of which nothing is known."""


class SimulatedPool(Struct, frozen=True):
    """A pool, and how its provider behaves."""

    pool: Pool
    fail: float = 0.0
    """Share of the machines that never join."""
    scarce: float = 0.0
    """Share of the hours in which a zone has no more machines of a market."""
    hazard: float = 0.0
    """How many times in an hour a spot machine is taken back, on average."""
    seed: int = 0
    to_end: int = 5 * SECOND
    """Nanoseconds from the request to destroy a machine until it costs nothing."""
    boots: dict[OfferKey, Boots] = {}
    """How long machines boot, by their offer; those of others take the time of the pool."""

    def boot(self, offer: Offer, dice: Random) -> int:
        """Return how long a machine boots, in nanoseconds."""
        known = self.boots.get(offer.key) or Boots(self.pool.boot, self.pool.boot)
        spread = math.log2(known.late / known.half) / _P90 if known.late > known.half > 0 else _SPREAD
        return round(known.half * 2 ** dice.gauss(0.0, spread))


class PoolNumbers(Struct, frozen=True):
    """What the machines of a simulated pool cost, and for what. Amounts are in the currency of the prices."""

    machines: int
    refused: int
    """Orders that the provider refused."""
    paid: float
    paid_hours: float
    useful_hours: float
    """Machine hours that completed work paid for."""
    boot_hours: float
    idle_hours: float
    interrupted_hours: float
    """Machine hours of attempts that the end of their machine interrupted."""


def together(pools: Iterable[PoolNumbers]) -> PoolNumbers | None:
    """Return what the machines of several pools cost together; None if there is no pool."""
    found = [astuple(each) for each in pools]
    return PoolNumbers(*[sum(values) for values in zip(*found, strict=True)]) if found else None


class SimulatedProvider:
    """Answers the orders of one pool on the virtual clock."""

    def __init__(self, cluster: ClusterName, pool: SimulatedPool, incarnation: int) -> None:
        self._cluster = cluster
        self._pool = pool
        self._incarnation = incarnation
        """The last incarnation that was given to an agent."""
        self._due: list[tuple[int, int, Proposal]] = []
        """Heap of time, number, and what is observed then."""
        self._numbers = 0
        self._wishes: dict[MachineId, Wish] = {}
        self._made = self._refused = self._paid = 0
        self._hours = dict.fromkeys(("paid", "boot", "useful", "interrupted", "idle"), 0.0)

    def next_time(self) -> int:
        """Return when something is observed next; FOREVER if nothing will."""
        return self._due[0][0] if self._due else FOREVER

    def observe(self, now: int) -> list[Proposal]:
        """Return what is observed by now."""
        seen: list[Proposal] = []
        while self._due and self._due[0][0] <= now:
            seen.append(heapq.heappop(self._due)[2])
        return seen

    def carry_out(self, events: Sequence[AnyEvent]) -> None:
        """Begin what the plan wants, and count what it cost."""
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)

    def numbers(self) -> PoolNumbers:
        """Return what all machines cost that are gone, or were there in the end."""
        hours = self._hours
        return PoolNumbers(
            self._made,
            self._refused,
            self._paid / MONEY,
            hours["paid"],
            hours["useful"],
            hours["boot"],
            hours["idle"],
            hours["interrupted"],
        )

    def count_live(self, state: State, name: ClusterName, now: int) -> None:
        """Count what machines cost that are there when the simulation ends, such as those that are always there."""
        billing = next(each.billing for each in state.facts.clusters if each.name == name)
        for machine in state.live_machines(name):
            bill = machine.bill_parts(billing, now)
            if self._wishes.pop(machine.id, None) is not None:
                self._count(machine.offer, bill)

    def _count(self, offer: Offer, bill: MachineBill) -> None:
        self._made += 1
        self._paid += bill.paid
        for name in self._hours:
            self._hours[name] += getattr(bill, name) / offer.hour if offer.hour else 0.0

    def _at(self, time: int, seen: Proposal) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (time, self._numbers, seen))

    def _wanted(self, event: MachinesWanted) -> None:
        pool, now = self._pool, event.at
        for wish in event.wishes:
            offer, machine = wish.offer, wish.machine
            hour = now // HOUR
            if (
                pool.scarce
                and dice_of(pool.seed, f"{offer.zone} {offer.market} {hour}").random() < pool.scarce
            ):
                self._at(now, SeeRefused(self._cluster, machine, RefusalCause.CAPACITY, "no capacity"))
                continue
            self._wishes[machine] = wish
            dice = dice_of(pool.seed, f"machine {machine}")
            boot = pool.boot(offer, dice)
            self._at(now, SeeMade(self._cluster, machine, f"sim-{machine}", now))
            if dice.random() < pool.fail:
                continue
            self._at(now + boot, self._registration(wish))
            if offer.spot and pool.hazard:
                taken = now + boot + round(dice.expovariate(pool.hazard) * HOUR)
                self._at(max(now + boot, taken - NOTICE), SeeNotice(self._cluster, machine, taken))
                self._at(taken, SeeGone(self._cluster, machine, "taken back", interrupted=True))

    def _registration(self, wish: Wish) -> Register:
        self._incarnation += 1
        return Register(
            self._cluster,
            NodeName(wish.machine),
            self._incarnation,
            wish.offer.resources,
            wish.offer.words,
            wish.offer.agent_labels,
            0,
            (),
        )

    def _ending(self, event: MachinesEnding) -> None:
        for machine in event.machines:
            self._at(event.at + self._pool.to_end, SeeGone(self._cluster, machine))

    def _gone(self, event: MachineGone) -> None:
        wish = self._wishes.pop(event.machine, None)
        if wish is not None:
            bill = MachineBill(event.paid, event.boot, event.useful, event.interrupted, event.idle)
            self._count(wish.offer, bill)

    def _counted(self, event: MachineRefused) -> None:
        del event
        self._refused += 1


_HANDLERS: dict[type, Callable[[SimulatedProvider, Any], None]] = {
    MachinesWanted: SimulatedProvider._wanted,  # noqa: SLF001 - in the same module
    MachinesEnding: SimulatedProvider._ending,  # noqa: SLF001
    MachineGone: SimulatedProvider._gone,  # noqa: SLF001
    MachineRefused: SimulatedProvider._counted,  # noqa: SLF001
}
