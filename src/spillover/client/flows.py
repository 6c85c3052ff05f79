"""What takes more than one request, without the sending: waiting, following, repeating. Both faces of the client drive these."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from spillover.client import asks
from spillover.client.asks import BULK, Ask, ask, moment
from spillover.client.errors import SpillError, Unavailable, Unreachable, WaitTimeout
from spillover.client.steps import ClientStep
from spillover.wire import endpoints
from spillover.wire.api import EventView, JobPage, JobView, PastJob, ServerView
from spillover.wire.parameters import EventsQuery, LogsQuery, PastQuery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"})
POLL: Final = 30.0
"""Seconds that one request waits for a job to end."""
PERSIST: Final = 30.0
"""Seconds that a wait or a followed stream goes on without its server once it has begun."""
PAUSE: Final = 1.0
"""Seconds until a stream is asked for again that ended though there should be more of it."""
LIMITED_TRIES: Final = 5
LIMITED_PAUSE: Final = 30.0
"""How often a server that takes no more now is asked again, and the most seconds that it may ask for between."""
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
        self._limited = 0
        """How often the server took no more."""

    def succeeded(self, patience: float) -> None:
        """Begin anew, with this patience from the next failure on."""
        self._patience = max(patience, self._patience)
        self._until = None
        self._delay = _FIRST

    def after(self, error: SpillError, *, repeatable: bool) -> float:
        """Seconds until the next attempt; raises the error if there is none.

        A server that takes no more now is asked again when it says, for a few times however much patience there is.
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
    """What is read as streams, one after the other, each of which can be taken up where it broke off."""

    @property
    def over(self) -> bool:
        """Whether all of it was read."""
        ...

    def look(self) -> Ask[Any] | None:
        """What to ask before it can go on; None when nothing is."""
        ...

    def looked(self, view: Any) -> None:
        """The answer to that."""
        ...

    def ask(self) -> Ask[bytes]:
        """For what has not been seen yet."""
        ...

    def take(self, chunk: bytes) -> Sequence[T_co]:
        """What a piece of it holds."""
        ...

    def broke(self) -> None:
        """Forget half of what was being read."""
        ...

    def ended(self) -> None:
        """A stream was read to its end."""
        ...


@dataclass(frozen=True, slots=True)
class ReadingFlow(ClientStep[None]):
    """Something that is read to its end, piece by piece."""

    flow: Following[Any]
    take: Callable[[Any], None]
    """Is given each piece; may take a while, as writing to a disk does."""


class Pages:
    """Jobs, page by page as they are asked for."""

    def __init__(self, ask: Callable[[int, str | None], Ask[JobPage]], limit: int | None) -> None:
        self._ask = ask
        """For a page of so many, from a cursor on."""
        self._left = limit
        """How many more are wanted; None for all."""
        self._cursor: str | None = None
        self._over = False

    def ask(self) -> Ask[JobPage] | None:
        """For the next page; None if there is none, or nobody wants it."""
        if self._over or self._left == 0:
            return None
        return self._ask(min(self._left or asks.MOST_PAGE, asks.MOST_PAGE), self._cursor)

    def take(self, page: JobPage) -> Sequence[JobView]:
        """The jobs of a page."""
        self._cursor, self._over = page.next, page.next is None
        if self._left is not None:
            self._left = max(0, self._left - len(page.jobs))
        return page.jobs


