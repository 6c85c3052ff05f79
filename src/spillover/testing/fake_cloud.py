"""A provider in memory, whose machines are only entries: for tests, and an example of the contract.

The account is a `FakeCloud`. It outlives the providers that use it, as a real one outlives servers. With the option
`clusters`, what it makes are whole clusters.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct, field

from spillover.model.pools import Offer, RefusalCause
from spillover.ports.provider import (
    ClusterMaker,
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    PriceSeen,
    Provider,
    ProviderError,
    ProviderKind,
    ProviderOpening,
    Refused,
    Unknown,
)


class FakeMachine(Struct):
    """A machine of an account, or a whole cluster."""

    id: str
    order: Order
    at: int
    """When it was created, nanoseconds."""
    presence: Presence = Presence.RUNNING
    tagged: bool = True
    interrupted: bool = False
    nodes: list[str] = field(default_factory=list)
    """Names of the nodes of a cluster, oldest first."""
    grown: int = 0
    """How many nodes it ever had. Names are never used again."""

    def resize(self, nodes: int, drop: Sequence[str] = ()) -> None:
        """Add nodes, or remove first those named in `drop` and then the youngest."""
        going = [
            *[each for each in self.nodes if each in drop],
            *[each for each in reversed(self.nodes) if each not in drop],
        ]
        for each in going[: max(0, len(self.nodes) - nodes)]:
            self.nodes.remove(each)
        while len(self.nodes) < nodes:
            self.grown += 1
            self.nodes.append(f"{self.id}-node-{self.grown}")


class FakeCloud:
    """An account: its machines, and how it answers."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self.clock = clock
        self.machines: dict[str, FakeMachine] = {}
        """All that ever were, by id."""
        self.tokens: dict[str, str] = {}
        """Ids by the tokens of their orders."""
        self.refusing: RefusalCause | None = None
        """Why every order is refused; None if orders are carried out."""
        self.throttled = False
        self.reachable = True
        self.lose: list[bool] = []
        """For each of the next orders that gets no answer: whether it arrives."""
        self.whole = True
        """Whether listings are whole."""
        self.keeps = False
        """Whether it refuses to destroy machines."""
        self.slow = False
        """Whether new machines stay PENDING, until `boot`."""
        self.calls = 0
        """How many requests arrived."""

    def machine(self, order: Order) -> FakeMachine:
        """Return the machine of an order: a new one if its token is new."""
        if order.token not in self.tokens:
            id_ = f"fake-{len(self.machines) + 1}"
            self.tokens[order.token] = id_
            made = FakeMachine(id_, order, self.clock(), Presence.PENDING if self.slow else Presence.RUNNING)
            made.resize(order.nodes)
            self.machines[id_] = made
        return self.machines[self.tokens[order.token]]

    def boot(self) -> None:
        """Let all machines run that are PENDING."""
        for each in self.machines.values():
            if each.presence is Presence.PENDING:
                each.presence = Presence.RUNNING

    def take_back(self) -> None:
        """Take all machines back."""
        for each in self.machines.values():
            if each.presence in {Presence.PENDING, Presence.RUNNING}:
                each.presence, each.interrupted = Presence.GONE, True

    def arrive(self) -> None:
        """Count a request; raise ProviderError if none arrives or is heard."""
        if not self.reachable:
            raise ProviderError("the fake cloud does not answer")
        self.calls += 1
        if self.throttled:
            raise ProviderError("the fake cloud has had too many requests")


class FakeProvider(Provider):
    """Rents machines of an account for one owner."""

    def __init__(self, cloud: FakeCloud, owner: str) -> None:
        self._cloud = cloud
        self._owner = owner

    async def create(self, order: Order) -> Created:
        """See Provider."""
        cloud = self._cloud
        try:
            cloud.arrive()
        except ProviderError as error:
            return NotNow(str(error), 1.0)
        if cloud.lose:
            if cloud.lose.pop(0):
                cloud.machine(order)
            return Unknown("the fake cloud did not answer")
        if order.token not in cloud.tokens and cloud.refusing is not None:
            return Refused(cloud.refusing, f"the fake cloud refuses: {cloud.refusing}")
        machine = cloud.machine(order)
        return Made(machine.id, machine.at)

    async def list(self) -> Listing:
        """See Provider."""
        cloud, began = self._cloud, self._cloud.clock()
        cloud.arrive()
        machines = [
            Listed(
                each.id,
                each.presence,
                each.order.machine if each.tagged else "",
                each.order.owner if each.tagged else "",
                each.order.name,
                each.at,
                "taken back" if each.interrupted else "",
                each.interrupted,
                len(each.nodes) if each.order.nodes else None,
            )
            for each in cloud.machines.values()
            if each.order.owner == self._owner
        ]
        return Listing(began, cloud.whole, tuple(machines), "" if cloud.whole else "zone b does not answer")

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        cloud = self._cloud
        cloud.arrive()
        if cloud.keeps:
            return {id_: "the fake cloud keeps it" for id_ in ids if id_ in cloud.machines}
        for id_ in ids:
            if id_ in cloud.machines:
                cloud.machines[id_].presence = Presence.GONE
        return {}

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider. It has all types but `none`."""
        self._cloud.arrive()
        return [f"there is no type {each.type}; write another type" for each in offers if each.type == "none"]

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. It states what the offers say."""
        self._cloud.arrive()
        return [PriceSeen(each.type, each.zone, each.spot, each.hour) for each in offers]

    async def close(self) -> None:
        """See Provider."""


class FakeMaker(FakeProvider, ClusterMaker):
    """Rents whole clusters of an account for one owner."""

    async def kubeconfig(self, id_: str) -> str:
        """See ClusterMaker. Nobody listens at the address in it."""
        if self._cluster(id_).presence is not Presence.RUNNING:
            raise ProviderError(f"the cluster {id_} does not run yet")
        return KUBECONFIG.replace("NAME", id_)

    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        """See ClusterMaker."""
        self._cluster(id_).resize(nodes, drop)

    def _cluster(self, id_: str) -> FakeMachine:
        """Return a cluster that is there; raise ProviderError."""
        self._cloud.arrive()
        found = self._cloud.machines.get(id_)
        if found is None or found.presence not in {Presence.PENDING, Presence.RUNNING}:
            raise ProviderError(f"there is no cluster {id_}")
        return found


KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: NAME
clusters: [{name: NAME, cluster: {server: "https://127.0.0.1:9"}}]
contexts: [{name: NAME, context: {cluster: NAME, user: NAME}}]
users: [{name: NAME, user: {token: secret-NAME}}]
"""
"""Of every cluster, with its id for NAME."""


class FakeForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Its options."""

    clusters: bool = False
    """Whether it makes whole clusters."""


class FakeKind(ProviderKind):
    """The provider `fake`, with an account for each object of this class."""

    name: ClassVar[str] = "fake"
    form: ClassVar[type[Struct]] = FakeForm

    def __init__(self) -> None:
        self.cloud = FakeCloud()

    def makes_clusters(self, form: FakeForm) -> bool:
        """See ProviderKind."""
        return form.clusters

    def open(self, form: FakeForm, opening: ProviderOpening) -> FakeProvider:
        """See ProviderKind."""
        return (FakeMaker if form.clusters else FakeProvider)(self.cloud, opening.owner)
