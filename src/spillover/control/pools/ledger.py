"""Tells which calls to the provider of a pool are due, and takes in their answers. Pure.

The state says which machines are wanted and which are to be ended. The ledger remembers what is not in the state: which
calls were made, what was answered, and what the last listings showed. A server that restarts does not know that, so it
lists before it repeats an order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spillover.control.pools.comparing import APART, Compared, Comparison, Seen
from spillover.control.pools.knowledge import Knowledge, Size
from spillover.control.pools.pace import Pace
from spillover.core.pool_proposals import SeeGone, SeeMade, SeeRefused
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.deciding.renting.clusters import dropping
from spillover.model.backoff import pause_after
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, MachineState
from spillover.model.units import FOREVER, MINUTE, SECOND
from spillover.ports.provider import Created, Listing, Made, NotNow, Refused, Unknown

AT_ONCE: Final = 8
"""The most orders at a time."""
BATCH: Final = 50
"""The most machines that one call destroys."""
GRACE: Final = 30 * SECOND
"""Nanoseconds that tasks have to stop before their machine is destroyed."""
CALM: Final = MINUTE
"""Nanoseconds between two listings while nothing happens."""
BUSY: Final = 30 * SECOND
"""The same while machines are expected or ending."""
SOON: Final = SECOND
"""Nanoseconds after which a listing may show that a machine is gone."""
PRICED: Final = 5 * MINUTE
"""Nanoseconds between two looks at spot prices."""
_MOVING: Final = (MachineState.WANTED, MachineState.BOOTING, MachineState.ENDING)


class PoolCalls(Struct):
    """What to propose, and what to ask the provider for."""

    proposals: list[Seen] = field(default_factory=list)
    creates: list[RentedMachine] = field(default_factory=list)
    destroys: list[str] = field(default_factory=list)
    """The provider's ids."""
    opens: list[RentedMachine] = field(default_factory=list)
    """Whole clusters that answer, and must be asked how to connect to them."""
    sizes: list[tuple[RentedMachine, Size]] = field(default_factory=list)
    """Whole clusters with the nodes that they are to have."""
    lists: bool = False
    prices: bool = False
    again: int = FOREVER
    """When to look again if nothing happens, on the monotonic clock."""


