"""One warm worker, as the agent sees it: its process, its two connections, and the page of memory that they share."""

import asyncio
import contextlib
import marshal
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spillover.agent.runners import frames
from spillover.agent.values import Task
from spillover.core.events import Lease

SECRET_BYTES: Final = 32
MOST_CONTEXTS: Final = 64
"""Of a worker, unless the calls that it has need more."""


class WorkerCall:
    """A task that calls a function."""

    __slots__ = ("context", "key", "lease", "stem", "stop", "task", "told", "worker")

    def __init__(self, lease: Lease, task: Task, stem: str) -> None:
        self.lease = lease
        self.task = task
        self.stem = stem
        self.context: tuple[Any, ...] = ()
        self.worker: WorkerProcess | None = None
        self.key = 0
        """Of this worker."""
        self.told = False
        """Whether its start was told."""
        self.stop: bool | None = None
        """Whether it is to be killed; None if it is not to be stopped at all."""


class WorkerProcess:
    """A process that makes calls."""

    def __init__(self, number: int, kind: object, folder: Path, lease: Lease) -> None:
        self.number = number
        self.kind = kind
        """Calls of another kind need another process."""
        self.lease = lease
        """Under which its process was launched."""
        self.slot = -1
        """Of the calls that it has."""
        self.pid = 0
        """0 before it has come."""
        self.calls: dict[int, WorkerCall] = {}
        """By key, in the order in which they begin."""
        self.made = 0
        """How many calls it has ended."""
        self.first_peak = 0
        self.last_peak = 0
        """Bytes of its largest size, after its first and its last call."""
        self.ending = False
        """Whether it gets no more calls."""
        self.killed_for: Lease | None = None
        self.held: list[tuple[Any, ...]] = []
        """A result that counts only once the process is gone, with all that it left behind."""
        self.idle_since = 0.0
        self.naming: dict[int, list[asyncio.Future[None]]] = {}
        self._contexts: dict[int, tuple[Any, ...]] = {}
        self._next = 0
        self._path = folder / f"{number}.page"
        with self._path.open("w+b") as file:
            os.ftruncate(file.fileno(), frames.STAGE)
            self._page = mmap.mmap(file.fileno(), frames.STAGE)
        self._channels: dict[bool, asyncio.WriteTransport] = {}
        self._out: dict[bool, list[tuple[Any, ...]]] = {False: [], True: []}

    def send(self, call: WorkerCall) -> None:
        """Have a call made after those before it."""
        self._next += 1
        call.worker, call.key = self, self._next
        self.calls[call.key] = call
        number = id(call.context)
        if number not in self._contexts:
            self._forget_contexts()
            # Kept here, as long as the worker has it, so that no other one gets the same number.
            self._contexts[number] = call.context
            self._say((frames.CONTEXT, number, *call.context))
        lease = call.lease
        _, dot, index = lease.job.rpartition(".")
        at = int(index) if dot and index.isdigit() else -1
        self._say((frames.CALL, call.key, number, lease.job, lease.attempt, at, call.stem))

    def _forget_contexts(self) -> None:
        """Let go of what no call needs that it has; each may be as large as the arguments of a call."""
        if len(self._contexts) < MOST_CONTEXTS:
            return
        needed = {id(call.context) for call in self.calls.values()}
        idle = [number for number in self._contexts if number not in needed]
        for number in idle:
            del self._contexts[number]
        if idle:
            self._say((frames.FORGET, idle))

    def order(self, kind: int, what: object) -> None:
        """Say something about calls that it has."""
        self._say((kind, what), orders=True)

    def connected(self, transport: asyncio.WriteTransport, *, orders: bool, pid: int) -> None:
        """One of its connections came."""
        self._channels[orders] = transport
        self.pid = pid
        self._flush(orders=orders)

    def hear_out(self) -> None:
        """Take the results that it sent before it was gone."""
        transport = self._channels.get(False)
        if transport is not None and isinstance(connection := transport.get_protocol(), WorkerConnection):
            connection.hear_out()

    def now(self) -> tuple[int, int]:
        """The key of the call that runs, and when it began; zeros if none does."""
        key, began = frames.NOW.unpack_from(self._page)
        return key, began

    def unsent(self) -> list[tuple[Any, ...]]:
        """Results of a worker that died before it sent them."""
        length = frames.STAGED.unpack_from(self._page, frames.STAGED_AT)[0]
        return frames.unpack_records(self._page[frames.RECORDS_AT : frames.RECORDS_AT + length])

    def hang_up(self) -> None:
        """Have it end once it has made what it was sent."""
        self.ending = True
        for transport in self._channels.values():
            transport.close()

    def clear(self) -> None:
        """It is gone."""
        self.hang_up()
        self._page.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
        for key in list(self.naming):
            self.answer_names(key)

    def answer_names(self, key: int) -> None:
        """Whoever waits for a name may go on."""
        for named in self.naming.pop(key, ()):
            if not named.done():
                named.set_result(None)

    def _say(self, message: tuple[Any, ...], *, orders: bool = False) -> None:
        """Send a message, together with all others of this turn of the loop."""
        out = self._out[orders]
        if not out:
            asyncio.get_running_loop().call_soon(lambda: self._flush(orders=orders))
        out.append(message)

    def _flush(self, *, orders: bool) -> None:
        """Write what was gathered; before it is connected, it is gathered further."""
        transport = self._channels.get(orders)
        if transport is not None and self._out[orders] and not transport.is_closing():
            transport.write(frames.pack(self._out[orders]))
            self._out[orders] = []


