"""Shows the journal to users, one line for each event."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from spillover.control.live.loop import Loop
from spillover.control.live.subscribers import Subscription
from spillover.control.requests.projects import OwnHistory
from spillover.core.events import AnyEvent, Decided, MembersDropped
from spillover.model import ranges
from spillover.model.ids import JobId
from spillover.model.units import format_time
from spillover.ports.commands import ALL_EVENTS, EventFilter
from spillover.ports.journal import Journal, Stored, mark_of
from spillover.wire.api import EventView
from spillover.wire.journal import decode_event

CLOSE: Final = 100
"""Events between two events of a job that are read rather than skipped."""


async def history(
    loop: Loop,
    journal: Journal,
    after: int | None,
    follow: bool,
    job: str | None,
    own: OwnHistory | None = None,
    only: EventFilter = ALL_EVENTS,
) -> AsyncGenerator[EventView, None]:
    """Yield events after a revision; with `follow`, also new ones as they become durable."""
    with _subscribed(loop, job, own) as news:
        begins = 0 if only.since is None else await last_before(journal, only.since, loop.gate.durable)
        at = after if after is not None else loop.gate.durable if follow and only.since is None else 0
        at = max(at, begins)
        if job is not None and at < (indexed := await journal.indexed()):
            async for stored in _indexed(journal, job, at):
                if only.until is not None and stored.at >= only.until:
                    return
                if stored.revision <= indexed and (view := await _view(stored, job, own, only)) is not None:
                    yield view
            at = indexed
        while True:
            upto = loop.gate.durable
            async for stored in journal.tail(at):
                if only.until is not None and stored.at >= only.until:
                    return
                at = stored.revision
                if (view := await _view(stored, job, own, only)) is not None:
                    yield view
            if not follow:
                return
            # Skip commits that do not concern this reader; compaction may have deleted the latest ones already.
            at = max(at, upto, await news.wait())


async def events_of(loop: Loop, journal: Journal, job: str) -> AsyncIterator[AnyEvent]:
    """Yield the durable events of one job that the journal still has."""
    await loop.read()
    indexed = await journal.indexed()
    async for stored in _indexed(journal, job, 0):
        if stored.revision <= indexed and job in (event := decode_event(stored.event)).about():
            yield event
    async for stored in journal.tail(indexed):
        if job in (event := decode_event(stored.event)).about():
            yield event


async def dropped_member(loop: Loop, journal: Journal, array: JobId, index: int) -> MembersDropped | None:
    """Return the event by which a member of an array ended before it was placed; None if history has none."""
    async for event in events_of(loop, journal, array):
        if isinstance(event, MembersDropped) and ranges.contains(event.members, index):
            return event
    return None


def _subscribed(loop: Loop, job: str | None, own: OwnHistory | None) -> AbstractContextManager[Subscription]:
    """Subscribe to commits that may have events to show."""
    if job is not None:
        return loop.subscribers.to_jobs([job])
    if own is not None and own.project is not None:
        return loop.subscribers.to_project(own.project)
    return loop.subscribers.to_all()


async def _indexed(journal: Journal, job: str, after: int) -> AsyncIterator[Stored]:
    """Yield indexed events after a revision that may be about a job."""
    for first, last in spans(await journal.mentioned(mark_of(job), after)):
        async for stored in journal.tail(first - 1, last - first + 1):
            if stored.revision <= last:  # else compaction deleted the first ones meanwhile
                yield stored


def spans(revisions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Join revisions into spans of first and last; one read covers a span, with events between close revisions."""
    first = last = 0
    for each in revisions:
        if last and each > last + CLOSE:
            yield first, last
            first = each
        first, last = first or each, each
    if last:
        yield first, last


async def last_before(journal: Journal, time: int, last: int) -> int:
    """Return the last revision older than a time, by binary search: times of events never decrease."""
    older = await journal.oldest() - 1
    while older < last:
        middle = (older + last + 1) // 2
        found = [each async for each in journal.tail(middle - 1, 1)]
        if found and found[0].at < time:
            older = middle
        else:
            last = middle - 1
    return older


async def _view(
    stored: Stored, job: str | None, own: OwnHistory | None, only: EventFilter
) -> EventView | None:
    """Return the view of an event; None if the reader must not see it or did not ask for it."""
    event: AnyEvent | None = decode_event(stored.event)
    if type(event) is Decided and not only.cycles:
        return None
    if event is not None and only.user not in {None, event.caused_by()}:
        return None
    if event is not None and job is not None and not concerns(event, job):
        return None
    if own is not None and event is not None:
        event = await own.part(event)
    if event is None or (job is not None and not concerns(event, job)):
        return None
    return event_view(stored.revision, stored.at, event)


def concerns(event: AnyEvent, job: str) -> bool:
    """Return whether an event is about a job or one of its members."""
    return any(each == job or each.startswith(f"{job}.") for each in event.about())


def event_view(revision: int, at: int, event: AnyEvent) -> EventView:
    """Return an event in the form of the API."""
    ids = event.about()
    data: Any = _plain(event)
    kind = str(event.__struct_config__.tag)
    return EventView(
        revision,
        format_time(at),
        kind,
        ids[0] if len(ids) == 1 else None,
        str(event),
        data,
        event.caused_by() or None,
    )


def _plain(event: AnyEvent) -> dict[str, Any]:
    """Return the visible fields of an event by name."""
    plain: dict[str, Any] = {}
    for name in event.__struct_fields__:
        if name not in event.hidden:
            value = getattr(event, name)
            plain[name] = value.hex() if isinstance(value, bytes) else msgspec.to_builtins(value)
    return plain
