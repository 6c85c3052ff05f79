"""Collects results of Python calls, without I/O. The handles of both clients run these operations."""

import pickle
import time
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from spillover.client import asks
from spillover.client.asks import Ask, ask
from spillover.client.blobs import Blob
from spillover.client.errors import CallCancelled, CallFailed, RemoteError, SpillError, WaitTimeout
from spillover.client.flows import ReadingFlow
from spillover.client.steps import Flow
from spillover.forms.jobs.arrays import format_array
from spillover.model import ranges
from spillover.model.job import Range
from spillover.model.ranges import Ranges
from spillover.wire import endpoints
from spillover.wire.api import ResultPage, ResultView
from spillover.wire.parameters import OfJob

POLL: Final = 30.0
"""Seconds that one request waits for results."""
MOST_CAUSES: Final = 20
"""Most steps back in a graph of calls to find the one that failed first."""
REASON: Final = 5.0
"""Seconds to ask why a call has not ended yet."""
MOST_RANGES: Final = 2_000
"""Most ranges of indexes in one request."""


class Outcome(NamedTuple):
    """How a call ended."""

    result: ResultView
    value: bytes | None
    """What it returned or raised, encoded; None if there is neither."""


class Gathering:
    """Collects the results of a job, or of the members of an array."""

    def __init__(self, job: str, size: int | None, label: str = "") -> None:
        self.job = job
        self.label = label
        """The call as people write it, such as `simulate(7)`; empty if it is not known."""
        self.size = size
        """Number of members; None if the job is not an array."""
        self.results: dict[int, ResultView] = {}
        """By index; 0 if the job is not an array."""
        self._left: Ranges = (Range(0, size - 1),) if size else ()

    @property
    def complete(self) -> bool:
        """Whether all results are here."""
        return len(self.results) == (1 if self.size is None else self.size)

    def ask(self, seconds: float, first: int = 0) -> Ask[ResultPage] | None:
        """Ask for missing results from an index on; None if there are none, as another thread may have read them."""
        members = None
        if self.size is not None:
            left = ranges.minus(self._left, (Range(0, first - 1),)) if first else self._left
            if not left:
                return None
            members = format_array(left[:MOST_RANGES])
        return asks.results(self.job, members, min(POLL, max(0.0, seconds)))

    def take(self, page: ResultPage) -> list[int]:
        """Store results; return the indexes of new ones."""
        came: list[int] = []
        new: list[int] = []
        for result in page.results:
            index = 0 if self.size is None else int(result.id.rpartition(".")[2])
            came.append(index)
            if index not in self.results:
                self.results[index] = result
                new.append(index)
        # Subtract all received indexes, not only the new ones: of two threads here, one may overwrite the other's
        # change.
        self._left = ranges.minus(self._left, ranges.merged(Range(index, index) for index in came))
        return new

    def more(self, seconds: float, first: int = 0) -> Flow[list[int]]:
        """Fetch results of ended calls from an index on; if there are none, wait up to this many seconds."""
        wanted = self.ask(seconds, first)
        if wanted is None:
            return []
        page = yield from wanted
        return self.take(page)

    def ended(self, index: int, timeout: float | None) -> Flow[ResultView | None]:
        """Return how a call ended; None if it did not in time."""
        until = _until(timeout)
        while index not in self.results:
            seconds = _left(until)
            yield from self.more(seconds, index)
            if seconds <= 0:
                break
        return self.results.get(index)

    def value(self, index: int, timeout: float | None) -> Flow[Any]:
        """Return the value of a call; raise what it raised, CallFailed or WaitTimeout."""
        result, value = yield from self.outcome(index, timeout)
        return outcome_of(result, value)

    def error(self, index: int, timeout: float | None) -> Flow[BaseException | None]:
        """Return what a call raised, or why it did not return; None if it returned."""
        result, value = yield from self.outcome(index, timeout)
        return error_of(result, value)

    def values(self, timeout: float | None) -> Flow[list[Any]]:
        """Return all values in order; raise what the first failed call raised."""
        until, values = _until(timeout), []
        for index in range(self.size or 0):
            rest = None if until is None else max(0.0, until - time.monotonic())
            values.append((yield from self.value(index, rest)))
        return values

    def over(self) -> Flow[bool]:
        """Return whether all have ended, without waiting."""
        while not self.complete:
            if not (yield from self.more(0.0)):
                break
        return self.complete

    def cancel(self, index: int | None = None) -> Flow[None]:
        """Cancel one call, or all that have not ended; do nothing if there is no job."""
        if self.job:
            yield from asks.act("cancel", [self.id_of(index)])

    def id_of(self, index: int | None) -> str:
        """Return the id of a member, or of the job itself."""
        return self.job if self.size is None or index is None else f"{self.job}.{index}"

    def outcome(self, index: int, timeout: float | None) -> Flow[Outcome]:
        """Return how a call ended, and its encoded value or exception; None if it has neither."""
        result = yield from self.ended(index, timeout)
        if result is None:
            raise (yield from self.late(index))
        if result.reason is not None and result.reason.code == "dependency_failed":
            cause = yield from _cause_of(str(result.reason.details.get("job")))
            reason = structs.replace(result.reason, message=f"{result.reason.message}{cause}")
            return Outcome(structs.replace(result, reason=reason), result.value)
        if result.value_digest is None:
            return Outcome(result, result.value)
        pieces: list[bytes] = []
        yield from ReadingFlow(Blob(result.value_digest), pieces.append)
        return Outcome(result, b"".join(pieces))

    def late(self, index: int | None = None) -> Flow[WaitTimeout]:
        """Return the error for results that did not come in time. It says what the job waits for, or where it runs."""
        job = self.id_of(index)
        try:
            why = (yield from ask(endpoints.WHY, OfJob(job), seconds=REASON)).sentence
        except SpillError as error:
            why = str(error)
        return WaitTimeout([job], why)


