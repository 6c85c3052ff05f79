"""Handles endpoints about what happened: events, the audit, and jobs that have ended."""

from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from spillover.api.http.parameters import audit_query, event_filter, span_of
from spillover.api.http.routing import Request, serves
from spillover.api.http.streams import Stream
from spillover.wire import endpoints
from spillover.wire.api import AuditPage, EventView, PastJob
from spillover.wire.endpoints import NDJSON
from spillover.wire.parameters import AuditQuery, EventsQuery, PastQuery


@serves(endpoints.EVENTS)
async def events(request: Request[EventsQuery, None]) -> Stream:
    """Stream events."""
    asked = request.asked
    lines = _lines(request.commands.events(asked.after, asked.follow, asked.job, event_filter(asked)))
    return Stream(lines, NDJSON, keep_alive=b"\n" if asked.follow else None)


@serves(endpoints.AUDIT)
async def audit(request: Request[AuditQuery, None]) -> AuditPage:
    """List what people did."""
    return await request.commands.audit(audit_query(request.asked))


@serves(endpoints.PAST)
async def past(request: Request[PastQuery, None]) -> Stream:
    """Stream ended jobs."""
    return Stream(_lines(request.commands.past(span_of(request.asked))), NDJSON)


async def _lines(history: AsyncIterator[EventView] | AsyncIterator[PastJob]) -> AsyncIterator[bytes]:
    """Yield each event or job as a line of JSON."""
    encoder = msgspec.json.Encoder()
    try:
        async for one in history:
            yield encoder.encode(one) + b"\n"
    finally:
        if isinstance(history, AsyncGenerator):
            await history.aclose()
