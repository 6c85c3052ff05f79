"""One opened store: the three ports on one set of data."""

from dataclasses import dataclass
from typing import Final

from spillover.ports.archive import Archive
from spillover.ports.election import Election
from spillover.ports.journal import Journal

TERM: Final = 10.0
"""Seconds that a renewal of the lead lasts: long enough for a busy disk, short enough that a standby helps."""


@dataclass(frozen=True, slots=True)
class Store:
    """What a server keeps its data in."""

    journal: Journal
    election: Election
    archive: Archive

    async def close(self) -> None:
        """Let go of files, locks and connections; closing again is harmless."""
        await self.journal.close()
