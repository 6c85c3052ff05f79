"""Python calls without the sending: what is pickled, which job it becomes, and what came of it. Both faces of the client use these."""

import pickle
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from spillover.client import asks
from spillover.client.asks import Ask
from spillover.client.documents import from_fields
from spillover.client.errors import CallFailed, RemoteError, WaitTimeout
from spillover.core import ranges
from spillover.core.ranges import Ranges
from spillover.forms.arrays import format_array
from spillover.forms.meaning import clean_name
from spillover.model.job import Range
from spillover.ports.blobs import digest_of
from spillover.wire.api import ResultPage, ResultView
from spillover.wire.items import MAGIC, pack_items

INLINE: Final = 64 << 10
"""Bytes of arguments that go with the job; more go as a blob."""
POLL: Final = 30.0
"""Seconds that one request waits for results."""
ASK_AGAIN: Final = 3600.0
"""Seconds after which the server may have dropped a blob that no job refers to; it keeps them for a day."""
MOST_RANGES: Final = 2_000
"""In one request."""


class Options(TypedDict, total=False):
    """Fields of the job that a call becomes, as `Client.submit` takes them."""

    name: str
    project: str
    labels: dict[str, str]
    cpu: int | float | str
    memory: int | str
    gpu: int
    walltime: str | timedelta
    estimate: str | timedelta
    grace: str | timedelta
    deadline: str
    not_before: str
    lost_after: str | timedelta
    priority: int
    queue: str
    burst: str
    max_cost: float | str
    needs: list[str]
    retry: dict[str, int]
    env: dict[str, str]
    workdir: str
    after: list[Any]
    key: str


class Parcel(NamedTuple):
    """A job, and the blobs that it needs."""

    doc: dict[str, Any]
    blobs: dict[str, bytes]
    """By their digests."""


def a_call(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: Options | None,
) -> Parcel:
    """One call as a job."""
    arguments = _pickled((tuple(args), dict(kwargs))) if args or kwargs else b""
    if len(arguments) <= INLINE:
        return _parcel(function, arguments, None, None, options)
    # What is large is the only item of a job that is no array.
    return _parcel(function, _pickled(((), dict(kwargs))) if kwargs else b"", [_pickled(args)], None, options)


def a_map(
    function: Callable[..., object],
    items: Iterable[tuple[object, ...]],
    kwargs: Mapping[str, object],
    options: Options | None,
) -> tuple[Parcel | None, int]:
    """Many calls as one array, and how many; None for none."""
    pickled = [_pickled(item) for item in items]
    if not pickled:
        return None, 0
    arguments = _pickled(((), dict(kwargs))) if kwargs else b""
    parcel = _parcel(function, arguments, pickled, f"0-{len(pickled) - 1}", options)
    return parcel, len(pickled)


def _parcel(
    function: Callable[..., object],
    arguments: bytes,
    items: list[bytes] | None,
    array: str | None,
    options: Options | None,
) -> Parcel:
    """A job of pickled things."""
    head = MAGIC + f"{sys.version_info[0]}.{sys.version_info[1]}\n".encode()
    pickled = head + _pickled(function)
    python: dict[str, Any] = {"function": digest_of(pickled)}
    blobs = {python["function"]: pickled}
    if arguments:
        python["arguments"] = arguments
    if items is not None:
        packed = pack_items(items)
        python["items"] = digest_of(packed)
        blobs[python["items"]] = packed
    name = clean_name(getattr(function, "__name__", type(function).__name__).strip("<>"))
    fields: dict[str, Any] = {"name": name, "key": f"call-{uuid.uuid4().hex}", **(options or {})}
    fields["python"] = python
    if array is not None:
        fields["array"] = array
    return Parcel(from_fields(fields), blobs)


def _pickled(value: object) -> bytes:
    """A value as bytes, functions of scripts and notebooks included."""
    import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - only who calls functions needs it

    pickled: bytes = cloudpickle.dumps(value, 5)
    return pickled


class Gathering:
    """Results of a job or of the members of an array, as they come."""

    def __init__(self, job: str, size: int | None) -> None:
        self.job = job
        self.size = size
        """Members; None for a job that is no array."""
        self.results: dict[int, ResultView] = {}
        """By index; 0 for a job that is no array."""
        self._left: Ranges = (Range(0, size - 1),) if size else ()

    @property
    def complete(self) -> bool:
        """Whether all have come."""
        return len(self.results) == (1 if self.size is None else self.size)

    def ask(self, seconds: float, first: int = 0) -> Ask[ResultPage]:
        """For those that are missing, from an index on."""
        members = None
        if self.size is not None:
            left = ranges.minus(self._left, (Range(0, first - 1),)) if first else self._left
            members = format_array(left[:MOST_RANGES])
        return asks.results(self.job, members, min(POLL, max(0.0, seconds)))

    def take(self, page: ResultPage) -> list[int]:
        """The indexes of those that are new."""
        new: list[int] = []
        for result in page.results:
            index = 0 if self.size is None else int(result.id.rpartition(".")[2])
            if index not in self.results:
                self.results[index] = result
                new.append(index)
        self._left = ranges.minus(self._left, ranges.merged(Range(index, index) for index in new))
        return new

    def late(self) -> WaitTimeout:
        """What is raised when they did not come in time."""
        return WaitTimeout([self.job])


def left(until: float | None, now: float) -> float:
    """Seconds until a time; many if there is none."""
    return POLL if until is None else until - now


def outcome(result: ResultView, value: bytes | None) -> object:
    """What a call returned; raises what it raised, or CallFailed."""
    failed = error_of(result, value)
    if failed is not None:
        raise failed
    return None if value is None else _loaded(value)


def error_of(result: ResultView, value: bytes | None) -> BaseException | None:
    """What a call raised, or why it did not return; None if it returned."""
    if result.state == "SUCCEEDED":
        return None
    if value is None:
        why = "" if result.reason is None else f": {result.reason.message}"
        return CallFailed(f"{result.id} {result.state}{why}", result.id, result.state)
    raised: Any = _loaded(value)
    if isinstance(raised, dict):
        return RemoteError(str(raised.get("error")), str(raised.get("traceback")), result.id, result.state)
    whole, said, trace = raised
    remote = RemoteError(said, trace, result.id, result.state)
    try:
        error = pickle.loads(whole)  # noqa: S301 - of the server that the caller trusts with the call
    except Exception:  # noqa: BLE001 - whatever it is, the text is there
        return remote
    if not isinstance(error, BaseException):
        return remote
    error.__cause__ = remote
    return error


def _loaded(value: bytes) -> object:
    """A value: pickled, or plain data as JSON."""
    if value.startswith(b"\x80"):
        return pickle.loads(value)  # noqa: S301 - as above
    return msgspec.json.decode(value)
