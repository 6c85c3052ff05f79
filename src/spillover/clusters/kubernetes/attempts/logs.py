"""Reads the output of tasks from the logs of their pods.

Kubernetes logs have no byte offsets, so a read from an offset fetches the log from its start and skips what comes
before. After a node has rotated a log (at 10 MiB by default), the log starts later, and so do offsets. For a task that
Kubernetes tried more than once, this reads the log of the newest pod.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, pause
from spillover.clusters.kubernetes.attempts.sightings import Sighting
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.core.events import Lease
from spillover.ports.cluster import OutputGone

TRIES: Final = 5
"""Failed requests in a row before a read gives up."""
AHEAD: Final = 16
"""Chunks to read ahead of the consumer."""
LINGER: Final = 1.0
"""Seconds to follow a log after its pod ended; the rest is then read once more."""
SILENCE: Final = 30.0
"""Seconds to wait for more of a finished log; a followed log has no limit."""
NOT_FOUND: Final = 404


class Logs:
    """The logs of our pods on one cluster."""

    def __init__(
        self, api: Api, namespace: str, mirror: Mirror, changed: Callable[[], Awaitable[object]]
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._mirror = mirror
        self._changed = changed
        """Returns when something on the cluster has changed."""

    async def read(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output of a task from a byte on; with `follow`, until the task has ended. Raise OutputGone."""
        told, failures = offset, 0
        while True:
            pod = self._find(lease, task)
            if pod is None or pod.started is None:
                if not follow:
                    return
                await self._changed()
                continue
            live = follow and pod.lives
            before = told
            try:
                chunks = self._followed(lease, task, pod, told) if live else self._log(pod, told)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        told += len(chunk)
                        yield chunk
            except Trouble as trouble:
                failures = 1 if told > before else failures + 1
                gone = isinstance(trouble, ApiRefused) and trouble.code == NOT_FOUND
                if gone or failures >= TRIES or not follow:
                    raise OutputGone(f"cannot read the log of pod {pod.name}: {trouble}") from None
                await asyncio.sleep(pause(failures))
                continue
            if not live:
                return

    async def _followed(
        self, lease: Lease, task: int, pod: Sighting, offset: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log of a running pod until the pod ends; nodes do not reliably end the log."""
        queue: asyncio.Queue[bytes | Trouble | None] = asyncio.Queue(AHEAD)

        async def pump() -> None:
            try:
                async with aclosing(self._log(pod, offset, follow=True)) as chunks:
                    async for chunk in chunks:
                        await queue.put(chunk)
                await self._over(lease, task, pod)
                await queue.put(None)
            except Trouble as trouble:
                await queue.put(trouble)

        async def end() -> None:
            # Ends the log even if its node keeps the connection open.
            await self._over(lease, task, pod)
            await asyncio.sleep(LINGER)
            await queue.put(None)

        tasks = (asyncio.create_task(pump()), asyncio.create_task(end()))
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, Trouble):
                    raise item
                yield item
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _over(self, lease: Lease, task: int, read: Sighting) -> None:
        """Wait until a pod has ended or another one has replaced it."""
        with suppress(OutputGone):
            while (pod := self._find(lease, task)) is not None and pod.name == read.name and pod.lives:
                await self._changed()

    async def _log(self, pod: Sighting, offset: int, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield the log of a pod from a byte on."""
        containers = pod.pod.spec.containers
        params = {"container": containers[0].name} if containers else {}
        if follow:
            params["follow"] = "true"
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}/log"
        skip = offset
        async with aclosing(self._api.chunks(path, params, None if follow else SILENCE)) as chunks:
            async for chunk in chunks:
                if skip < len(chunk):
                    yield chunk[skip:] if skip else chunk
                skip = max(0, skip - len(chunk))

    def _find(self, lease: Lease, task: int) -> Sighting | None:
        """Return the newest pod of a task; None if there is none yet. Raise OutputGone if there will be none."""
        known = self._mirror.known(lease)
        pod = None if known is None else known.ranked.get(task)
        if pod is not None and not pod.there:
            raise OutputGone(f"pod {pod.name} was deleted, and its log with it")
        if pod is None and (known is None or known.job is None or known.over is not None):
            raise OutputGone("it has no pod on the cluster, and no log")
        return pod
