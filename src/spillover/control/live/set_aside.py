"""Sets work of controllers aside that failed unexpectedly, so that other work continues, and tries it again later.

Controllers handle errors of stores and commands themselves. Any other error is a bug or unforeseen data, and must
affect only its own job. This is not durable: after a restart, the work fails and is set aside again.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

from spillover.model.backoff import Backoff, Failed
from spillover.model.units import SECOND

log = structlog.get_logger()

SETTLED: Final = 60.0
"""Seconds after which a restarted controller counts as working."""

SHORTEST: Final = 0.1
"""Least seconds between two tries, so that no failure keeps a core busy."""

CALLS: Final = 12
"""Calls of a traceback to log."""


class SetAside:
    """Failed work and when to try it again, on the monotonic clock."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._backoff = Backoff()

    def __len__(self) -> int:
        return len(self._backoff)

    def __iter__(self) -> Iterator[Failed]:
        return iter(self._backoff)

    def put(self, work: str, subject: str, error: BaseException) -> Failed:
        """Set work aside; log the traceback the first time."""
        failed = self._backoff.put(work, subject, error, self._monotonic())
        log.error(
            "unexpected error; set aside",
            work=work,
            subject=subject,
            reason=failed.reason,
            tries=failed.tries,
            again_in=f"{self.left(failed):.0f}s",
            **({"exception": trace_of(error)} if failed.tries == 1 else {}),
        )
        return failed

    def done(self, work: str, subject: str) -> None:
        """Remove work that succeeded or is no longer needed."""
        self._backoff.done(work, subject)

    def waits(self, work: str, subject: str) -> bool:
        """Return whether work is set aside and not due yet."""
        return bool(self._backoff) and self._backoff.waits(work, subject, self._monotonic())

    def of(self, work: str) -> list[Failed]:
        """Return all failures of one kind of work."""
        return [each for each in self._backoff if each.work == work]

    def left(self, failed: Failed) -> float:
        """Return the seconds until a try is due."""
        return max(0.0, (failed.next_try - self._monotonic()) / SECOND)

    def pause(self, work: str) -> float | None:
        """Return the seconds until the next try of this work for a job; None if no job is set aside."""
        left = [self.left(each) for each in self.of(work) if each.subject]
        return max(SHORTEST, min(left)) if left else None


def trace_of(error: BaseException) -> str:
    """Return the last calls of a traceback as text; the whole could hold everything the server knows."""
    return "".join(traceback.format_exception(error, limit=-CALLS)).rstrip()


async def surviving(work: str, run: Callable[[], Awaitable[None]], aside: SetAside) -> None:
    """Run a controller until cancelled; restart it after a pause if it fails as a whole."""
    while True:
        settled = asyncio.get_running_loop().call_later(SETTLED, aside.done, work, "")
        try:
            return await run()
        except Exception as error:  # noqa: BLE001 - it handles expected errors itself
            failed = aside.put(work, "", error)
        finally:
            settled.cancel()
        await asyncio.sleep(aside.left(failed))
