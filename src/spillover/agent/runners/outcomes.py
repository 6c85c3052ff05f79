"""Resolves what a worker calls, and encodes results as JSON or pickle. Standard library only, see `worker`."""

import os
import pickle
import traceback
from typing import Any, Final

MOST_TRACE: Final = 10_000
MOST_SAID: Final = 2_000
"""Most characters of a traceback, counted from its end, and of the text of an exception."""
_OURS: Final = os.path.dirname(__file__)  # noqa: PTH120 - workers avoid pathlib


class RunnerCannotRun(Exception):
    """A call could not begin; the message says why."""


def named_function(call: str) -> Any:
    """Return the function that `module:function` names."""
    import importlib  # noqa: PLC0415 - pickled functions do not need it

    module, _, path = call.partition(":")
    importlib.invalidate_caches()
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def from_json(args: bytes) -> list[Any]:
    """Decode plain arguments."""
    import json  # noqa: PLC0415 - as above

    plain: list[Any] = json.loads(args or b"[]")
    return plain


def json_of(value: Any) -> bytes:
    """Encode a plain value; raise RunnerCannotRun if it is not plain data."""
    import json  # noqa: PLC0415 - as above

    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RunnerCannotRun(
            f"it returned a {type(value).__name__} that is not plain data ({error}); "
            "return text, numbers, lists or mappings"
        ) from None


def pickled(value: Any) -> bytes:
    """Pickle a value, with cloudpickle if pickle cannot do it."""
    try:
        return pickle.dumps(value, 5)
    except Exception:  # noqa: BLE001 - cloudpickle may work after any error
        import cloudpickle  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415 - only where it is needed

        data: bytes = cloudpickle.dumps(value, 5)
        return data


def failure(error: BaseException, text: str = "", *, plain: bool) -> bytes:
    """Encode an exception so that its text is readable even where the exception cannot be unpickled."""
    if isinstance(error, RunnerCannotRun) and not plain:
        # For the caller, this is an error of the call. The exception is ours, and nobody else should have to know it.
        return pickle.dumps((b"", str(error)[:MOST_SAID], ""), 5)
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    if plain:
        return json_of({"error": said[:MOST_SAID], "traceback": text[-MOST_TRACE:]})
    try:
        whole = pickled(error.with_traceback(None))
        pickle.loads(whole)  # noqa: S301 - our own bytes; some exceptions pickle but do not unpickle
    except Exception:  # noqa: BLE001 - as in `pickled`
        whole = b""
    return pickle.dumps((whole, said[:MOST_SAID], text[-MOST_TRACE:]), 5)


def trace_of(error: BaseException) -> str:
    """Return the traceback from the called function on, without our own frames."""
    if isinstance(error, RunnerCannotRun):
        return f"{error}\n"
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
