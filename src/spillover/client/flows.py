"""Operations of several requests, without I/O: waiting, following, retrying. Both clients run them."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from spillover.client import asks
from spillover.client.asks import BULK, Ask, ask, moment
from spillover.client.errors import SpillError, Unavailable, Unreachable, WaitTimeout
from spillover.client.steps import ClientStep
from spillover.wire import endpoints
from spillover.wire.api import EventView, JobView, PastJob, ServerView
from spillover.wire.parameters import EventsQuery, LogsQuery, PastQuery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
POLL: Final = 30.0
"""Seconds that one request waits for a job to end."""
PERSIST: Final = 30.0
"""Seconds that a wait or a followed stream survives without its server, once it has begun."""
PAUSE: Final = 1.0
"""Seconds before a stream that ended too early is requested again."""
LIMITED_TRIES: Final = 5
LIMITED_PAUSE: Final = 30.0
"""Most retries while the server accepts no more, and the longest pause in seconds that it may ask for."""
_FIRST: Final = 0.05
_MOST: Final = 1.0
"""First and longest pause between retries, in seconds."""


class Attempts:
    """Decides whether and when to retry."""

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._until: float | None = None
        self._delay = _FIRST
        self._limited = 0
        """How often the server accepted no more."""

    def succeeded(self, patience: float) -> None:
        """Reset after a success; from the next failure on, retry for at least this long."""
        self._patience = max(patience, self._patience)
        self._until = None
        self._delay = _FIRST

    def after(self, error: SpillError, *, repeatable: bool) -> float:
        """Return the seconds until the next try; raise the error if there is none.

        If the server accepts no more now, retry at the time that it names, a few times whatever the patience is.
        """
        if (
            isinstance(error, Unavailable)
            and error.kind == "limited"
            and repeatable
            and error.retry_after is not None
        ):
            self._limited += 1
            if self._limited > LIMITED_TRIES or error.retry_after > LIMITED_PAUSE:
                raise error
            return max(_FIRST, error.retry_after)
        # A request that was not sent, or that is repeatable, cannot take effect twice.
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
    """Wait until every job has ended; return their final states."""
    until = None if timeout is None else clock() + timeout
    most = 0.0  # the first answer comes at once; after it, the wait survives a restart of the server
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
            name = view.id  # the name may soon belong to another job
        ended.append(view)
    return ended


class Following(Protocol[T_co]):
    """Something read as a sequence of streams, each of which can resume where it broke off."""

    @property
    def over(self) -> bool:
        """Whether everything was read."""
        ...

    def look(self) -> Ask[Any] | None:
        """Return a request to send before the next stream; None if there is none."""
        ...

    def looked(self, view: Any) -> None:
        """Process the answer to that request."""
        ...

    def ask(self) -> Ask[bytes]:
        """Return the request for the part that was not read yet."""
        ...

    def take(self, chunk: bytes) -> Sequence[T_co]:
        """Return the items of a chunk."""
        ...

    def broke(self) -> None:
        """Drop an incomplete item after the stream broke."""
        ...

    def ended(self) -> None:
        """Process the end of a stream."""
        ...


@dataclass(frozen=True, slots=True)
class ReadingFlow(ClientStep[None]):
    """A step that reads a flow to its end."""

    flow: Following[Any]
    take: Callable[[Any], None]
    """Receives each piece; may block, such as for writing to a disk."""


class Page(Protocol):
    """A part of a list."""

    @property
    def next(self) -> str | None:
        """Cursor of the next page; None on the last page."""
        ...


P = TypeVar("P", bound=Page)
Item = TypeVar("Item")


class Pages(Generic[P, Item]):
    """Lists something page by page, on demand."""

    def __init__(
        self,
        ask: Callable[[int, str | None], Ask[P]],
        items: Callable[[P], Sequence[Item]],
        limit: int | None,
    ) -> None:
        self._ask = ask
        """Builds the request for a page of this size from a cursor on."""
        self._items = items
        """Returns what is on a page."""
        self._left = limit
        """How many more items to return; None for all."""
        self._cursor: str | None = None
        self._over = False

    def ask(self) -> Ask[P] | None:
        """Return the request for the next page; None after the last, or if the limit is reached."""
        if self._over or self._left == 0:
            return None
        return self._ask(min(self._left or asks.MOST_PAGE, asks.MOST_PAGE), self._cursor)

    def take(self, page: P) -> Sequence[Item]:
        """Return what is on a page."""
        found = self._items(page)
        self._cursor, self._over = page.next, page.next is None
        if self._left is not None:
            self._left = max(0, self._left - len(found))
        return found


class OutputFlow:
    """Output of a job; resumes at its last byte.

    An offset is valid within one attempt. So without a given attempt, the flow follows the newest attempt and then each
    later one, until the job has ended.
    """

    def __init__(self, ref: str, *, follow: bool, stderr: bool, attempt: int | None, task: int) -> None:
        self._ref = ref
        self._follow = follow
        self._stderr = stderr
        self._attempt = attempt
        """None until it is known, or if the server should choose."""
        self._task = task
        self._through = follow and attempt is None
        """Whether to continue with the next attempt."""
        self._seen = 0
        """Bytes read of this attempt."""
        self._looking = self._through
        self._pause = 0.0
        """Seconds that the next look may wait for the job to end."""
        self.over = False

    def look(self) -> Ask[JobView] | None:
        """Ask for the state of the job, before the first attempt and after each."""
        return asks.wait(self._ref, self._pause) if self._looking else None

    def looked(self, view: JobView) -> None:
        """Move on to the next attempt, if there is one."""
        self._looking = False
        self._ref = view.id  # the name may soon belong to another job
        if self._attempt is None:
            placed = view.cluster is not None
            self._attempt = view.attempt if placed else max(1, view.attempt - 1)
        elif view.attempt > self._attempt:
            self._attempt, self._seen, self._pause = self._attempt + 1, 0, 0.0
        elif view.state in ENDED:
            self.over = True
        else:
            self._pause = PAUSE  # its stream ended too early: pause before asking again

    def ask(self) -> Ask[bytes]:
        """Ask for the missing bytes."""
        stream: Literal["stdout", "stderr"] = "stderr" if self._stderr else "stdout"
        return asks.logs(LogsQuery(self._ref, stream, self._attempt, self._task, self._seen, self._follow))

    def take(self, chunk: bytes) -> Sequence[bytes]:
        """Return the bytes unchanged."""
        self._seen += len(chunk)
        return (chunk,) if chunk else ()

    def broke(self) -> None:
        """Do nothing: bytes need no cleanup."""

    def ended(self) -> None:
        """Look for the next attempt, or finish."""
        self._looking = self._through
        self.over = not self._through


class HistoryFlow:
    """Events; resumes after the last revision. With `follow` and no revision, starts at the current end."""

    def __init__(self, query: EventsQuery) -> None:
        self._query = query
        self._after = query.after
        self._rest = b""
        self._decode = msgspec.json.Decoder(EventView).decode
        self.over = False

    def look(self) -> Ask[ServerView] | None:
        """Ask for the end of the history, once, so that a reconnect misses no events."""
        asked = self._query
        return ask(endpoints.SERVER) if asked.follow and self._after is None and asked.since is None else None

    def looked(self, view: ServerView) -> None:
        """Start after that revision."""
        self._after = view.revision

    def ask(self) -> Ask[bytes]:
        """Ask for events after the last one."""
        return asks.events(replace(self._query, after=self._after))

    def take(self, chunk: bytes) -> Sequence[EventView]:
        """Return the events of complete lines; empty lines only keep the stream alive."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = _decoded(lines, self._decode)
        if events:
            self._after = events[-1].revision
        return events

    def broke(self) -> None:
        """Drop half a line; it will be requested again."""
        self._rest = b""

    def ended(self) -> None:
        """Finish."""
        self.over = True


