"""Who leads. Every start of a server takes a new epoch; the journal refuses an older one in the same transaction."""

from typing import Protocol

from msgspec import Struct


class Holder(Struct, frozen=True):
    """Who leads now, as it said itself."""

    name: str
    """Host and process, for people."""
    url: str
    epoch: int


class Election(Protocol):
    """A row with an expiry, or a lock that dies with its process.

    The holder stops acting when its term ends on its own monotonic clock; a successor has seen no renewal for that long.
    """

    term: float
    """Seconds that a renewal lasts."""

    async def campaign(self, name: str, url: str) -> int | Holder:
        """Take a new epoch if nobody leads, else say who does.

        Asked again and again by a standby, which is how it learns that a holder stopped renewing.
        """
        ...

    async def renew(self, epoch: int) -> bool:
        """Lead for another term; False when a newer epoch has begun. Raises StoreError when the store cannot say."""
        ...

    async def resign(self, epoch: int) -> None:
        """Let another take over at once; harmless when the epoch is no longer ours."""
        ...

    async def holder(self) -> Holder | None:
        """Who leads, or led last, if that is still known."""
        ...
