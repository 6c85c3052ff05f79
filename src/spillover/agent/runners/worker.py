"""A warm process that calls Python functions, one after the other; run by whichever interpreter people want.

That interpreter needs nothing but its standard library, and cloudpickle for functions that were pickled with it: the few modules of
ours that are used here are lent to it, and taken away before anybody else's code runs.

Two connections go to the agent. On the first come frames of calls, several ahead, and go frames of results, as few as make sense. On
the second a thread of its own takes orders about the call that runs now and those that are still to begin, and answers. Keys of
calls rise, and calls begin in their order, so one number says what has begun.

A page of memory that the agent maps too holds the call that runs and results that were not sent yet. So when this process dies, the
agent knows which call it died of, which are done, and which never began.

Output goes to spool files, as in the nursery: a file gets the name of its call when the call ended and it is not empty, or when
somebody wants to read it meanwhile; otherwise the next call uses it.

To us: `(CONTEXT, number, call, args, function, arguments, items, first)`, `(CALL, key, context, job, attempt, index, stem)`,
`(FORGET, contexts)`; orders: `(DROP, keys)`, `(STOP, key)`, `(NAME, key)`. From us, on the first: records `(key, code, at, ran, cpu, peak, value, file, last)`; on
the second: `(DROPPED, keys)`, `(NAMED, key)`.
"""

# This runs for every call, where pathlib would cost more than the work:
# ruff: noqa: PTH103, PTH104, PTH109, PTH116, PTH120, PTH123

import contextlib
import ctypes
import marshal
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from types import CoroutineType, ModuleType
from typing import Any, Final

from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.runners.frames import (
    CONTEXT,
    DROP,
    DROPPED,
    FORGET,
    FORM,
    LENGTH,
    NAMED,
    NOW,
    RECORDS_AT,
    STAGE,
    STAGED,
    STAGED_AT,
    STOP,
    pack,
)
from spillover.agent.runners.outcomes import (
    RunnerCannotRun,
    failure,
    from_json,
    json_of,
    named_function,
    pickled,
    trace_of,
)
from spillover.wire.items import MAGIC, Items

INLINE: Final = 16 << 10
"""Bytes of a value that goes with its result; a larger one is left in a file."""
LINGER: Final = 2_000_000
"""Nanoseconds that a result waits for others while calls are there to be made."""
STREAMS: Final = ("out", "err")
INDEX: Final = "SPILL_ARRAY_INDEX"
MOST_FUNCTIONS: Final = 64
"""Functions that are kept unpickled."""
_SPOOL_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC


class _Context:
    """What the calls of one job have in common."""

    __slots__ = ("args", "arguments", "call", "first", "function", "items")

    def __init__(
        self, call: str, args: bytes, function: str, arguments: bytes, items: str, first: int
    ) -> None:
        self.call = call
        self.args = args
        self.function = function
        self.arguments = arguments
        self.items = items
        self.first = first


