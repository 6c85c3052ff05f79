"""Forecasts when waiting jobs start, while the server continues. Forecasts are shared, because each takes a while."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.control.requests.lookup import Found, PendingMember, id_of
from spillover.control.requests.whatif import on_snapshot
from spillover.control.views.jobs import start_view
from spillover.core.events import AnyEvent, JobStarted
from spillover.core.records.jobs import Job, Queued, Waiting
from spillover.deciding.corrections import Corrections
from spillover.deciding.engine import Engine
from spillover.deciding.expected import MOST_JOBS, MOST_STEPS, StartForecast, StartRange, expected_starts
from spillover.deciding.whatif import Snapshot
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.wire.api import ExpectedStart

PATIENCE: Final = 2.0
"""Seconds to wait for a forecast. It continues after that, for those who ask later."""
LITTLE_PATIENCE: Final = 0.3
"""The same for those who asked for something else as well, such as programs that poll a job."""
FRESH: Final = 10 * SECOND
"""How long a forecast is used if nothing has happened."""
SHARE: Final = 20
"""A forecast is used for this many times as long as it took, whatever has happened: so it takes a 20th of the time."""
MOST_TIME: Final = 10 * SECOND
"""How long a forecast takes at most; it then has fewer cases."""
FEW_STEPS: Final = 1000
"""The most steps of a forecast if policies of installed packages take part: they run in the thread of the server."""
LITTLE_TIME: Final = SECOND // 20
"""How long such a forecast takes at most, because the server does nothing else meanwhile."""


class _Known(Struct, frozen=True):
    """A forecast, and how old it is."""

    forecast: StartForecast
    revision: int
    at: int
    """When it was begun, on the monotonic clock, like `took`."""
    took: int


class StartForecasts:
    """The last forecast, and the one that is being made."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._known: _Known | None = None
        self._making: asyncio.Task[StartForecast] | None = None
        self._corrections = Corrections()
        loop.listen(self._see)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Compare starts with what was forecast."""
        for event in events:
            if type(event) is JobStarted:
                self._corrections.started(event.job, event.at)

    def corrected(self, starts: Mapping[JobId, StartRange], now: int) -> dict[JobId, StartRange]:
        """Return expected starts, corrected by how earlier ones came true."""
        return {job: self._corrections.corrected(start, now) for job, start in starts.items()}

    def recent(self) -> StartForecast | None:
        """Return the last forecast, if it still holds."""
        known = self._known
        if known is None:
            return None
        age = self._loop.time.monotonic() - known.at
        holds = SHARE * known.took if self._loop.applied != known.revision else FRESH
        return known.forecast if age < max(known.took, holds) else None

    async def of_all(self) -> StartForecast | None:
        """Return a forecast for the first jobs of the queue; None if it takes too long."""
        return self.recent() or await self._wait_for(self._make(()))

    async def of(self, job: Job, patience: float | None = None) -> StartForecast | None:
        """Return a forecast that looked at a job; None if it takes too long."""
        forecast = self.recent()
        if forecast is not None and patience is not None:
            return forecast  # whoever polls jobs that are far behind does not keep the server busy
        if forecast is None or not _looked_at(forecast, job.id):
            forecast = await self._wait_for(self._make((job.id,)), patience)
            if forecast is not None and not _looked_at(forecast, job.id):  # somebody else's, begun before
                forecast = await self._wait_for(self._make((job.id,)), patience)
        return forecast

    async def view_of(
        self, found: Found, patience: float | None = None
    ) -> tuple[ExpectedStart | None, str | None]:
        """Return when a waiting job is expected to start, or else why that is not known."""
        job = found.array if isinstance(found, PendingMember) else found
        if not isinstance(job, Job) or not waits(job):
            return None, None
        forecast = await self.of(job, patience)
        known = None if forecast is None else forecast.starts.get(id_of(found))
        return start_view(known), note_of(forecast, job.id)

    def _make(self, more: tuple[JobId, ...]) -> "asyncio.Task[StartForecast]":
        """Begin a forecast, unless one is being made."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._forecast(more))
        return self._making

    async def _wait_for(
        self, making: "asyncio.Task[StartForecast]", patience: float | None = None
    ) -> StartForecast | None:
        """Return a forecast when it is made; None if that takes too long or fails."""
        done, _ = await asyncio.wait((making,), timeout=PATIENCE if patience is None else patience)
        failed = not done or making.cancelled() or making.exception() is not None
        return None if failed else making.result()

    async def _forecast(self, more: tuple[JobId, ...]) -> StartForecast:
        loop = self._loop
        engine = await loop.ready()
        now, revision, began = loop.now(), loop.applied, loop.time.monotonic()
        steps, late, over = steps_for(engine), after(loop, time_for(engine)), threading.Event()

        def ask(snapshot: Snapshot) -> StartForecast:
            there = [job for job in more if job in snapshot.state.jobs]
            return expected_starts(
                snapshot, now, there, most_steps=steps, enough=lambda: over.is_set() or late()
            )

        try:
            forecast = await on_snapshot(loop, ask, few=0)
        finally:
            over.set()  # a server that stops need not wait for the thread
        for job, start in forecast.starts.items():
            found = loop.state.jobs.get(job)
            if found is None or found.extra.members is None:  # an array itself never starts
                self._corrections.given(job, start, now)
        forecast = replace(forecast, starts=self.corrected(forecast.starts, now))
        self._known = _Known(forecast, revision, began, loop.time.monotonic() - began)
        return forecast


def after(loop: Loop, most: int) -> Callable[[], bool]:
    """Return a function that says whether so many nanoseconds have passed since now."""
    until = loop.time.monotonic() + most
    return lambda: loop.time.monotonic() >= until


def steps_for(engine: Engine) -> int:
    """Return how many steps a forecast may take."""
    return FEW_STEPS if engine.policies.guards else MOST_STEPS


def time_for(engine: Engine) -> int:
    """Return how long a forecast may take, in nanoseconds."""
    return LITTLE_TIME if engine.policies.guards else MOST_TIME


def _looked_at(forecast: StartForecast, job: JobId) -> bool:
    return job in forecast.wanted or job in forecast.starts


def waits(job: Job) -> bool:
    """Return whether a job waits for its start, and may start without anybody's help."""
    return type(job.phase) is Queued or (type(job.phase) is Waiting and job.phase.by is None)


def note_of(forecast: StartForecast | None, job: JobId) -> str | None:
    """Return why the expected start of a waiting job is not known; None if it is known."""
    if forecast is None:
        return "the server still computes it; ask again in some seconds"
    if not _looked_at(forecast, job):
        return f"it is beyond the first {MOST_JOBS:,} jobs of the queue"
    found = forecast.starts.get(job)
    if found is None or found.p50 is None:
        return "it does not start if nothing changes, or starts too far ahead to tell"
    return None if found.p90 is not None else "in some cases it starts too far ahead to tell"
