"""What takes more than one request, without the sending: waiting, following, repeating. Both faces of the client drive these."""

from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from spillover.client import asks
from spillover.client.asks import Ask
from spillover.client.errors import SpillError, Unavailable, Unreachable, WaitTimeout
from spillover.wire.api import EventView, JobView

T_co = TypeVar("T_co", covariant=True)
ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
POLL: Final = 30.0
"""Seconds that one request waits for a job to end."""
PERSIST: Final = 30.0
"""Seconds that a wait or a followed stream goes on without its server once it has begun."""
_FIRST: Final = 0.05
_MOST: Final = 1.0
"""Seconds between two attempts, at first and in the end."""


class Attempts:
    """How long to go on asking."""

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._until: float | None = None
        self._delay = _FIRST

    def succeeded(self, patience: float) -> None:
        """Begin anew, with this patience from the next failure on."""
        self._patience = max(patience, self._patience)
        self._until = None
        self._delay = _FIRST

    def after(self, error: SpillError, *, repeatable: bool) -> float:
        """Seconds until the next attempt; raises the error if there is none."""
        if isinstance(error, Unreachable):
            again = repeatable or not error.sent
        else:
            again = repeatable and isinstance(error, Unavailable) and error.kind != "internal"
        now = self._clock()
        if self._until is None:
            self._until = now + self._patience
        if not again or now >= self._until:
            raise error
        delay = min(max(self._delay, min(error.retry_after or 0.0, _MOST)), self._until - now)
        self._delay = min(2 * self._delay, _MOST)
        return delay


def waiting(
    refs: Sequence[str], timeout: float | None, clock: Callable[[], float]
) -> Generator[Ask[JobView], JobView, list[JobView]]:
    """Ask until every job has ended; sent each answer, it returns them all."""
    until = None if timeout is None else clock() + timeout
    most = 0.0  # the first answer comes at once: from then on, a server that goes away is waited for
    ended: list[JobView] = []
    for at, ref in enumerate(refs):
        name = ref
        while True:
            left = POLL if until is None else max(0.0, until - clock())
            view = yield asks.wait(name, min(most, left))
            most = POLL
            if view.state in ENDED:
                break
            if until is not None and clock() >= until:
                raise WaitTimeout(refs[at:])
            name = view.id  # a name may come to mean another job meanwhile
        ended.append(view)
    return ended


class Following(Protocol[T_co]):
    """A stream that can be taken up where it broke off."""

    def ask(self) -> Ask[bytes]:
        """For what has not been seen yet."""
        ...

    def take(self, chunk: bytes) -> Sequence[T_co]:
        """What a piece of it holds."""
        ...

    def broke(self) -> None:
        """Forget half of what was being read."""
        ...


class Output:
    """Output of a job, taken up at its byte."""

    def __init__(self, ref: str, *, follow: bool, stderr: bool, attempt: int | None, task: int) -> None:
        self._ref = ref
        self._follow = follow
        self._stderr = stderr
        self._attempt = attempt
        self._task = task
        self._seen = 0

    def ask(self) -> Ask[bytes]:
        """For the bytes that are still missing."""
        return asks.logs(
            self._ref,
            follow=self._follow,
            stderr=self._stderr,
            attempt=self._attempt,
            task=self._task,
            offset=self._seen,
        )

    def take(self, chunk: bytes) -> Sequence[bytes]:
        """The bytes as they are."""
        self._seen += len(chunk)
        return (chunk,) if chunk else ()

    def broke(self) -> None:
        """Bytes are never half."""


class History:
    """Events, taken up after the last revision."""

    def __init__(self, after: int | None, *, follow: bool, job: str | None) -> None:
        self._after = after
        self._follow = follow
        self._job = job
        self._rest = b""
        self._decode = msgspec.json.Decoder(EventView).decode

    def ask(self) -> Ask[bytes]:
        """For what is newer than the last event."""
        return asks.events(after=self._after, follow=self._follow, job=self._job)

    def take(self, chunk: bytes) -> Sequence[EventView]:
        """The events of all lines that are complete; empty lines only show that the server is there."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        try:
            events = [self._decode(line) for line in lines if line]
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unavailable(
                "what answers there is not a Spillover server of this version", kind="internal"
            ) from None
        if events:
            self._after = events[-1].revision
        return events

    def broke(self) -> None:
        """Half a line is asked for again."""
        self._rest = b""