class Endings:
    """Yields calls of a map in the order in which they end."""

    def __init__(self, gathering: Gathering, timeout: float | None) -> None:
        self._gathering = gathering
        self._until = _until(timeout)
        self._told: dict[int, None] = {}

    def more(self) -> Flow[list[int]]:
        """Return the indexes of newly ended calls; empty when all were returned. Raise WaitTimeout."""
        gathering = self._gathering
        new = self._untold()
        while not new and len(self._told) < (gathering.size or 0):
            seconds = _left(self._until)
            yield from gathering.more(seconds)
            new = self._untold()
            if not new and seconds <= 0:
                raise (yield from gathering.late())
        self._told.update(dict.fromkeys(new))
        return new

    def _untold(self) -> list[int]:
        """Return the indexes of results that were not returned yet, also those that others fetched."""
        return sorted(self._gathering.results.keys() - self._told.keys())


def _cause_of(job: str) -> Flow[str]:
    """Return what the call raised that failed first of those that a call needed; empty if that is not known."""
    for back in range(MOST_CAUSES):
        try:
            (result,) = (yield from asks.results(job, None, 0.0)).results
        except (SpillError, ValueError):  # it is an array, or was deleted
            return ""
        reason = result.reason
        if reason is None or reason.code != "dependency_failed":
            error = error_of(result, result.value)
            first = str(error).partition("\n")[0]
            return f"{f', because of {job}' if back else ''}: {type(error).__name__}: {first}"
        job = str(reason.details.get("job"))
    return ""


def outcome_of(result: ResultView, value: bytes | None) -> object:
    """Return the value of a call; raise what it raised, or CallFailed."""
    failed = error_of(result, value)
    if failed is not None:
        raise failed
    return None if value is None else _loaded(value)


def error_of(result: ResultView, value: bytes | None) -> BaseException | None:
    """Return what a call raised, or why it did not return; None if it returned."""
    if result.state == "SUCCEEDED":
        return None
    if value is None:
        why = "" if result.reason is None else f": {result.reason.message}"
        kind = CallCancelled if result.state == "CANCELLED" else CallFailed
        return kind(f"{result.id} {result.state}{why}", result.id, result.state)
    raised: Any = _loaded(value)
    if isinstance(raised, dict):
        return RemoteError(str(raised.get("error")), str(raised.get("traceback")), result.id, result.state)
    whole, said, trace = raised
    if not whole and not trace:
        return _not_made(result, said)
    remote = RemoteError(said, trace, result.id, result.state)
    try:
        error = pickle.loads(whole)  # noqa: S301 - from the server that the caller trusts with the call
    except Exception:  # noqa: BLE001 - whatever fails, the text remains
        return remote
    if not isinstance(error, BaseException):
        return remote
    if type(error).__module__.startswith(
        "spillover.agent."
    ):  # agents of earlier releases sent their own errors
        return _not_made(result, str(error))
    error.__cause__ = remote
    return error


def _not_made(result: ResultView, why: str) -> CallFailed:
    """Return the error of a call that the agent could not make."""
    return CallFailed(f"{result.id} {result.state}: {why}", result.id, result.state)


def _loaded(value: bytes) -> object:
    """Decode a value: pickled, or plain data as JSON."""
    if value.startswith(b"\x80"):
        return pickle.loads(value)  # noqa: S301 - as above
    return msgspec.json.decode(value)


def _until(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(until: float | None) -> float:
    """Return the seconds until a time; POLL if there is none."""
    return POLL if until is None else until - time.monotonic()
