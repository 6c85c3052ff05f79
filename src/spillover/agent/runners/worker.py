"""Calls Python functions one after the other in a warm process, with any interpreter that the user chose.

That interpreter needs its standard library only, and cloudpickle for functions that were pickled with it. It imports a
few modules of ours, and unloads them before it runs any other code.

Two connections go to the agent. The first carries frames of calls, several in advance, and back frames of results, as
few as make sense. On the second, a separate thread takes orders about the running call and those that have not begun,
and answers them. Keys of calls increase, and calls begin in the order of their keys. So one number tells which calls
have begun.

The agent and the worker share a page of memory. It holds the running call, and results that were not sent yet. So when
this process dies, the agent knows which call was running, which are done, and which never began.

Output goes to spool files, as in the nursery. A file gets the name of its call when the call ended with output, or when
a reader asks for it earlier. Otherwise the next call uses the same file.

The agent sends calls: `(CONTEXT, number, call, args, function, arguments, items, first, values)`, `(CALL, key, context, job,
attempt, index, stem, trace)`, `(FORGET, contexts)`; and orders: `(DROP, keys)`, `(STOP, key)`, `(TELL, (key, signal))`, `(NAME, key)`. The worker
sends records on the first connection: `(key, code, at, ran, cpu, peak, value, file, last)`; and answers on the second:
`(DROPPED, keys)`, `(NAMED, key)`.
"""

# This runs for every call, where pathlib would cost more than the work:
# ruff: noqa: PTH103, PTH104, PTH109, PTH116, PTH120, PTH123

import contextlib
import ctypes
import marshal
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
from types import ModuleType
from typing import Any, ClassVar, Final

from spillover.agent.nursery.clock import boottime
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.nursery.notifying import notify
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
    TELL,
    pack,
)
from spillover.agent.runners.invoking import INLINE, CallContext, Invoker

LINGER: Final = 2_000_000
"""Nanoseconds that a result waits for others while there are more calls to make."""
STREAMS: Final = ("out", "err")
INDEX: Final = "SPILL_ARRAY_INDEX"
TRACE: Final = "TRACEPARENT"
"""As in `model.tracing`, which this process does not import."""
ADVICE: Final = (
    f"{sys.executable} must have the packages for the {{what}} of the call; install them there, "
    "or start the agent with --python PATH"
)
"""What to do if a module is missing."""
_SPOOL_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC


class Worker:
    """The worker process."""

    def __init__(self, number: int, folder: str, output: str, limit: int) -> None:
        self._number = number
        self._bound = limit
        """Most bytes to keep of each stream of a call."""
        self._folder = folder
        self._output = output
        with open(f"{folder}/{number}.page", "r+b") as page:
            self._page = mmap.mmap(page.fileno(), STAGE)
        self._used = 0
        """Bytes of results that were not sent yet."""
        self._lock = threading.Lock()
        self._begun = 0
        """The last call that began."""
        self._current = 0
        self._stem = ""
        self._named: set[int] = set()
        """Streams of the current call that have its name."""
        self._dropped: set[int] = set()
        self._last = 1 << 62
        """Calls with a higher key never begin."""
        self._contexts: dict[int, CallContext] = {}
        self._invoker = Invoker(ADVICE)
        self._serial = 0
        self._spools = ["", ""]
        self._fresh_modules = time.time()
        self._libc = ctypes.CDLL(None)
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # `spill logs -f` follows lines
        self._home = os.getcwd()
        self._environ = os.environ._data  # type: ignore[attr-defined] # noqa: SLF001 - the same in all versions; a copy costs 5 µs
        self._kept: dict[bytes, bytes] = {}
        for stream in range(len(STREAMS)):
            self._open_spool(stream)

    # --- the connection for calls

    def serve(self, calls: socket.socket) -> None:
        """Make calls until the agent closes the connection, or this process must end."""
        self._kept = dict(self._environ)
        read = calls.makefile("rb", buffering=1 << 18).read
        while len(header := read(LENGTH.size)) == LENGTH.size:
            flushed = boottime()
            for message in marshal.loads(read(LENGTH.unpack(header)[0])):  # noqa: S302 - as above
                if message[0] == CONTEXT:
                    self._contexts[message[1]] = CallContext(*message[2:])
                    self._forget_changed_modules()
                    continue
                if message[0] == FORGET:
                    self._forget(message[1])
                    continue
                ended = self._make(*message[1:])
                if ended == 0:
                    # Children that a call left behind die with this process. Calls that have not begun are made
                    # elsewhere.
                    return self._flush(calls)
                if ended - flushed > LINGER or self._used > STAGE // 2:
                    self._flush(calls)
                    flushed = ended
            self._flush(calls)
        return None

    def _forget(self, numbers: list[int]) -> None:
        """Drop contexts that no call needs any more."""
        for number in numbers:
            self._invoker.forget_items(self._contexts.pop(number).items)

    def _flush(self, calls: socket.socket) -> None:
        """Send results."""
        if self._used:
            data = self._page[RECORDS_AT : RECORDS_AT + self._used]
            self._used = 0
            calls.sendall(LENGTH.pack(len(data)) + data)
            STAGED.pack_into(self._page, STAGED_AT, 0)

    def _make(self, key: int, number: int, job: str, attempt: int, index: int, stem: str, trace: str) -> int:
        """Make one call and stage its result; return when it ended, or 0 if this process may make no more calls."""
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
        code, value = self._call(self._contexts[number], job, attempt, index, trace)
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

    def _call(
        self, context: CallContext, job: str, attempt: int, index: int, trace: str
    ) -> tuple[int, bytes]:
        """Call the function; return an exit code, and the encoded value or exception."""
        self._set("SPILL_JOB_ID", job)
        self._set("SPILL_ATTEMPT", str(attempt))
        if index >= 0:
            self._set(INDEX, str(index))
        elif self._kept.pop(INDEX.encode(), None) is not None:
            del os.environ[INDEX]
        if trace:
            self._set(TRACE, trace)
        try:
            return self._invoker.outcome(context, index, self._stderr)
        finally:
            self._kept.pop(TRACE.encode(), None)  # the next call is a part of another trace, or of none
            self._restore()

    def _set(self, name: str, value: str) -> None:
        """Set a variable for the next call."""
        key, now = name.encode(), value.encode()
        if self._kept.get(key) != now:
            self._kept[key] = now
            os.environ[name] = value

    def _restore(self) -> None:
        """Undo what a call may have changed for later calls."""
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
        """Write a large value to a file, which the agent uploads."""
        path = f"{self._folder}/{self._number}-{key}.value"
        with open(path, "wb") as file:
            file.write(value)
        return path

    def _forget_changed_modules(self) -> None:
        """Unload modules of the work folder if one has changed, because a new job expects the current code."""
        since, self._fresh_modules = self._fresh_modules, time.time()
        if any(map(_changed(self._home + "/", since), list(sys.modules.values()))):
            below = self._home + "/"
            for name, module in list(sys.modules.items()):
                file = _file_of(module)
                if file.startswith(below) and not file.startswith((sys.prefix + "/", sys.base_prefix + "/")):
                    del sys.modules[name]
            self._invoker.forget_functions()

    # --- output

    def _open_spool(self, stream: int) -> None:
        """Redirect a stream to a new file."""
        self._serial += 1
        self._spools[stream] = f"{self._output}/spool/py{self._number}-{self._serial}.{STREAMS[stream]}"
        file = os.open(self._spools[stream], _SPOOL_FLAGS, 0o600)
        os.dup2(file, stream + 1)
        os.close(file)

    def _name(self, stream: int) -> None:
        """Rename output of the current call. Needs the lock."""
        if stream not in self._named:
            os.makedirs(os.path.dirname(self._stem), mode=0o700, exist_ok=True)
            os.rename(self._spools[stream], f"{self._stem}.{STREAMS[stream]}")
            self._named.add(stream)

    def _settle_output(self) -> None:
        """Keep the output of the call that ended. Needs the lock."""
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

    def carry_out(self, orders: socket.socket) -> None:
        """Carry out orders until the agent closes the connection."""
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
                    elif kind == TELL:
                        if self._current == what[0]:
                            notify(os.getpid(), what[1])
                    else:
                        if self._current == what:
                            with contextlib.suppress(OSError):
                                self._name(0)
                                self._name(1)
                        answers.append((NAMED, what))
            orders.sendall(pack(answers))
        os._exit(0)  # the agent is gone


def _without_children() -> bool:
    """Reap ended children; return whether none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _file_of(module: ModuleType | None) -> str:
    """Return the file of a module; empty if it has none."""
    return getattr(module, "__file__", None) or ""


def _changed(below: str, since: float) -> Any:
    """Return a test for modules below a folder whose file changed after a time."""

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
    """Connect to the agent. A descriptor of the folder keeps the path short enough for a socket."""
    connection = socket.socket(socket.AF_UNIX)
    at = os.open(folder, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{at}/socket")
    finally:
        os.close(at)
    connection.sendall(secret + pack([(number, orders, os.getpid())]))
    return connection


class OurPackages:
    """Finds `spillover` and `cloudpickle` for functions that need them, if their interpreter does not have them."""

    homes: ClassVar = {"spillover": os.path.dirname(os.path.dirname(os.path.dirname(__file__)))}

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG003 - as importlib calls it
        """Return where a package is; None for all others."""
        if name not in cls.homes:
            return None
        from importlib.util import spec_from_file_location  # noqa: PLC0415 - few functions need it

        home = cls.homes[name]
        return spec_from_file_location(name, f"{home}/__init__.py", submodule_search_locations=[home])


def main() -> None:
    """Work for the agent; arguments are NUMBER FOLDER OUTPUT LIMIT, with the secret in the environment."""
    number, folder, output, limit = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    secret = bytes.fromhex(os.environ.pop("SPILL_WORKER_SECRET"))
    # Modules in the work folder come first, as for a script in that folder.
    sys.path.insert(0, os.getcwd())
    sys.argv = [""]
    sys.modules["__main__"] = ModuleType("__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "spillover"]:
        del sys.modules[name]
    if pickle_home := os.environ.pop("SPILL_WORKER_PICKLE", ""):
        OurPackages.homes["cloudpickle"] = pickle_home
    sys.meta_path.append(OurPackages)
    worker = Worker(number, folder, output, limit)
    calls = connect(folder, secret, number, orders=False)
    orders = connect(folder, secret, number, orders=True)
    threading.Thread(target=worker.carry_out, args=(orders,), daemon=True).start()
    worker.serve(calls)
    os._exit(0)