class PoolLedger:
    """Tracks the calls for one pool. All its times are on the monotonic clock."""

    def __init__(
        self, cluster: ClusterName, owner: str, can_open: Callable[[str], bool] | None = None
    ) -> None:
        self.cluster = cluster
        self.owner = owner
        self._can_open = can_open
        """Returns whether this server can open a cluster with an entry in spill.yaml; None if the pool has machines."""
        self.creating = Pace(AT_ONCE)
        self.listing = Pace(1)
        self.destroying = Pace(1)
        self.pricing = Pace(1)
        self.unwanted: dict[str, int] = {}
        """When listings began that first showed machines which are ours and unwanted, by the provider's id."""
        self.refusals: dict[str, str] = {}
        """Why machines were not destroyed when that was last tried, by the provider's id."""
        self._known: dict[MachineId, Knowledge] = {}
        self._ours: set[MachineId] = set()
        """Machines that this server wanted and that are not known yet."""
        self._stopped: dict[str, Knowledge] = {}
        """Machines of ours that do not run any more, but still exist, by the provider's id."""
        self._tell: dict[MachineId, Seen] = {}
        """Answers that are not in the state yet."""
        self._began: int | None = None
        """When the last listing began; None before the first."""
        self._whole = True
        """Whether it was whole."""
        self._listed = False
        """Whether there was a listing."""
        self._doubted = False
        """Whether an agent was lost since the last listing began."""
        self._priced: int | None = None
        """When spot prices were last asked for."""

    # --- what is due

    def due(self, state: State, now: int, monotonic: int) -> PoolCalls:
        """Return what is due; everything in the state must be durable."""
        calls = PoolCalls()
        machines = self._adopt(state)
        calls.proposals += self._tell.values()
        calls.proposals += [
            each for machine in machines if (each := self._never_ordered(machine)) is not None
        ]
        self._find_creates(state, machines, now, monotonic, calls)
        self._find_destroys(state, machines, now, monotonic, calls)
        self._find_clusters(state, machines, monotonic, calls)
        self._at(calls, max(self._list_at(machines), self.listing.after), monotonic)
        calls.lists = self._list_at(machines) <= monotonic and self.listing.room(monotonic) > 0
        spec = state.clusters.get(self.cluster)
        if spec is not None and spec.pool is not None and any(each.spot for each in spec.pool.offers):
            due = 0 if self._priced is None else self._priced + PRICED
            calls.prices = due <= monotonic and self.pricing.room(monotonic) > 0
            self._at(calls, max(due, self.pricing.after), monotonic)
        return calls

    def _is_connected(self, state: State, machine: RentedMachine) -> bool:
        """Return whether the server knows how to connect to a whole cluster. If it does not answer, that may have changed."""
        record = state.lives.get(machine.cluster_made)
        if record is None or (self._can_open is not None and not self._can_open(record.form)):
            return False
        return state.health(machine.cluster_made) not in {ClusterHealth.DEGRADED, ClusterHealth.FAILED}

    def _adopt(self, state: State) -> list[RentedMachine]:
        """Return the machines that exist or may exist; note new ones, and forget those that are gone."""
        machines = state.live_machines(self.cluster)
        live = {each.id: None for each in machines}
        for gone in [id_ for id_, known in self._known.items() if id_ not in live and not known.asking]:
            del self._known[gone]
        for machine in machines:
            if machine.id not in self._known:
                # Only the leader orders machines. So nobody has asked for those that this one wanted itself, while an
                # earlier server may have asked for the others.
                sure = machine.id in self._ours and machine.state is MachineState.WANTED
                self._known[machine.id] = Knowledge(sure)
        self._ours.clear()
        return machines

    def _never_ordered(self, machine: RentedMachine) -> SeeGone | None:
        """Return that a machine is gone which nobody asked for; None otherwise."""
        known = self._known[machine.id]
        if machine.state is not MachineState.ENDING or not known.sure or known.asking:
            return None
        return SeeGone(self.cluster, machine.id)

    def _find_creates(
        self, state: State, machines: Sequence[RentedMachine], now: int, monotonic: int, calls: PoolCalls
    ) -> None:
        """Add the machines to order now."""
        room = self.creating.room(monotonic)
        for machine in machines:
            if not may_order(state, machine, now):
                continue
            known = self._known[machine.id]
            if known.asking or machine.id in self._tell or known.is_given_up:
                continue
            if not known.sure and not known.tries and not self._listed:
                continue  # an earlier server may have ordered it; the listing wakes the caller
            if known.again > monotonic or room <= 0:
                self._at(calls, max(known.again, self.creating.after), monotonic)
                continue
            calls.creates.append(machine)
            room -= 1

    def _find_clusters(
        self, state: State, machines: Sequence[RentedMachine], monotonic: int, calls: PoolCalls
    ) -> None:
        """Add the whole clusters to connect to, and those to tell how many nodes they are to have."""
        for machine in machines:
            known = self._known[machine.id]
            if not machine.is_cluster or machine.state is MachineState.ENDING or not known.answers:
                continue
            if not known.opening and not self._is_connected(state, machine):
                if known.open_after > monotonic:
                    self._at(calls, known.open_after, monotonic)
                else:
                    calls.opens.append(machine)
            wanted = Size(machine.nodes, dropping(state, machine))
            if known.sizing or known.size == wanted:
                continue
            if known.size_after > monotonic:
                self._at(calls, known.size_after, monotonic)
            else:
                calls.sizes.append((machine, wanted))

    def _find_destroys(
        self, state: State, machines: Sequence[RentedMachine], now: int, monotonic: int, calls: PoolCalls
    ) -> None:
        """Add the machines to destroy now."""
        due: list[str] = []
        for machine in machines:
            known = self._known[machine.id]
            if machine.state is not MachineState.ENDING or not machine.provider_id or known.ending:
                continue
            wait = max(0, _grace_ends(state, machine) - now)
            if wait or known.end_after > monotonic:
                self._at(calls, max(known.end_after, monotonic + wait), monotonic)
            else:
                due.append(machine.provider_id)
        for id_, known in self._stopped.items():
            if known.ending or known.end_after > monotonic:
                self._at(calls, FOREVER if known.ending else known.end_after, monotonic)
            elif id_ not in due:
                due.append(id_)
        if due and self.destroying.room(monotonic):
            calls.destroys = due[:BATCH]
        elif due:
            self._at(calls, self.destroying.after, monotonic)

    def _list_at(self, machines: Sequence[RentedMachine]) -> int:
        """Return when the next listing is due."""
        last = self._began
        if last is None:
            return 0
        busy = any(each.state in _MOVING for each in machines)
        soon = min([self._confirm_at(each, last) for each in machines], default=FOREVER)
        if any(each.is_cluster and each.state is MachineState.BOOTING for each in machines):
            soon = min(soon, last + APART)  # only a listing tells that a cluster answers
        if self.unwanted or self._doubted:
            soon = min(soon, last + APART)
        if not self._whole:  # another one so soon would hardly be
            soon = max(soon, last + BUSY)
        return min(soon, last + (BUSY if busy else CALM))

    def _confirm_at(self, machine: RentedMachine, last: int) -> int:
        """Return when a listing is of use for a machine; FOREVER if a regular one will do."""
        known = self._known[machine.id]
        if known.missed is not None:
            return max(last, known.missed) + APART
        if known.destroyed is not None and machine.state is MachineState.ENDING:
            if last <= known.destroyed:
                return known.destroyed + SOON
            return last + APART if last < known.destroyed + 3 * APART else FOREVER
        unsure = not known.sure and not known.asking and not machine.provider_id
        if unsure and (known.is_given_up or machine.state is MachineState.ENDING):
            return max(last + APART, known.answered + SOON)
        return FOREVER

    def _at(self, calls: PoolCalls, at: int, monotonic: int) -> None:
        """Look again at a time, if that is in the future: what is due now is either done, or waits for an answer."""
        if at > monotonic:
            calls.again = min(calls.again, at)

    # --- what was done

    def wanted(self, machines: Iterable[MachineId]) -> None:
        """Record that the plan of this server wants machines; the state has them durably, and nobody has asked for them."""
        self._ours.update(machines)

    def told(self, proposals: Sequence[object]) -> None:
        """Forget answers that are in the state now."""
        for machine in [id_ for id_, each in self._tell.items() if each in proposals]:
            del self._tell[machine]

    def resume(self) -> None:
        """Forget calls that were cancelled with the previous run; their outcome is unknown."""
        for known in (*self._known.values(), *self._stopped.values()):
            if known.asking:
                known.asking, known.sure = False, False
            known.ending = known.opening = known.sizing = False
        for pace in (self.creating, self.listing, self.destroying, self.pricing):
            pace.flying = 0

    def known_of(self, machine: MachineId) -> Knowledge:
        """Return a copy of what is known about a machine."""
        known = self._known.get(machine)
        return Knowledge(sure=False) if known is None else replace(known)

    def sweep(self) -> None:
        """List as soon as possible."""
        self._began = None

    def doubt(self) -> None:
        """List soon, because an agent does not answer any more: its machine may be gone."""
        self._doubted = True

    def asking(self, machine: MachineId) -> None:
        """Record that an order is being sent."""
        self._known[machine].asking = True
        self.creating.began()

    def not_asked(self, machine: MachineId) -> None:
        """Record that an order was not sent after all."""
        self._known[machine].asking = False
        self.creating.withdrawn()

    def answered(self, machine: MachineId, answer: Created, monotonic: int) -> None:
        """Take in the answer to an order."""
        known = self._known[machine]
        known.asking, known.answered = False, monotonic
        match answer:
            case Made():
                known.sure = False
                self._tell[machine] = SeeMade(self.cluster, machine, answer.id, answer.at)
                self.creating.worked()
            case Refused():
                self._tell[machine] = SeeRefused(self.cluster, machine, answer.cause, answer.why)
                self.creating.worked()
            case NotNow():
                self.creating.failed(answer.why, monotonic, answer.after)
            case Unknown():
                known.sure = False
                known.tries += 1
                known.again = monotonic + pause_after(known.tries)
                self.creating.failed(answer.why, monotonic)

    def listing_began(self, monotonic: int) -> None:
        """Record that a listing is asked for."""
        self._began, self._doubted = monotonic, False
        self.listing.began()

    def listing_failed(self, why: str, monotonic: int) -> None:
        """Record that not even a part could be listed: the next try is due after a pause of its own."""
        self._began = None
        self.listing.failed(why, monotonic)

    def listing_ended(self) -> None:
        """Record that a listing came; it is compared as soon as the state can be read."""
        self.listing.worked()

    def compare(self, state: State, listing: Listing, began: int) -> Compared:
        """Compare a listing with the state, which must have been read after it; some of it is to be proposed."""
        self._listed, self._whole = True, listing.whole
        self._adopt(state)
        compared = Comparison(state, self.cluster, self.owner, self._known.__getitem__, self.unwanted).run(
            listing, began
        )
        for id_ in compared.stopped:
            self._stopped.setdefault(id_, Knowledge(sure=False))
        if listing.whole:
            for id_ in [each for each in self._stopped if each not in compared.stopped]:
                del self._stopped[id_]
        there = {each.id for each in listing.machines}
        self.refusals = {id_: why for id_, why in self.refusals.items() if id_ in there or not listing.whole}
        return compared

    def opening(self, machine: MachineId) -> None:
        """Record that a whole cluster is asked how to connect to it."""
        self._known[machine].opening = True

    def opened(self, machine: MachineId, monotonic: int, *, well: bool) -> None:
        """Record whether that worked."""
        if (known := self._known.get(machine)) is not None:
            known.opened(monotonic, well=well)

    def sizing(self, machine: MachineId) -> None:
        """Record that a whole cluster is told how many nodes it is to have."""
        self._known[machine].sizing = True

    def sized(self, machine: MachineId, size: Size, monotonic: int, *, well: bool) -> None:
        """Record whether that worked."""
        if (known := self._known.get(machine)) is not None:
            known.told(size, monotonic, well=well)

    def destroying_ids(self, state: State, ids: Sequence[str]) -> None:
        """Record that machines are being destroyed."""
        for known in self._of(state, ids):
            known.ending = True
        self.destroying.began()

    def destroyed(self, state: State, ids: Sequence[str], left: Mapping[str, str], monotonic: int) -> None:
        """Take in which machines were destroyed; the others have a reason."""
        self.destroying.worked()
        for id_ in ids:
            why = left.get(id_)
            for known in self._of(state, [id_]):
                known.ended(why, monotonic)
            if why is None:
                self.refusals.pop(id_, None)
            else:
                self.refusals[id_] = why

    def not_destroyed(self, state: State, ids: Sequence[str], why: str, monotonic: int) -> None:
        """Record that the call to destroy machines failed, or was not made if `why` is empty."""
        if why:
            self.destroying.failed(why, monotonic)
        else:
            self.destroying.withdrawn()
        for known in self._of(state, ids):
            known.ending = False

    def prices_asked(self, monotonic: int) -> None:
        """Record that spot prices are asked for."""
        self._priced = monotonic
        self.pricing.began()

    @property
    def problem(self) -> str:
        """Why calls fail at present, in the words of the provider; empty if they do not."""
        paces = {"create": self.creating, "list": self.listing, "destroy": self.destroying}
        return "; ".join(f"cannot {what}: {pace.why}" for what, pace in paces.items() if pace.failures)

    def _of(self, state: State, ids: Sequence[str]) -> Iterator[Knowledge]:
        """Yield what is known of machines by the provider's ids."""
        wanted = set(ids)
        for machine in state.machines.values():
            if (
                machine.cluster == self.cluster
                and machine.provider_id in wanted
                and machine.id in self._known
            ):
                yield self._known[machine.id]
        for id_ in ids:
            if id_ in self._stopped:
                yield self._stopped[id_]


def may_order(state: State, machine: RentedMachine, now: int) -> bool:
    """Return whether the provider may be asked for a machine; ask again right before the call."""
    pool = state.pools.get(machine.cluster)
    return (
        machine.state is MachineState.WANTED
        and not machine.provider_id
        and pool is not None
        and bool(pool.key)
        and bool(machine.terms.server)
        and not pool.paused
        and now < machine.joins_until(state.facts.jumped)
    )


def _grace_ends(state: State, machine: RentedMachine) -> int:
    """Return until when a machine must not be destroyed, because tasks stop on it; nanoseconds UTC."""
    node = state.agents.get(machine.key)
    held = state.jobs_on(machine.cluster_made) if machine.is_cluster else node is not None and node.held
    if not held:
        return 0
    ends = machine.since + GRACE
    return ends if machine.notice is None else min(ends, machine.notice)
