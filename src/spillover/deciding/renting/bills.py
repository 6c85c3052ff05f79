"""Computes what jobs add to the bills of rented machines.

Many machines have equal bills: those that were made together and have tasks until the same time. Each bill is computed
once for all of them. In order to find the machine to whose bill a job adds least, without computing all of them, a bill
also tells until when nothing is added. After that, each nanosecond adds at least the price of a nanosecond.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from spillover.core.records.machines import HOUR_RATE, RentedMachine
from spillover.core.state import State
from spillover.deciding.renting.giving_back import empty_for, leaves_at
from spillover.model.cluster import PER_RATE, ClusterSpec, billed
from spillover.model.ids import ClusterName
from spillover.model.pools import Pool
from spillover.model.units import FOREVER

MOST_ENDS: Final = 32
"""The most ends of jobs for which a bill remembers what they add."""


class Bill:
    """What is paid for machines that have tasks until a time, and what further jobs add."""

    __slots__ = (
        "_bills",
        "_machine",
        "_more",
        "_paid",
        "_pool",
        "_spec",
        "busy",
        "free_until",
        "hour",
        "key",
    )

    def __init__(
        self, bills: "Bills", spec: ClusterSpec, pool: Pool, machine: RentedMachine, busy: int
    ) -> None:
        self._bills = bills
        self._spec = spec
        self._pool = pool
        self._machine = machine
        """One of them."""
        self.busy = busy
        """Until when they have tasks, nanoseconds UTC; FOREVER if the pool keeps them in any case."""
        self.hour = machine.offer.hour
        self._paid, self.free_until = self._look()
        self._more: dict[int, int] = {}
        """What jobs add, by when they would end: many run for the same time."""

    def adds(self, end: int) -> int:
        """Return what a job that ends at a time adds, in millionths, if no other job uses the time that is not paid anyway."""
        if end <= self.busy:
            return 0
        more = self._more.get(end)
        if more is None:
            if len(self._more) >= MOST_ENDS:
                self._more.clear()
            more = self._more[end] = max(0, self._billed(end) - self._paid)
        return more

    def least(self, end: int) -> int:
        """Return the least that a job adds, without computing the bill."""
        return self.hour * HOUR_RATE * (end - self.free_until) // PER_RATE - 1

    def _billed(self, busy: int) -> int:
        """Return what a machine costs if it has tasks until a time, and then stays as long as empty ones do."""
        return self._machine.bill(self._spec.billing, self._gone(busy))

    def _gone(self, busy: int) -> int:
        known = self._bills
        leaves = leaves_at(known.state, self._spec, self._pool, self._machine, busy, known.now, known.boots)
        return max(known.now, leaves)

    def _look(self) -> tuple[int, int]:
        """Return what is paid if no job comes, and until when a job may end that adds nothing, nanoseconds UTC."""
        made, billing = self._machine.made_at, self._spec.billing
        if made is None or self.busy >= FOREVER:
            return 0, FOREVER
        gone = self._gone(self.busy)
        empty = empty_for(self._pool, billing, self._bills.boot(self._spec, self._pool, self._machine))
        free = made + billed(billing, gone - made) - empty
        return self._machine.bill(billing, gone), max(self.busy, free)


class Bills:
    """The bills of one cycle."""

    def __init__(self, state: State, now: int) -> None:
        self.state = state
        self.now = now
        self.boots: dict[int, int] = {}
        """Boot times by the identity of the offer."""
        self._known: dict[tuple[ClusterName, int, int, int | None, int], Bill] = {}

    def boot(self, spec: ClusterSpec, pool: Pool, machine: RentedMachine) -> int:
        """Return the boot time of a machine's offer in nanoseconds."""
        boot = self.boots.get(id(machine.offer))
        if boot is None:
            boot = self.boots[id(machine.offer)] = self.state.pool(spec.name).boot(pool, machine.offer.key)
        return boot

    def of(self, spec: ClusterSpec, pool: Pool, machine: RentedMachine, busy: int) -> Bill:
        """Return the bill of a machine that has tasks until a time."""
        key = spec.name, machine.offer.hour, self.boot(spec, pool, machine), machine.made_at, busy
        bill = self._known.get(key)
        if bill is None:
            bill = self._known[key] = Bill(self, spec, pool, machine, busy)
        return bill


class Best(NamedTuple):
    """A machine to whose bill a job adds least."""

    adds: int
    score: int
    machine: int
    """Its index."""


class Ladder:
    """The machines of a cluster by their bills: those first on which jobs add nothing for longest."""

    def __init__(self) -> None:
        self._machines: dict[Bill, dict[int, None]] = {}
        """Indexes of machines."""
        self._orders: dict[int, list[tuple[int, int, Bill]]] = {}
        """By the price of an hour: until when nothing is added, later times first, and the bill."""
        self._bill: dict[int, Bill] = {}

    def put(self, index: int, bill: Bill) -> None:
        """Set the bill of a machine."""
        before = self._bill.get(index)
        if before is bill:
            return
        if before is not None:
            self._drop(index, before)
        self._bill[index] = bill
        machines = self._machines.get(bill)
        if machines is None:
            machines = self._machines[bill] = {}
            insort(self._orders.setdefault(bill.hour, []), (-bill.free_until, id(bill), bill))
        machines[index] = None

    def _drop(self, index: int, bill: Bill) -> None:
        machines = self._machines[bill]
        del machines[index]
        if not machines:
            del self._machines[bill]
            order = self._orders[bill.hour]
            del order[bisect_left(order, (-bill.free_until, id(bill)))]

    def best(
        self, end: int, scores: Mapping[int, int], closed: Collection[int], best: Best | None
    ) -> Best | None:
        """Return the machine to whose bill a job that ends at a time adds least, of those with a score that are not closed.

        The score decides between equals, and then the index. `best` is the best that is known already.
        """
        for order in self._orders.values():
            for _, _, bill in order:
                if best is not None and end > bill.free_until and bill.least(end) > best.adds:
                    break
                indexes = self._machines[bill]
                found = [(scores[each], each) for each in indexes if each in scores and each not in closed]
                if found:
                    place = Best(bill.adds(end), *min(found))
                    best = place if best is None else min(best, place)
        return best
