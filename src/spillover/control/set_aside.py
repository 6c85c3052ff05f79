"""Work of controllers that failed for a reason nobody foresaw: it is set aside, the others go on, and it is tried again later.

What a store or a command answers is foreseen, and each controller knows what to do about it. All else is a fault of ours or data that
nobody thought of, and must not cost more than the job that it is about. Nothing of this is durable: after a restart it fails again,
and is set aside again.
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
"""Seconds after which a controller that was started again counts as one that works."""

SHORTEST: Final = 0.1
"""Seconds between two tries, whatever is wrong: nothing here may keep a processor busy."""

CALLS: Final = 12
"""Of a traceback, how many calls are shown."""


class SetAside:
    """All that is set aside, on the monotonic clock."""

    def __init__(self, monotonic: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._backoff = Backoff()

    def __len__(self) -> int:
        return len(self._backoff)

    def __iter__(self) -> Iterator[Failed]:
        return iter(self._backoff)

    def put(self, work: str, subject: str, error: BaseException) -> Failed:
        """Set something aside; the first time says where it failed."""
        failed = self._backoff.put(work, subject, error, self._monotonic())
        log.error(
            "failed on something unforeseen; set aside",
            work=work,
            subject=subject,
            reason=failed.reason,
            tries=failed.tries,
            again_in=f"{self.left(failed):.0f}s",
            **({"exception": trace_of(error)} if failed.tries == 1 else {}),
        )
        return failed

    def done(self, work: str, subject: str) -> None:
        """It went well, or need not be done any more."""
        self._backoff.done(work, subject)

    def waits(self, work: str, subject: str) -> bool:
        """Whether something is set aside and not to be tried yet."""
        return bool(self._backoff) and self._backoff.waits(work, subject, self._monotonic())

    def of(self, work: str) -> list[Failed]:
        """All that is set aside of some work."""
        return [each for each in self._backoff if each.work == work]

    def left(self, failed: Failed) -> float:
        """Seconds until something may be tried again."""
        return max(0.0, (failed.next_try - self._monotonic()) / SECOND)

    def pause(self, work: str) -> float | None:
        """Seconds until this work may be tried again for some job; None if it is set aside for none."""
        left = [self.left(each) for each in self.of(work) if each.subject]
        return max(SHORTEST, min(left)) if left else None


def trace_of(error: BaseException) -> str:
    """Where something failed, for a log: the last calls alone, and as text, as what they hold may be all that the server knows."""
    return "".join(traceback.format_exception(error, limit=-CALLS)).rstrip()


async def surviving(work: str, run: Callable[[], Awaitable[None]], aside: SetAside) -> None:
    """Run a controller until cancelled; one that fails as a whole is set aside and started again."""
    while True:
        settled = asyncio.get_running_loop().call_later(SETTLED, aside.done, work, "")
        try:
            return await run()
        except Exception as error:  # noqa: BLE001 - what it foresees it deals with itself
            failed = aside.put(work, "", error)
        finally:
            settled.cancel()
        await asyncio.sleep(aside.left(failed))