class Past:
    """Finished jobs. After a break, starts again from the beginning and skips jobs that were returned before."""

    def __init__(
        self,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        ended_since: str | datetime | None = None,
    ) -> None:
        self._query = PastQuery(moment(since), moment(until), moment(ended_since))
        self._seen: set[str] = set()
        self._rest = b""
        self._decode = msgspec.json.Decoder(PastJob).decode
        self.over = False

    def look(self) -> None:
        """Return None: nothing to ask first."""

    def looked(self, view: JobView) -> None:
        """Do nothing."""

    def ask(self) -> Ask[bytes]:
        """Ask for all of them."""
        return ask(endpoints.PAST, self._query, seconds=BULK)

    def take(self, chunk: bytes) -> Sequence[PastJob]:
        """Return the new jobs of complete lines."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        seen = self._seen
        jobs = [job for job in _decoded(lines, self._decode) if job.id not in seen]
        seen.update(job.id for job in jobs)
        return jobs

    def broke(self) -> None:
        """Drop half a line; it will be requested again."""
        self._rest = b""

    def ended(self) -> None:
        """Finish."""
        self.over = True


def _decoded(lines: Sequence[bytes], decode: Callable[[bytes], T]) -> list[T]:
    """Decode lines; skip empty ones, which only keep the stream alive."""
    try:
        return [decode(line) for line in lines if line]
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(
            "the program that answers there is not a Spillover server of this version", kind="internal"
        ) from None
