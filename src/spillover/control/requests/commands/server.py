"""Commands about the server itself: its state, its clock, its notifications, and what pages show of it."""

import itertools
from collections.abc import AsyncIterator
from typing import Final

from spillover.control.requests.commands.base import CallerCommands, Parts
from spillover.control.requests.notifications import NotificationRequests
from spillover.control.requests.projects import jobs_of
from spillover.control.views import jobs as views
from spillover.control.views.clusters import agent_views
from spillover.control.views.live import LiveViews, Summary
from spillover.control.views.overview import (
    Pace,
    Waits,
    clock_view,
    cost_an_hour,
    head_of_queue,
    longest_first,
    placed_jobs,
    server_view,
)
from spillover.control.views.pools import pool_summaries
from spillover.core.state import State
from spillover.model.units import HOUR, format_time
from spillover.ports.blobs import GIB
from spillover.ports.commands import CommandError, ErrorKind, LiveMessage
from spillover.wire.api import (
    ClockView,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    Overview,
    Series,
    ServerView,
)

MOST_ASIDE: Final = 100
"""Most entries of set-aside work in an overview."""


class ServerCommands(CallerCommands):
    """Shows the state of the server."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._pace = Pace(parts.loop)
        self._live = LiveViews(
            parts.loop,
            Summary(
                self._clusters,
                self._server,
                self._pace.ended,
                lambda engine, project: len(self._set_aside(engine, project)),
            ),
            Waits(parts.loop),
        )

    async def server(self) -> ServerView:
        """Return the server's own state."""
        return self._server((await self._loop.read()).state)

    def _server(self, state: State) -> ServerView:
        files = self._parts.files
        limits = (GIB, GIB) if files is None else (files.max_inputs, files.max_outputs)
        exporter = self._parts.exporter
        traces = None if exporter is None else exporter.problem
        return server_view(self._loop, state, self._parts.currency, limits, traces)

    async def overview(self, running: int, queued: int, agents: int) -> Overview:
        """Return a summary; its cost depends on what is shown and what runs, not on the length of the queue."""
        engine = await self._loop.read()
        state, reasons = (
            engine.state,
            views.Reasons(engine, self._project, self._place_reason, self._problem),
        )
        placed = jobs_of(placed_jobs(state), self._project)
        aside = self._set_aside(engine, self._project)
        return Overview(
            at=format_time(self._loop.now()),
            server=self._server(state),
            ended_a_minute=self._pace.ended(),
            cost_an_hour=views.money(cost_an_hour(state, placed)),
            clusters=self._clusters(state),
            agents=agent_views(self._loop, self._parts.agents, state, itertools.islice(state.agents, agents)),
            agents_in_all=len(state.agents),
            running=[views.job_view(engine, job, reasons) for job in longest_first(placed, running)],
            running_in_all=len(placed),
            queued=[
                views.job_view(engine, job, reasons) for job in head_of_queue(engine, queued, self._project)
            ],
            set_aside=aside[:MOST_ASIDE],
            set_aside_in_all=len(aside),
            pools=pool_summaries(state, self._loop.now()),
        )

    def live(self) -> AsyncIterator[LiveMessage]:
        """Stream what an open page shows."""
        return self._live.messages(self._project)

    async def series(self, since: int | None) -> Series:
        """Return the last hours as lines."""
        if self._parts.sampling is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server takes no samples")
        begin = self._loop.now() - HOUR if since is None else since
        return self._parts.sampling.series(begin, costs=self._project is None)

    async def clock(self) -> ClockView:
        """Return whether the server follows the machine's clock."""
        return clock_view(self._loop)

    async def accept_clock(self, who: str) -> ClockView:
        """Follow the machine's clock although it jumped too far to be trusted."""
        view = clock_view(self._loop)
        if view.state != "held":
            raise CommandError(ErrorKind.CONFLICT, f"there is nothing to accept: {view.message}")
        await self._loop.accept_clock(who)
        return clock_view(self._loop)

    async def notifications(self, failed: bool | None, limit: int, cursor: str | None) -> NotificationPage:
        """Return a page of notifications that were not sent, newest first."""
        return await self._notifications.page(failed, limit, cursor)

    async def act_on_notifications(self, action: NotificationAction) -> NotificationIds:
        """Send notifications again or drop them."""
        return await self._notifications.act(action)

    async def test_notification(self, request: NotificationTest, who: str) -> NotificationIds:
        """Send a notification to try whether it arrives."""
        return await self._notifications.test(request, who)

    @property
    def _notifications(self) -> NotificationRequests:
        parts = self._parts
        if parts.outbox is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server sends no notifications")
        return NotificationRequests(self._loop, parts.outbox, parts.settings, parts.delivering)

    def ready(self) -> str | None:
        """Return None if the server accepts work, else why it does not."""
        return self._loop.problem
