"""Lets callers wait until jobs have ended."""

import asyncio
import contextlib
from collections.abc import Sequence

from spillover.control.live.loop import Loop
from spillover.control.requests.lookup import is_among
from spillover.core.events import AnyEvent, JobEnded, MembersDropped
from spillover.model.ids import JobId


class EndsOfJobs:
    """The callers that wait, by job."""

    def __init__(self, loop: Loop) -> None:
        self.waiting: dict[JobId, list[asyncio.Future[None]]] = {}
        """What each caller waits for, by job."""
        loop.listen(self._see)

    async def wait(self, job: JobId, timeout: float) -> None:  # noqa: ASYNC109 - to return then is an answer here
        """Return once a job has ended, or after `timeout` seconds."""
        await self.wait_any([job], timeout)

    async def wait_any(self, jobs: Sequence[JobId], timeout: float) -> None:  # noqa: ASYNC109 - as above
        """Return once one of these jobs has ended, or after `timeout` seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for job in jobs:
            self.waiting.setdefault(job, []).append(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await future
        finally:
            for job in jobs:
                waiting = self.waiting.get(job, [])
                if future in waiting:
                    waiting.remove(future)
                if not waiting:
                    self.waiting.pop(job, None)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Wake callers that wait for jobs that have ended."""
        if not self.waiting:
            return
        for event in events:
            match event:
                case JobEnded():
                    self._wake(event.job)
                case MembersDropped():
                    for job in [each for each in self.waiting if is_among(each, event)]:
                        self._wake(job)
                case _:
                    pass

    def _wake(self, job: JobId) -> None:
        for future in self.waiting.pop(job, ()):
            if not future.done():
                future.set_result(None)
