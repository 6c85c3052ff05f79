"""The journal as people read it: one line an event."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from spillover.control.loop import Loop
from spillover.control.projects import OwnHistory
from spillover.control.subscribers import Subscription
from spillover.core.events import AnyEvent
from spillover.model.units import format_time
from spillover.ports.journal import Journal, Stored, mark_of
from spillover.wire.api import EventView
from spillover.wire.journal import decode_event

CLOSE: Final = 100
"""Events between two of a job that are rather read than passed over."""


async def history(
    loop: Loop,
    journal: Journal,
    after: int | None,
    follow: bool,
    job: str | None,
    own: OwnHistory | None = None,
) -> AsyncGenerator[EventView, None]:
    """Events after a revision, and on as they become durable if they are to be followed."""
    with _subscribed(loop, job, own) as news:
        at = after if after is not None else loop.gate.durable if follow else 0
        if job is not None and at < (indexed := await journal.indexed()):
            async for stored in _indexed(journal, job, at):
                if stored.revision <= indexed and (view := await _view(stored, job, own)) is not None:
                    yield view
            at = indexed
        while True:
            upto = loop.gate.durable
            async for stored in journal.tail(at):
                at = stored.revision
                if (view := await _view(stored, job, own)) is not None:
                    yield view
            if not follow:
                return
            # What is not news to us is passed over; the newest may be forgotten already.
            at = max(at, upto, await news.wait())


def _subscribed(loop: Loop, job: str | None, own: OwnHistory | None) -> AbstractContextManager[Subscription]:
    """Tells of commits that may have something to show."""
    if job is not None:
        return loop.subscribers.to_jobs([job])
    if own is not None and own.project is not None:
        return loop.subscribers.to_project(own.project)
    return loop.subscribers.to_all()


async def _indexed(journal: Journal, job: str, after: int) -> AsyncIterator[Stored]:
    """Events after a revision that may be about a job, as far as they are indexed."""
    for first, last in spans(await journal.mentioned(mark_of(job), after)):
        async for stored in journal.tail(first - 1, last - first + 1):
            if stored.revision <= last:  # else the first ones were forgotten meanwhile
                yield stored


def spans(revisions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Revisions as spans, first and last, that are each read at once: with what is between those that are close."""
    first = last = 0
    for each in revisions:
        if last and each > last + CLOSE:
            yield first, last
            first = each
        first, last = first or each, each
    if last:
        yield first, last


async def _view(stored: Stored, job: str | None, own: OwnHistory | None) -> EventView | None:
    """A line of history; None if it is not to be shown."""
    event: AnyEvent | None = decode_event(stored.event)
    if event is not None and job is not None and not concerns(event, job):
        return None
    if own is not None and event is not None:
        event = await own.part(event)
    if event is None or (job is not None and not concerns(event, job)):
        return None
    return event_view(stored.revision, stored.at, event)


def concerns(event: AnyEvent, job: str) -> bool:
    """Whether an event is about a job, or about a member of it."""
    return any(each == job or each.startswith(f"{job}.") for each in event.about())


def event_view(revision: int, at: int, event: AnyEvent) -> EventView:
    """One line of history."""
    ids = event.about()
    data: Any = _plain(event)
    kind = str(event.__struct_config__.tag)
    return EventView(revision, format_time(at), kind, ids[0] if len(ids) == 1 else None, str(event), data)


def _plain(event: AnyEvent) -> dict[str, Any]:
    """The fields of an event by name, as far as they are shown."""
    plain: dict[str, Any] = {}
    for name in event.__struct_fields__:
        if name not in event.hidden:
            value = getattr(event, name)
            plain[name] = value.hex() if isinstance(value, bytes) else msgspec.to_builtins(value)
    return plain
