"""Election of the leader. Each start takes a new epoch, and the journal refuses writes of older ones."""

from typing import Protocol

from msgspec import Struct


class Holder(Struct, frozen=True):
    """The current leader, as it described itself."""

    name: str
    """Host and process, for users."""
    url: str
    epoch: int


class Election(Protocol):
    """A row with an expiry time, or a lock that ends with its process.

    The holder stops acting when its term ends on its own monotonic clock. A successor has seen no renewal for that
    long.
    """

    term: float
    """Seconds that a renewal lasts."""

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        """Take a new epoch, of at least this number, if no server leads, else return the leader.

        A standby calls this regularly, and so notices when the leader stops renewing.
        """
        ...

    async def renew(self, epoch: int) -> bool:
        """Lead for another term; return False if a newer epoch has begun. Raises StoreError if that is unknown."""
        ...

    async def resign(self, epoch: int) -> None:
        """Let another server take over at once; does nothing if a newer epoch has begun."""
        ...

    async def holder(self) -> Holder | None:
        """Return the current or last leader; None if unknown."""
        ...