class WorkerConnection(asyncio.Protocol):
    """One connection of a worker; who it is, it says first."""

    def __init__(
        self,
        secret: bytes,
        find: Callable[[int], WorkerProcess | None],
        results: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
        answers: Callable[[WorkerProcess, list[tuple[Any, ...]]], None],
    ) -> None:
        self._secret = secret
        self._find = find
        self._results = results
        self._answers = answers
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._worker: WorkerProcess | None = None
        self._orders = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody came."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hear who it is, and then what it says."""
        buffer = self._buffer
        buffer += data
        if self._worker is None and not self._introduced():
            return
        at, records, answers = 0, [], []
        while len(buffer) - at >= frames.LENGTH.size:
            end = at + frames.LENGTH.size + frames.LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            body = bytes(buffer[at + frames.LENGTH.size : end])
            if self._orders:
                answers += marshal.loads(body)  # noqa: S302 - it has shown that it is our own
            else:
                records += frames.unpack_records(body)
            at = end
        del buffer[:at]
        if self._worker is None:
            return
        if records:
            self._results(self._worker, records)
        if answers:
            self._answers(self._worker, answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; where that was seen by writing, what it said before may not be read yet."""
        if exc is not None:
            self.hear_out()

    def hear_out(self) -> None:
        """Take all that is there."""
        if self._transport is None:
            return
        end = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            while data := os.read(end.fileno(), frames.STAGE):
                self.data_received(data)

    def _introduced(self) -> bool:
        """Whether it has said who it is, and it is one that we wait for."""
        buffer, head = self._buffer, SECRET_BYTES + frames.LENGTH.size
        if self._transport is None or len(buffer) < head:
            return False
        if bytes(buffer[:SECRET_BYTES]) != self._secret:
            self._transport.close()
            return False
        end = head + frames.LENGTH.unpack_from(buffer, SECRET_BYTES)[0]
        if len(buffer) < end:
            return False
        ((number, orders, pid),) = marshal.loads(bytes(buffer[head:end]))  # noqa: S302 - it showed the secret
        del buffer[:end]
        self._worker, self._orders = self._find(number), orders
        if self._worker is None:
            self._transport.close()
            return False
        self._worker.connected(self._transport, orders=orders, pid=pid)
        return True
