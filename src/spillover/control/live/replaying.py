"""Replays the journal of a store, from its first event if that is kept, else from the last checkpoint."""

from collections.abc import Callable

import msgspec

from spillover.control.live.loading import load_checkpoint
from spillover.core.events import AnyEvent
from spillover.deciding.protocols import Policies
from spillover.deciding.replay import Difference, Replay
from spillover.model.policy import PolicySet
from spillover.ports.journal import Journal
from spillover.wire.journal import decode_event


class Replayed(msgspec.Struct, frozen=True):
    """The result of a replay."""

    first: int
    """Revision of the first replayed event."""
    last: int
    """Revision of the last one; lower than the first if there was none."""
    plans: int
    """Plans that were made again and match the journal."""
    difference: Difference | None
    """The first event that does not follow from those before it; None if all do."""


async def replay(
    journal: Journal,
    load: Callable[[PolicySet], Policies],
    see: Callable[[AnyEvent, int, int], None] | None = None,
) -> Replayed:
    """Make every plan of a journal again, up to the first difference; raise StoreError if it cannot be read.

    `see` is called with each event, its revision, and the last revision at the start of the replay.
    """
    end = (await journal.load()).last
    whole = await journal.oldest() <= 1
    after, state = (0, None) if whole else await load_checkpoint(journal)
    replaying = Replay(load, state)
    last = after
    async for stored in journal.tail(after):
        last = stored.revision
        try:
            event = decode_event(stored.event)
        except msgspec.MsgspecError as error:
            replaying.refuse(last, str(error))
            break
        if see is not None:
            see(event, last, end)
        if not replaying.take(last, event):
            break
    replaying.end(last)
    return Replayed(after + 1, last, replaying.plans, replaying.difference)
