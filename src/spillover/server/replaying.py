"""Implements `spill replay`: reads the journal of a server, which may be running, and makes its plans again."""

import asyncio
from pathlib import Path

from msgspec import Struct

from spillover.control.live.replaying import Replayed, replay
from spillover.model.units import format_time
from spillover.policies.loading import load_surely
from spillover.ports.journal import StoreError
from spillover.server.up import settings_of
from spillover.stores.open import open_journal


class DifferenceView(Struct, frozen=True):
    """The first event that does not follow from those before it."""

    revision: int
    at: str
    """Time of its plan, or of the last plan before it; RFC 3339."""
    what: str
    stored: tuple[str, ...]
    """The plan in the journal, one line for each part."""
    replayed: tuple[str, ...]
    """The plan of the replay."""


class ReplayView(Struct, frozen=True):
    """The result of a replay."""

    first: int
    """Revision of the first replayed event: 1, or the one after the last checkpoint if older events were deleted."""
    last: int
    plans: int
    """Plans that match the journal."""
    same: bool
    difference: DifferenceView | None
    """None if everything matches."""


def replay_journal(config: str | None, data: str | None) -> ReplayView:
    """Replay the journal that a server with these settings would use; raise StoreError if it cannot be read."""
    settings = settings_of(config, data)
    if settings.store == "memory":
        raise StoreError("the store is `memory`, whose journal ends with its server")
    return _view(asyncio.run(_replay(settings.store, Path(settings.data).absolute())))


async def _replay(where: str, data: Path) -> Replayed:
    journal = await open_journal(where, data)
    try:
        return await replay(journal, load_surely)
    finally:
        await journal.close()


def _view(replayed: Replayed) -> ReplayView:
    found = replayed.difference
    shown = None
    if found is not None:
        shown = DifferenceView(found.revision, format_time(found.at), found.what, found.stored, found.found)
    return ReplayView(replayed.first, replayed.last, replayed.plans, found is None, shown)