class Worker:
    """The process."""

    def __init__(self, number: int, folder: str, output: str, limit: int) -> None:
        self._number = number
        self._bound = limit
        """Bytes that are kept of each stream of a call."""
        self._folder = folder
        self._output = output
        with open(f"{folder}/{number}.page", "r+b") as page:
            self._page = mmap.mmap(page.fileno(), STAGE)
        self._used = 0
        """Bytes of results that were not sent."""
        self._lock = threading.Lock()
        self._begun = 0
        """The last call that began."""
        self._current = 0
        self._stem = ""
        self._named: set[int] = set()
        """Streams of the current call that have its name."""
        self._dropped: set[int] = set()
        self._last = 1 << 62
        """Calls above it never begin."""
        self._contexts: dict[int, _Context] = {}
        self._functions: dict[str, Any] = {}
        self._items: dict[str, Items] = {}
        self._serial = 0
        self._spools = ["", ""]
        self._fresh_modules = time.time()
        self._libc = ctypes.CDLL(None)
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # what -f follows comes line by line
        self._home = os.getcwd()
        self._environ = os.environ._data  # type: ignore[attr-defined] # noqa: SLF001 - the same in all versions; a copy costs 5 µs
        self._kept: dict[bytes, bytes] = {}
        for stream in range(len(STREAMS)):
            self._open_spool(stream)

    # --- the connection for calls

    def serve(self, calls: socket.socket) -> None:
        """Make calls until the agent closes the connection, or this process has to go."""
        self._kept = dict(self._environ)
        read = calls.makefile("rb", buffering=1 << 18).read
        while len(header := read(LENGTH.size)) == LENGTH.size:
            flushed = boottime()
            for message in marshal.loads(read(LENGTH.unpack(header)[0])):  # noqa: S302 - as above
                if message[0] == CONTEXT:
                    self._contexts[message[1]] = _Context(*message[2:])
                    self._forget_changed_modules()
                    continue
                if message[0] == FORGET:
                    self._forget(message[1])
                    continue
                ended = self._make(*message[1:])
                if ended == 0:
                    # Children that a call left behind go when this process does; calls that may not begin are made elsewhere.
                    return self._flush(calls)
                if ended - flushed > LINGER or self._used > STAGE // 2:
                    self._flush(calls)
                    flushed = ended
            self._flush(calls)
        return None

    def _forget(self, numbers: list[int]) -> None:
        """No call needs these contexts any more."""
        for number in numbers:
            self._items.pop(self._contexts.pop(number).items, None)

    def _flush(self, calls: socket.socket) -> None:
        """Send results."""
        if self._used:
            data = self._page[RECORDS_AT : RECORDS_AT + self._used]
            self._used = 0
            calls.sendall(LENGTH.pack(len(data)) + data)
            STAGED.pack_into(self._page, STAGED_AT, 0)

    def _make(self, key: int, number: int, job: str, attempt: int, index: int, stem: str) -> int:
        """Make one call and note its result; returns when it ended, or 0 if this process is to make no more."""
        with self._lock:
            if key > self._last:
                return 0
            if key in self._dropped:
                self._dropped.discard(key)
                return boottime()
            begun = boottime()
            self._begun = self._current = key
            self._stem = stem
            NOW.pack_into(self._page, 0, key, begun)
        used = resource.getrusage(resource.RUSAGE_SELF)
        code, value = self._call(self._contexts[number], job, attempt, index)
        with contextlib.suppress(OSError, ValueError):
            self._stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            self._stderr.flush()
        self._libc.fflush(None)
        ended = boottime()
        alone = _without_children()
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = int((after.ru_utime - used.ru_utime + after.ru_stime - used.ru_stime) * 1e9)
        file = ""
        if len(value) > INLINE:
            file, value = self._put_aside(key, value), b""
        with self._lock:
            self._current = 0
            self._settle_output()
        record = marshal.dumps(
            (key, code, ended, ended - begun, cpu, after.ru_maxrss * 1024, value, file, not alone), FORM
        )
        at = RECORDS_AT + self._used
        end = at + LENGTH.size + len(record)
        self._page[at:end] = LENGTH.pack(len(record)) + record
        self._used = end - RECORDS_AT
        STAGED.pack_into(self._page, STAGED_AT, self._used)
        NOW.pack_into(self._page, 0, 0, 0)
        return ended if alone else 0

    def _call(self, context: _Context, job: str, attempt: int, index: int) -> tuple[int, bytes]:
        """Call the function; an exit code, and what it returned or raised."""
        self._set("SPILL_JOB_ID", job)
        self._set("SPILL_ATTEMPT", str(attempt))
        if index >= 0:
            self._set(INDEX, str(index))
        elif self._kept.pop(INDEX.encode(), None) is not None:
            del os.environ[INDEX]
        plain = bool(context.call)
        try:
            try:
                value = self._value(context, index)
                return 0, json_of(value) if plain else pickled(value)
            except SystemExit as leaving:
                code = leaving.code
                if code is None or code == 0:
                    return 0, b"null" if plain else pickled(None)
                if not isinstance(code, int):
                    print(code, file=self._stderr)
                    code = 1
                return (code & 255) or 1, failure(leaving, plain=plain)
            except BaseException as error:  # noqa: BLE001 - whatever it is, whoever called wants to see it
                text = trace_of(error)
                print(text, end="", file=self._stderr)
                return 1, failure(error, text, plain=plain)
        finally:
            self._restore()

    def _value(self, context: _Context, index: int) -> Any:
        """What the function returns."""
        if context.call:
            value = named_function(context.call)(*from_json(context.args))
        else:
            function = self._functions.get(context.function)
            if function is None:
                function = self._load(context.function)
            args: tuple[Any, ...] = ()
            kwargs: dict[str, Any] = {}
            if context.arguments:
                args, kwargs = pickle.loads(context.arguments)  # noqa: S301 - it is what whoever may submit asks for
            if context.items:
                items = self._items.get(context.items)
                if items is None:
                    items = self._items[context.items] = Items(context.items)
                args = (*pickle.loads(items[index - context.first if index >= 0 else 0]), *args)  # noqa: S301 - as above
            value = function(*args, **kwargs)
        if type(value) is CoroutineType:
            import asyncio  # noqa: PLC0415 - few functions need it

            value = asyncio.run(value)
        return value

    def _load(self, path: str) -> Any:
        """A pickled function."""
        with open(path, "rb") as file:
            head, _, body = file.read().partition(b"\n")
        if not head.startswith(MAGIC):
            raise RunnerCannotRun("what is to be called is no pickled function")
        version, ours = head[len(MAGIC) :].decode(), f"{sys.version_info[0]}.{sys.version_info[1]}"
        if version != ours:
            raise RunnerCannotRun(
                f"the function was pickled by Python {version}, but the agent calls it with {ours}; "
                "start the agent with --python PATH of the same version"
            )
        try:
            function = pickle.loads(body)  # noqa: S301 - as above
        except ModuleNotFoundError as error:
            raise RunnerCannotRun(
                f"{error}; {sys.executable} must have what the function needs: install it there, "
                "or start the agent with --python PATH"
            ) from error
        if len(self._functions) >= MOST_FUNCTIONS:
            self._functions.pop(next(iter(self._functions)))
        self._functions[path] = function
        return function

    def _set(self, name: str, value: str) -> None:
        """Set a variable for the call that comes."""
        key, now = name.encode(), value.encode()
        if self._kept.get(key) != now:
            self._kept[key] = now
            os.environ[name] = value

    def _restore(self) -> None:
        """Undo what a call may have changed for all that come after it."""
        environ, kept = os.environ, self._kept
        if self._environ != kept:
            for name in [name for name in self._environ if name not in kept]:
                del environ[os.fsdecode(name)]
            for name, value in kept.items():
                environ[os.fsdecode(name)] = os.fsdecode(value)
        os.chdir(self._home)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _put_aside(self, key: int, value: bytes) -> str:
        """A large value in a file, for the agent to bring away."""
        path = f"{self._folder}/{self._number}-{key}.value"
        with open(path, "wb") as file:
            file.write(value)
        return path

    def _forget_changed_modules(self) -> None:
        """Have modules of the work folder imported anew that were changed since: a new job wants what is there now."""
        since, self._fresh_modules = self._fresh_modules, time.time()
        if any(map(_changed(self._home + "/", since), list(sys.modules.values()))):
            below = self._home + "/"
            for name, module in list(sys.modules.items()):
                file = _file_of(module)
                if file.startswith(below) and not file.startswith((sys.prefix + "/", sys.base_prefix + "/")):
                    del sys.modules[name]
            self._functions.clear()

    # --- output

    def _open_spool(self, stream: int) -> None:
        """Let a stream go to a new file."""
        self._serial += 1
        self._spools[stream] = f"{self._output}/spool/py{self._number}-{self._serial}.{STREAMS[stream]}"
        file = os.open(self._spools[stream], _SPOOL_FLAGS, 0o600)
        os.dup2(file, stream + 1)
        os.close(file)

    def _name(self, stream: int) -> None:
        """Give output of the current call its name; the lock is held."""
        if stream not in self._named:
            os.makedirs(os.path.dirname(self._stem), mode=0o700, exist_ok=True)
            os.rename(self._spools[stream], f"{self._stem}.{STREAMS[stream]}")
            self._named.add(stream)

    def _settle_output(self) -> None:
        """The current call ended: keep what it wrote; the lock is held."""
        for stream in (0, 1):
            size = os.fstat(stream + 1).st_size
            if stream in self._named or size:
                if size > self._bound:
                    BoundedFile(stream + 1, self._bound).trim()
                with contextlib.suppress(OSError):
                    self._name(stream)
                    os.utime(f"{self._stem}.{STREAMS[stream]}")
                self._open_spool(stream)
        self._named.clear()

    # --- the connection for orders

    def obey(self, orders: socket.socket) -> None:
        """Take orders until the agent closes the connection."""
        read = orders.makefile("rb").read
        while len(header := read(LENGTH.size)) == LENGTH.size:
            answers: list[tuple[Any, ...]] = []
            for kind, what in marshal.loads(read(LENGTH.unpack(header)[0])):  # noqa: S302 - as above
                with self._lock:
                    if kind == DROP:
                        answers.append((DROPPED, [key for key in what if key > self._begun]))
                        self._dropped.update(answers[-1][1])
                    elif kind == STOP:
                        self._last = self._begun
                        if self._current == what:
                            os.killpg(0, signal.SIGTERM)
                    else:
                        if self._current == what:
                            with contextlib.suppress(OSError):
                                self._name(0)
                                self._name(1)
                        answers.append((NAMED, what))
            orders.sendall(pack(answers))
        os._exit(0)  # the agent is gone


