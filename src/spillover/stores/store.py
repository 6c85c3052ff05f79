"""Holds one opened store: the six ports on one set of data."""

from dataclasses import dataclass
from typing import Final

from spillover.ports.archive import Archive
from spillover.ports.audit import Audit
from spillover.ports.election import Election
from spillover.ports.journal import Journal
from spillover.ports.outbox import Outbox
from spillover.ports.secrets import Secrets

TERM: Final = 10.0
"""Seconds that a renewal of the lead lasts. Long enough for a busy disk, short enough for a quick takeover."""


@dataclass(frozen=True, slots=True)
class Store:
    """The ports that a server stores its data with."""

    journal: Journal
    election: Election
    archive: Archive
    audit: Audit
    secrets: Secrets
    outbox: Outbox

    async def close(self) -> None:
        """Close files, locks and connections. Closing again is harmless."""
        await self.journal.close()
