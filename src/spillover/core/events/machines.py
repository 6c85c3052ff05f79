"""Events of pools: machines that are ordered, made, joined, drained and ended."""

from typing import ClassVar

from msgspec import Struct

from spillover.core.events.base import Event, PeriodRef
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.pools import JoinTerms, MachineId, Offer, OfferKey, RefusalCause
from spillover.model.units import format_moment


class Wish(Struct, frozen=True, array_like=True):
    """One machine to order."""

    machine: MachineId
    offer: Offer
    """With its present price."""
    join_by: int
    """When its agent must have joined, nanoseconds UTC."""
    job: JobId | None = None
    """The first job that it is for; null for a machine that is always there."""
    group: str = ""
    """Machines of one gang, all or none; empty for others."""
    nodes: int = 0
    """Nodes of a whole cluster; 0 for a machine."""


class MachineHeld(Struct, frozen=True, array_like=True):
    """More of a pool's budget that is held for a machine."""

    machine: MachineId
    amount: int
    """Millionths."""
    until: int
    """Until when the machine is paid with it, nanoseconds UTC."""
    period: PeriodRef
    """The budget period that counts it."""


class PoolOpened(Event, frozen=True, tag="pool_opened"):
    """A pool was opened for the first time, or what its new machines are told has changed."""

    cluster: ClusterName
    at: int
    key: bytes
    """Makes the tokens with which its machines join. Never shown."""
    terms: JoinTerms = JoinTerms()
    """For machines that are ordered from now on."""

    hidden: ClassVar[tuple[str, ...]] = ("key",)

    def __str__(self) -> str:
        return f"the pool of {self.cluster} was opened"


class MachinesWanted(Event, frozen=True, tag="machines_wanted"):
    """The plan orders machines. The provider is asked once this is durable."""

    cluster: ClusterName
    at: int
    wishes: tuple[Wish, ...]
    """For each machine: its id, offer, latest time to join, first job, and group."""

    def __str__(self) -> str:
        count = len(self.wishes)
        kinds = ", ".join(dict.fromkeys(each.offer.key for each in self.wishes))
        many = (
            f"1 machine of {self.cluster} was" if count == 1 else f"{count} machines of {self.cluster} were"
        )
        return f"{many} ordered: {kinds}"


class MachinesEarmarked(Event, frozen=True, tag="machines_earmarked"):
    """Machines that are there, or were ordered for others, are kept for a gang, besides those that it may be ordered."""

    cluster: ClusterName
    at: int
    job: JobId
    """The gang."""
    machines: tuple[MachineId, ...]
    free_by: int
    """When all of them are expected to have room for it, nanoseconds UTC."""

    def __str__(self) -> str:
        verb = "is" if len(self.machines) == 1 else "are"
        return f"{_named(self.machines)} of {self.cluster} {verb} kept for {self.job}"

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return (self.job,)


class MachinesHeld(Event, frozen=True, tag="machines_held"):
    """The budget of a pool holds more for some machines."""

    cluster: ClusterName
    at: int
    holds: tuple[MachineHeld, ...]
    """For each machine: amount, until when it pays, and the budget period."""

    def __str__(self) -> str:
        return f"the budget of {self.cluster} holds more for {_named(tuple([each.machine for each in self.holds]))}"


class ClusterSized(Event, frozen=True, tag="cluster_sized"):
    """The plan gives a whole cluster that it ordered another number of nodes. Its maker is told once this is durable."""

    machine: MachineId
    at: int
    cluster: ClusterName
    """The template that it was made from."""
    nodes: int
    """How many it is to have."""
    drop: tuple[NodeName, ...] = ()
    """Nodes that go first if it becomes smaller. They get no more tasks."""
    job: JobId | None = None
    """The gang that the nodes are for; null if it is not for a gang."""
    dropped: int = 0
    """Millionths for all nodes that it does not have any more."""

    def __str__(self) -> str:
        many = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        without = f", without {', '.join(self.drop)}" if self.drop else ""
        return f"cluster {self.machine} is to have {many}{without}"


class MachineMade(Event, frozen=True, tag="machine_made"):
    """The provider created a machine."""

    machine: MachineId
    at: int
    cluster: ClusterName
    provider_id: str
    made_at: int
    """When it began to cost, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"machine {self.machine} was created as {self.provider_id}"


class MachineRefused(Event, frozen=True, tag="machine_refused"):
    """The provider did not create a machine, and some offers may be closed for a while."""

    machine: MachineId
    at: int
    cluster: ClusterName
    cause: RefusalCause
    why: str
    """For people; may be empty."""
    closed: tuple[OfferKey, ...] = ()
    """Offers that are not ordered until `until`."""
    until: int = 0
    """Nanoseconds UTC; 0 if none is closed."""

    def __str__(self) -> str:
        until = f"; closed until {format_moment(self.until)}: {', '.join(self.closed)}" if self.closed else ""
        return f"machine {self.machine} was refused ({self.cause}): {self.why}{until}"


class MachineAdmitted(Event, frozen=True, tag="machine_admitted"):
    """The agent of a machine showed its join token, and got a token of its own instead."""

    machine: MachineId
    at: int
    cluster: ClusterName
    token: str
    """Id of that token."""
    life: str
    """The agent process, which may ask again if it did not get the answer."""

    hidden = ("life",)  # whoever knows it can ask like that process

    def __str__(self) -> str:
        return f"machine {self.machine} was admitted with token {self.token}"


class MachineJoined(Event, frozen=True, tag="machine_joined"):
    """The agent of a machine registered for the first time."""

    machine: MachineId
    at: int
    cluster: ClusterName
    timed: bool = True
    """Whether the time since its order is how long it booted. It is not if the server was away, or its clock jumped."""

    def __str__(self) -> str:
        return f"machine {self.machine} is ready"


class MachineNoticed(Event, frozen=True, tag="machine_noticed"):
    """The provider announced that it will take a machine back. Its tasks return to the queue."""

    machine: MachineId
    at: int
    cluster: ClusterName
    until: int
    """When it will be gone, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"machine {self.machine} will be taken back at {format_moment(self.until)}"