def _without_children() -> bool:
    """Whether nothing that was started is left; what only has to be reaped is."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _file_of(module: ModuleType | None) -> str:
    """Where a module came from; empty if from nowhere."""
    return getattr(module, "__file__", None) or ""


def _changed(below: str, since: float) -> Any:
    """Whether a module came from below a folder, from a file that was changed after a time."""

    def changed(module: ModuleType | None) -> bool:
        file = _file_of(module)
        if not file.startswith(below) or file.startswith((sys.prefix + "/", sys.base_prefix + "/")):
            return False
        try:
            return os.stat(file).st_mtime > since
        except OSError:
            return True

    return changed


def connect(folder: str, secret: bytes, number: int, *, orders: bool) -> socket.socket:
    """A connection to the agent; the folder's descriptor keeps its path short, as sockets want it."""
    connection = socket.socket(socket.AF_UNIX)
    at = os.open(folder, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{at}/socket")
    finally:
        os.close(at)
    connection.sendall(secret + pack([(number, orders, os.getpid())]))
    return connection


def main() -> None:
    """Work for the agent: NUMBER FOLDER OUTPUT LIMIT, with the secret in the environment."""
    number, folder, output, limit = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    secret = bytes.fromhex(os.environ.pop("SPILL_WORKER_SECRET"))
    # The work folder is where modules are looked for first, as in a script that lies there.
    sys.path.insert(0, os.getcwd())
    sys.argv = [""]
    sys.modules["__main__"] = ModuleType("__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "spillover"]:
        del sys.modules[name]
    worker = Worker(number, folder, output, limit)
    calls = connect(folder, secret, number, orders=False)
    orders = connect(folder, secret, number, orders=True)
    threading.Thread(target=worker.obey, args=(orders,), daemon=True).start()
    worker.serve(calls)
    os._exit(0)
