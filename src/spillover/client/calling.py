"""Turns Python calls into jobs: pickles functions and arguments. Does no I/O; both clients use it."""

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from spillover.client import asks, transfers
from spillover.client.asks import ask
from spillover.client.blobs import Upload
from spillover.client.documents import from_fields
from spillover.client.errors import Refused
from spillover.client.gathering import Gathering
from spillover.client.showing import label_of
from spillover.client.steps import Flow
from spillover.forms.jobs.meaning import clean_name
from spillover.model.admission import ENVIRONMENT
from spillover.model.units import format_memory
from spillover.ports.blobs import digest_of
from spillover.wire import endpoints
from spillover.wire.items import MAGIC, pack_items
from spillover.wire.parameters import OfJob

if TYPE_CHECKING:
    from spillover.client.earlier import EarlierCalls

INLINE: Final = 64 << 10
"""Most bytes of arguments inside a job; larger ones become a blob."""
ASK_AGAIN: Final = 3600.0
"""Seconds after which to check again that the server has a blob; it keeps unused ones for a day."""

log = logging.getLogger("spillover.client")


class CallOptions(TypedDict, total=False):
    """Fields of the job of a call, as in `Client.submit`."""

    name: str
    project: str
    labels: dict[str, str]
    cpu: int | float | str
    memory: int | str
    gpu: int
    walltime: str | timedelta
    signal_before: str | timedelta
    signal: str
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
    inputs: list[str | PathLike[str] | dict[str, Any]]
    outputs: list[str]
    after: list[Any]
    key: str
    hold: bool
    singleton: bool
    keep_state: bool
    secrets: list[str | dict[str, Any]]
    environment: dict[str, Any]
    notify: list[str | dict[str, Any]]
    at_a_time: int
    """Of a map: most calls that are placed at a time; without it all are."""


class Parcel(NamedTuple):
    """A job and the blobs that it needs."""

    doc: dict[str, Any]
    blobs: dict[str, bytes]
    """By digest."""
    label: str = ""
    """The call as people write it."""


def a_call(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: CallOptions | None,
) -> Parcel:
    """Return the job of one call."""
    _check_function(function)
    label, calls = label_of(name_of(function), tuple(args), kwargs), _earlier_calls()
    arguments = calls.pickled((tuple(args), dict(kwargs))) if args or kwargs else b""
    if len(arguments) <= INLINE:
        return _parcel(function, arguments, None, None, calls.jobs, options)._replace(label=label)
    # Pass large arguments as the only item of a job that is not an array.
    common = calls.pickled(((), dict(kwargs))) if kwargs else b""
    item = calls.pickled(tuple(args))
    return _parcel(function, common, [item], None, calls.jobs, options)._replace(label=label)


def _check_function(function: object) -> None:
    """Raise TypeError if somebody passes the value of a call in place of the function."""
    if not callable(function):
        told = f"{type(function).__name__} is not a function; write `call(f, 3)` and not `call(f(3))`"
        raise TypeError(told)


def a_map(
    function: Callable[..., object],
    items: Iterable[tuple[object, ...]],
    kwargs: Mapping[str, object],
    options: CallOptions | None,
) -> tuple[Parcel | None, int]:
    """Return the array of many calls, and its size; None if there are no items."""
    _check_function(function)
    calls = _earlier_calls()
    pickled = [calls.pickled(item) for item in items]
    if not pickled:
        return None, 0
    arguments = calls.pickled(((), dict(kwargs))) if kwargs else b""
    parcel = _parcel(function, arguments, pickled, f"0-{len(pickled) - 1}", calls.jobs, options)
    return parcel._replace(label=name_of(function)), len(pickled)


def _parcel(
    function: Callable[..., object],
    arguments: bytes,
    items: list[bytes] | None,
    array: str | None,
    earlier: list[str],
    options: CallOptions | None,
) -> Parcel:
    """Return the job of a pickled function."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    head = MAGIC + f"{version}\n".encode()
    pickled = head + _pickled(function)
    python: dict[str, Any] = {"function": digest_of(pickled)}
    blobs = {python["function"]: pickled}
    if arguments:
        python["arguments"] = arguments
    if items is not None:
        packed = pack_items(items)
        python["items"] = digest_of(packed)
        blobs[python["items"]] = packed
    if earlier:
        python["values"] = earlier
    name = clean_name(name_of(function))
    fields: dict[str, Any] = {"name": name, "key": f"call-{uuid.uuid4().hex}", **(options or {})}
    fields["python"] = python
    # What is pickled here can be read only by the same version.
    needs = list(fields.get("needs") or ())
    if not any(word.startswith("python:") for word in needs):
        asked = _environment(fields)
        named = asked.get("name")
        # What an image has is known only there.
        if "image" not in asked:
            needs.append(f"{ENVIRONMENT}{named}:{version}" if named else f"python:{version}")
        fields["needs"] = needs
    at_a_time = fields.pop("at_a_time", None)
    if array is not None:
        fields["array"] = array if at_a_time is None else f"{array}%{at_a_time}"
    return Parcel(from_fields(fields), blobs)


def _environment(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the environment that a call asks for; raise Refused if it is not written as one."""
    asked = fields.get("environment") or {}
    if isinstance(asked, Mapping):
        return asked
    told = (
        'write {"requirements": "requirements.txt"} for one that the agent builds, {"name": "ml"} for one that it has, '
        'or {"image": "python:3.12"} for a container'
    )
    raise Refused(f"environment is {ascii(asked)[:80]}; {told}", status=400, kind="invalid")


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function; of a partial one, that of the function in it."""
    name = getattr(getattr(function, "func", function), "__name__", type(function).__name__)
    return str(name).strip("<>")


def _earlier_calls() -> "EarlierCalls":
    """Return what pickles the arguments of calls."""
    from spillover.client.earlier import EarlierCalls  # noqa: PLC0415 - only needed for calls of functions

    return EarlierCalls()


def _pickled(value: object) -> bytes:
    """Pickle a value, including functions of scripts and notebooks."""
    import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - only needed for calls of functions

    pickled: bytes = cloudpickle.dumps(value, 5)
    return pickled


def submitted(parcel: Parcel | None, size: int | None, kept: dict[str, float]) -> Flow[Gathering]:
    """Upload missing blobs and inputs, then submit the calls; `kept` are known blobs of the server, and since when."""
    if parcel is None:
        return Gathering("", size)
    docs = yield from transfers.send_inputs([parcel.doc], None)
    now = time.monotonic()
    unsure = [digest for digest in parcel.blobs if now - kept.get(digest, -ASK_AGAIN) >= ASK_AGAIN]
    unsent: list[str] = (yield from transfers.missing(unsure)) if unsure else []
    if unsent:
        amount = sum(len(parcel.blobs[digest]) for digest in unsent)
        log.info("function and arguments, %sB to send", format_memory(amount))
    for digest in unsent:
        yield from asks.put_blob(digest, Upload(parcel.blobs[digest]))
    kept.update(dict.fromkeys(unsure, now))
    (job,) = yield from asks.submit(docs)
    return Gathering(job, size, parcel.label)


def call_of(job: str) -> Flow[Gathering]:
    """Return an earlier call, or one call of a map."""
    found = yield from ask(endpoints.SHOW, OfJob(job))
    return Gathering(found.id, None)


def map_of(job: str) -> Flow[Gathering]:
    """Return an earlier map."""
    found = yield from ask(endpoints.SHOW, OfJob(job))
    if found.array is None:
        raise Refused(f"{found.id} is not an array; use call_of", status=400, kind="invalid")
    return Gathering(found.id, found.array.size)
