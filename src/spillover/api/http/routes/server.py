"""Handles endpoints about the server itself: its state, its clock, its notifications, and what pages show of it."""

from collections.abc import AsyncGenerator, AsyncIterator
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST

from spillover.api.http.parameters import moment
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import Request, serves
from spillover.api.http.streams import Stream
from spillover.ports.commands import CommandError, ErrorKind, LiveMessage
from spillover.wire import endpoints
from spillover.wire.api import (
    ClockView,
    Health,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    Overview,
    Series,
    ServerView,
)
from spillover.wire.endpoints import SSE
from spillover.wire.parameters import NoParameters, NotificationsQuery, OverviewQuery, SeriesQuery


@serves(endpoints.SERVER)
async def server(request: Request[NoParameters, None]) -> ServerView:
    """Show the server."""
    return await request.commands.server()


@serves(endpoints.CLOCK)
async def clock(request: Request[NoParameters, None]) -> ClockView:
    """Show the state of the server's clock."""
    return await request.commands.clock()


@serves(endpoints.ACCEPT_CLOCK)
async def accept_clock(request: Request[NoParameters, None]) -> ClockView:
    """Accept the wall clock of the server."""
    return await request.commands.accept_clock(request.user)


@serves(endpoints.OVERVIEW)
async def overview(request: Request[OverviewQuery, None]) -> Overview:
    """Show an overview of the server."""
    asked = request.asked
    return await request.commands.overview(asked.running, asked.queued, asked.agents)


@serves(endpoints.LIVE)
async def live(request: Request[NoParameters, None]) -> Stream:
    """Stream what an open page shows."""
    return Stream(_sent(request.commands.live()), SSE, keep_alive=b":\n\n")


async def _sent(messages: AsyncIterator[LiveMessage]) -> AsyncIterator[bytes]:
    """Yield messages as server-sent events. A page that was cut off comes back after two seconds."""
    try:
        yield b"retry: 2000\n\n"
        async for each in messages:
            yield b"event: %s\ndata: %s\n\n" % (each.event.encode(), each.data)
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()


@serves(endpoints.SERIES)
async def series(request: Request[SeriesQuery, None]) -> Series:
    """Show the last hours."""
    return await request.commands.series(moment(request.asked.since))


@serves(endpoints.NOTIFICATIONS)
async def notifications(request: Request[NotificationsQuery, None]) -> NotificationPage:
    """List notifications that were not sent."""
    asked = request.asked
    return await request.commands.notifications(asked.failed, asked.limit, asked.cursor)


@serves(endpoints.ACT_ON_NOTIFICATIONS)
async def act_on_notifications(request: Request[NoParameters, NotificationAction]) -> NotificationIds:
    """Send notifications again, or drop them."""
    return await request.commands.act_on_notifications(request.body)


@serves(endpoints.TEST_NOTIFICATION)
async def test_notification(request: Request[NoParameters, NotificationTest]) -> NotificationIds:
    """Send a notification to try whether it arrives."""
    return await request.commands.test_notification(request.body, request.user)


@serves(endpoints.HEALTH)
async def health(_: Request[NoParameters, None]) -> Health:
    """Report that the process is alive."""
    return Health("ok")


@serves(endpoints.READY)
async def ready(request: Request[NoParameters, None]) -> Reply:
    """Report whether the server accepts work."""
    missing = request.commands.ready()
    if missing is None:
        return as_json(Health("ready"))
    return as_json(Health("not ready", missing), HTTPStatus.SERVICE_UNAVAILABLE)


@serves(endpoints.METRICS)
async def metrics(request: Request[NoParameters, None]) -> Reply:
    """Return metrics for Prometheus. They cover all projects."""
    if request.caller.project is not None:
        told = f"metrics cover the whole server, and this token is for project {request.caller.project!r}; use one without a project"
        raise CommandError(ErrorKind.FORBIDDEN, told)
    return Reply(await request.services.figures(), CONTENT_TYPE_LATEST.encode())


@serves(endpoints.OPENAPI)
async def openapi(request: Request[NoParameters, None]) -> Reply:
    """Return the OpenAPI document."""
    return Reply(request.services.document)