class OutputFlow:
    """Output of a job, taken up at its byte.

    A byte has its place in one attempt. So without a given attempt, those from the newest on are followed one by one, until
    the job says that there is no other.
    """

    def __init__(self, ref: str, *, follow: bool, stderr: bool, attempt: int | None, task: int) -> None:
        self._ref = ref
        self._follow = follow
        self._stderr = stderr
        self._attempt = attempt
        """None until it is known, and for the newest that does not have to be known."""
        self._task = task
        self._through = follow and attempt is None
        """Whether to go on with the next attempt."""
        self._seen = 0
        """Bytes of this attempt."""
        self._looking = self._through
        self._pause = 0.0
        """Seconds that the next look may wait for the job's end."""
        self.over = False

    def look(self) -> Ask[JobView] | None:
        """How far the job is, before the first attempt and after each."""
        return asks.wait(self._ref, self._pause) if self._looking else None

    def looked(self, view: JobView) -> None:
        """Go to the next attempt, if there is one."""
        self._looking = False
        self._ref = view.id  # a name may come to mean another job meanwhile
        if self._attempt is None:
            placed = view.cluster is not None
            self._attempt = view.attempt if placed else max(1, view.attempt - 1)
        elif view.attempt > self._attempt:
            self._attempt, self._seen, self._pause = self._attempt + 1, 0, 0.0
        elif view.state in ENDED:
            self.over = True
        else:
            self._pause = PAUSE  # its stream ended too early: do not ask for it without end

    def ask(self) -> Ask[bytes]:
        """For the bytes that are still missing."""
        stream: Literal["stdout", "stderr"] = "stderr" if self._stderr else "stdout"
        return asks.logs(LogsQuery(self._ref, stream, self._attempt, self._task, self._seen, self._follow))

    def take(self, chunk: bytes) -> Sequence[bytes]:
        """The bytes as they are."""
        self._seen += len(chunk)
        return (chunk,) if chunk else ()

    def broke(self) -> None:
        """Bytes are never half."""

    def ended(self) -> None:
        """An attempt was read to its end."""
        self._looking = self._through
        self.over = not self._through


class HistoryFlow:
    """Events, taken up after the last revision; following without one, from now on."""

    def __init__(self, after: int | None, *, follow: bool, job: str | None) -> None:
        self._after = after
        self._follow = follow
        self._job = job
        self._rest = b""
        self._decode = msgspec.json.Decoder(EventView).decode
        self.over = False

    def look(self) -> Ask[ServerView] | None:
        """Where history ends, once: what comes while a broken stream is taken up again is not missed then."""
        return ask(endpoints.SERVER) if self._follow and self._after is None else None

    def looked(self, view: ServerView) -> None:
        """Begin behind that."""
        self._after = view.revision

    def ask(self) -> Ask[bytes]:
        """For what is newer than the last event."""
        return asks.events(EventsQuery(self._after, self._follow, self._job))

    def take(self, chunk: bytes) -> Sequence[EventView]:
        """The events of all lines that are complete; empty lines only show that the server is there."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = _decoded(lines, self._decode)
        if events:
            self._after = events[-1].revision
        return events

    def broke(self) -> None:
        """Half a line is asked for again."""
        self._rest = b""

    def ended(self) -> None:
        """All was told."""
        self.over = True


class Past:
    """Jobs that have ended; read from the beginning when it breaks off, without those that were given before."""

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
        """Nothing has to be known."""

    def looked(self, view: JobView) -> None:
        """Nothing was asked."""

    def ask(self) -> Ask[bytes]:
        """For all of them."""
        return ask(endpoints.PAST, self._query, seconds=BULK)

    def take(self, chunk: bytes) -> Sequence[PastJob]:
        """The jobs of all lines that are complete, as far as they are new."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        seen = self._seen
        jobs = [job for job in _decoded(lines, self._decode) if job.id not in seen]
        seen.update(job.id for job in jobs)
        return jobs

    def broke(self) -> None:
        """Half a line is asked for again."""
        self._rest = b""

    def ended(self) -> None:
        """All was told."""
        self.over = True


def _decoded(lines: Sequence[bytes], decode: Callable[[bytes], T]) -> list[T]:
    """What lines hold; empty ones only show that the server is there."""
    try:
        return [decode(line) for line in lines if line]
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable(
            "what answers there is not a Spillover server of this version", kind="internal"
        ) from None
