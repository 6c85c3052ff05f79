"""Makes a call in its interpreter: reads function and arguments, calls, and encodes what comes of it.

Warm workers use it, and calls in containers. Standard library only, see `worker`.
"""

# This runs for every call, where pathlib would cost more than the work:
# ruff: noqa: PTH123

import io
import pickle
import sys
from types import CoroutineType
from typing import Any, Final, TextIO

from spillover.agent.runners.outcomes import (
    RunnerCannotRun,
    failure,
    from_json,
    json_of,
    named_function,
    pickled,
    trace_of,
)
from spillover.wire.items import MAGIC, MARK, Items

INLINE: Final = 16 << 10
"""Most bytes of a value inside a result. A larger one goes into a file."""
MOST_FUNCTIONS: Final = 64
"""Most functions to keep unpickled."""


class CallContext:
    """What the calls of one job have in common."""

    __slots__ = ("args", "arguments", "call", "first", "function", "items", "values")

    def __init__(
        self,
        call: str,
        args: bytes,
        function: str,
        arguments: bytes,
        items: str,
        first: int,
        values: list[bytes | str],
    ) -> None:
        self.call = call
        self.args = args
        self.function = function
        self.arguments = arguments
        self.items = items
        self.first = first
        self.values = values
        """What earlier calls returned: encoded, or the path of a file with that."""


class Invoker:
    """Makes calls, and keeps the functions that it has read."""

    def __init__(self, advice: str) -> None:
        self._advice = advice
        """What to do if a module is missing, after what is missing and a semicolon; `{what}` is what needs it."""
        self._functions: dict[str, Any] = {}
        self._items: dict[str, Items] = {}

    def outcome(self, context: CallContext, index: int, errors: TextIO) -> tuple[int, bytes]:
        """Call the function; return an exit code, and the encoded value or exception."""
        plain = bool(context.call)
        try:
            value = self._value(context, index)
            return 0, json_of(value) if plain else pickled(value)
        except SystemExit as leaving:
            code = leaving.code
            if code is None or code == 0:
                return 0, b"null" if plain else pickled(None)
            if not isinstance(code, int):
                print(code, file=errors)
                code = 1
            return (code & 255) or 1, failure(leaving, plain=plain)
        except BaseException as error:  # noqa: BLE001 - the caller must see any error
            text = trace_of(error)
            print(text, end="", file=errors)
            return 1, failure(error, text, plain=plain)

    def forget_items(self, path: str) -> None:
        """Drop items that no call needs any more."""
        self._items.pop(path, None)

    def forget_functions(self) -> None:
        """Drop all functions, because the code that they refer to has changed."""
        self._functions.clear()

    def _value(self, context: CallContext, index: int) -> Any:
        """Return what the function returns."""
        if context.call:
            value = named_function(context.call)(*from_json(context.args))
        else:
            function = self._functions.get(context.function)
            if function is None:
                function = self._load(context.function)
            args: tuple[Any, ...] = ()
            kwargs: dict[str, Any] = {}
            if context.arguments:
                args, kwargs = self._unpickled(context.arguments, "arguments", context.values)
            if context.items:
                items = self._items.get(context.items)
                if items is None:
                    items = self._items[context.items] = Items(context.items)
                item = items[index - context.first if index >= 0 else 0]
                args = (*self._unpickled(item, "arguments", context.values), *args)
            value = function(*args, **kwargs)
        if type(value) is CoroutineType:
            import asyncio  # noqa: PLC0415 - few functions need it

            value = asyncio.run(value)
        return value

    def _load(self, path: str) -> Any:
        """Load a pickled function; raise RunnerCannotRun if this interpreter cannot."""
        with open(path, "rb") as file:
            head, _, body = file.read().partition(b"\n")
        if not head.startswith(MAGIC):
            raise RunnerCannotRun("the payload is not a pickled function")
        version, ours = head[len(MAGIC) :].decode(), f"{sys.version_info[0]}.{sys.version_info[1]}"
        if version != ours:
            raise RunnerCannotRun(
                f"the function was pickled by Python {version}, but the agent calls it with {ours}; "
                "start the agent with --python PATH of the same version"
            )
        function = self._unpickled(body, "function", [])
        if len(self._functions) >= MOST_FUNCTIONS:
            self._functions.pop(next(iter(self._functions)))
        self._functions[path] = function
        return function

    def _unpickled(self, data: bytes, what: str, values: list[bytes | str]) -> Any:
        """Unpickle the function or the arguments of a call; raise RunnerCannotRun if this interpreter lacks the code."""
        try:
            return _Later(self, data, values).load() if values else pickle.loads(data)  # noqa: S301 - users who may submit may run any code
        except ModuleNotFoundError as error:
            raise RunnerCannotRun(f"{error}; {self._advice.replace('{what}', what)}") from error
        except (ImportError, AttributeError) as error:
            raise RunnerCannotRun(
                f"the {what} of the call cannot be read: {error}; {sys.executable} has another version of that module"
            ) from error

    def earlier(self, data: bytes) -> Any:
        """Return what an earlier call returned."""
        plain = not data.startswith(b"\x80")
        return from_json(data) if plain else self._unpickled(data, "value of an earlier call", [])


class _Later(pickle.Unpickler):
    """Unpickles arguments, with the values of earlier calls in the places where the caller gave the calls."""

    def __init__(self, invoker: Invoker, data: bytes, values: list[bytes | str]) -> None:
        super().__init__(io.BytesIO(data))
        self._invoker = invoker
        self._values = values
        self._known: dict[int, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name means; that of a mark is the value that belongs there."""
        return self._earlier if (module, name) == MARK else super().find_class(module, name)

    def _earlier(self, at: int | list[int]) -> Any:
        """Return the value of a call, or of all calls of a map."""
        if isinstance(at, list):
            return [self._earlier(each) for each in at]
        if at not in self._known:
            data = self._values[at]
            if isinstance(data, str):
                with open(data, "rb") as file:
                    data = file.read()
            self._known[at] = self._invoker.earlier(data)
        return self._known[at]