class MachinesDraining(Event, frozen=True, tag="machines_draining"):
    """Machines get no more tasks, and are ended once they have none."""

    cluster: ClusterName
    at: int
    machines: tuple[MachineId, ...]
    why: str
    """For people; may be empty."""

    def __str__(self) -> str:
        return f"{_named(self.machines)} of {self.cluster} drained: {self.why}"


class MachinesKept(Event, frozen=True, tag="machines_kept"):
    """Machines that were draining may get tasks again."""

    cluster: ClusterName
    at: int
    machines: tuple[MachineId, ...]

    def __str__(self) -> str:
        return f"{_named(self.machines)} of {self.cluster} stay after all"


class MachinesEnding(Event, frozen=True, tag="machines_ending"):
    """Machines are to be destroyed. The provider is asked once this is durable."""

    cluster: ClusterName
    at: int
    machines: tuple[MachineId, ...]
    why: str
    """For people; may be empty."""
    failed_boots: int = 0
    """How many of them did not join in time."""
    who: str = ""
    """The person who ended all machines of the pool; empty if the server ended these."""

    def __str__(self) -> str:
        return f"{_named(self.machines)} of {self.cluster} ending: {self.why}"


class MachineGone(Event, frozen=True, tag="machine_gone"):
    """A machine does not exist any more. `paid` is the sum of the other amounts."""

    machine: MachineId
    at: int
    cluster: ClusterName
    why: str
    """For people; may be empty."""
    paid: int = 0
    """Millionths for all of its time."""
    boot: int = 0
    """Of that until it was ready."""
    useful: int = 0
    """Of that for attempts that ended on their own."""
    interrupted: int = 0
    """Of that for attempts that its end interrupted."""
    idle: int = 0
    """The rest."""
    before: int = 0
    """Millionths that were counted when it seemed to be gone, and was found again. They are no part of `paid`."""

    def __str__(self) -> str:
        return f"machine {self.machine} is gone" + (f": {self.why}" if self.why else "")


class MachineFound(Event, frozen=True, tag="machine_found"):
    """A machine that is ours and that nothing wants was found at the provider. It is to be destroyed."""

    machine: MachineId
    at: int
    cluster: ClusterName
    provider_id: str
    made_at: int
    """Nanoseconds UTC."""
    offer: Offer
    """The offer that it was ordered under, if that is known; otherwise one without a price."""

    def __str__(self) -> str:
        return f"machine {self.provider_id} of {self.cluster} was found, which nothing wants"


class PoolPaused(Event, frozen=True, tag="pool_paused"):
    """Nothing is ordered in a pool until somebody resumes it."""

    cluster: ClusterName
    at: int
    who: str
    """The person; `spillover` if the server paused it."""
    why: str
    """For people; may be empty."""

    also_of_server = True

    def __str__(self) -> str:
        return f"the pool of {self.cluster} was paused by {self.who}" + (f": {self.why}" if self.why else "")


class PoolResumed(Event, frozen=True, tag="pool_resumed"):
    """Machines may be ordered in a pool again, of all offers."""

    cluster: ClusterName
    at: int
    who: str

    def __str__(self) -> str:
        return f"the pool of {self.cluster} was resumed by {self.who}"


class MachineCostsDropped(Event, frozen=True, tag="machine_costs_dropped"):
    """What machines cost is no longer kept by day for days that are past the retention of jobs."""

    at: int
    before: int
    """The beginning of the first day that is kept, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"the costs of machines before {format_moment(self.before)} were dropped"


class SpotPriced(Event, frozen=True, tag="spot_priced"):
    """Present prices of spot offers, for machines that are ordered from now on."""

    cluster: ClusterName
    at: int
    prices: tuple[tuple[OfferKey, int], ...]
    """Millionths for an hour, by offer."""

    def __str__(self) -> str:
        return f"{len(self.prices)} spot prices of {self.cluster} changed"


def _named(machines: tuple[MachineId, ...]) -> str:
    return f"machine {machines[0]}" if len(machines) == 1 else f"{len(machines)} machines"
