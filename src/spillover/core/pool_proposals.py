"""Proposals about pools: what providers answered, what was seen there, and what people ask for."""

from msgspec import Struct

from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.pools import JoinTerms, MachineId, OfferKey, RefusalCause


class OpenPool(Struct, frozen=True):
    """Open a pool. The proposer drew a key, which is used if the pool has none."""

    cluster: ClusterName
    key: bytes
    terms: JoinTerms = JoinTerms()
    """For machines that are ordered from now on."""
    identity: str = ""
    """A new identity of the state, which is used if it has none; empty if the proposer knows that it has one."""


class SeeMade(Struct, frozen=True):
    """The provider created a machine, or a listing shows that it had."""

    cluster: ClusterName
    machine: MachineId
    provider_id: str
    made_at: int | None = None
    """Nanoseconds UTC on the provider's clock; None if it did not say."""


class SeeRefused(Struct, frozen=True):
    """The provider surely did not create a machine."""

    cluster: ClusterName
    machine: MachineId
    cause: RefusalCause
    why: str


class SeeGone(Struct, frozen=True):
    """A machine surely does not exist any more, or never did."""

    cluster: ClusterName
    machine: MachineId
    why: str = ""
    """In the words of the provider; empty if we ended it."""
    interrupted: bool = False
    """Whether the provider took it back."""


class SeeRunning(Struct, frozen=True):
    """A whole cluster that was ordered answers. The proposer can open it."""

    cluster: ClusterName
    """The template."""
    machine: MachineId
    spec: ClusterSpec
    form: str
    """Its entry in spill.yaml as JSON."""


class SeeUnwanted(Struct, frozen=True):
    """A machine exists at the provider that is ours, and that the state does not want."""

    cluster: ClusterName
    provider_id: str
    machine: str = ""
    """The id in its tag; empty if it has lost its tag."""
    made_at: int | None = None
    """Nanoseconds UTC; None if unknown."""


class AdmitMachine(Struct, frozen=True):
    """The agent of a machine showed its join token. The proposer checked it, and drew a token in exchange."""

    cluster: ClusterName
    machine: MachineId
    life: str
    """The agent process."""
    token: str
    digest: bytes
    """Id of the new token, and SHA-256 of its secret."""


class SeeNotice(Struct, frozen=True):
    """The agent of a machine learned that the provider will take the machine back."""

    cluster: ClusterName
    machine: MachineId
    until: int
    """Nanoseconds UTC."""


class SeePrices(Struct, frozen=True):
    """The provider states present prices of spot offers."""

    cluster: ClusterName
    prices: tuple[tuple[OfferKey, int], ...]
    """Millionths for an hour, by offer."""


class PausePool(Struct, frozen=True):
    """Order nothing more in a pool."""

    cluster: ClusterName
    who: str
    why: str = ""
    end: bool = False
    """Whether to end all machines at once. Their tasks return to the queue."""


class DropMachineCosts(Struct, frozen=True):
    """Drop what machines cost by day, of days that are past their retention."""

    before: int
    """Nanoseconds UTC."""


class ResumePool(Struct, frozen=True):
    """Order machines again, of all offers."""

    cluster: ClusterName
    who: str
