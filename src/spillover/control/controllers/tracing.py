"""Exports the lives of jobs as traces, from durable events; nothing waits for it.

What is on its way is in memory alone: a server that is killed loses the spans of its last moments, or of longer while
the receiver is away. None is sent twice, except after an answer that did not arrive, and then with the same id.
"""

from collections.abc import Sequence

from spillover.control.live.loop import Loop
from spillover.control.telemetry.exporting import Exporter
from spillover.control.telemetry.lives import JobSpans
from spillover.control.telemetry.spans import Tracer
from spillover.core.events import AnyEvent


class Tracing:
    """Follows the journal and exports what ends."""

    def __init__(self, loop: Loop, tracer: Tracer, exporter: Exporter) -> None:
        self._loop = loop
        self._spans = JobSpans(tracer)
        self._exporter = exporter

    def begin(self) -> None:
        """Follow all events from now on; call it while the state is durable."""
        self._spans.begin(self._loop.state)
        self._loop.listen(self._see)

    async def run(self) -> None:
        """Export what ends, until cancelled."""
        await self._exporter.run()

    def _see(self, revision: int, events: Sequence[AnyEvent]) -> None:
        del revision
        if spans := self._spans.follow(self._loop.state, events):
            self._exporter.put(spans)
