"""Replays a journal as a store keeps it: whole while its first event is kept, from the last checkpoint otherwise."""

from collections.abc import Callable

import msgspec

from spillover.deciding.protocols import Policies
from spillover.deciding.replay import Difference, Replay
from spillover.model.policy import PolicySet
from spillover.ports.journal import Damaged, Journal
from spillover.wire.journal import BadRecord, decode_event, load_state


class Replayed(msgspec.Struct, frozen=True):
    """What came of it."""

    first: int
    """Revision of the first event that was replayed."""
    last: int
    """Revision of the last one; before the first if there was none."""
    plans: int
    """Plans that were made anew and are as they were stored."""
    difference: Difference | None
    """The first event that does not follow from those before it; None if all do."""


async def replay(journal: Journal, load: Callable[[PolicySet], Policies]) -> Replayed:
    """Make every plan of a journal anew, up to the first that differs; raises StoreError if it cannot be read."""
    loaded = await journal.load()
    whole = await journal.oldest() <= 1
    after = 0 if whole else loaded.checkpoint
    try:
        state = None if whole else load_state(loaded.records)
    except BadRecord as error:
        raise Damaged(f"the checkpoint at revision {loaded.checkpoint}", str(error)) from error
    replaying = Replay(load, state)
    last = after
    async for stored in journal.tail(after):
        last = stored.revision
        try:
            event = decode_event(stored.event)
        except msgspec.MsgspecError as error:
            replaying.refuse(last, str(error))
            break
        if not replaying.take(last, event):
            break
    replaying.end(last)
    return Replayed(after + 1, last, replaying.plans, replaying.difference)
