"""Represents one warm worker in the agent: its process, its two connections, and the shared page of memory."""

import asyncio
import contextlib
import marshal
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spillover.agent.leases.values import Task
from spillover.agent.runners import frames
from spillover.core.events import Lease
from spillover.model.tracing import VARIABLE

SECRET_BYTES: Final = 32
MOST_CONTEXTS: Final = 64
"""Most contexts of a worker, unless its calls need more."""


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
        """Number of the call in its worker."""
        self.told = False
        """Whether its start was reported."""
        self.stop: bool | None = None
        """Whether to kill it, or only terminate it; None if it is not being stopped."""


class WorkerProcess:
    """A process that makes calls."""

    def __init__(self, number: int, kind: object, folder: Path, lease: Lease) -> None:
        self.number = number
        self.kind = kind
        """Environment without the trace, work folder and resources. Other calls need another process."""
        self.lease = lease
        """The lease under which its process was launched."""
        self.slot = -1
        """The slot of its calls; -1 if none."""
        self.python = ""
        """The interpreter that it runs."""
        self.pid = 0
        """0 until it connects."""
        self.calls: dict[int, WorkerCall] = {}
        """By key, in the order in which they begin."""
        self.made = 0
        """Number of calls that have ended."""
        self.first_peak = 0
        self.last_peak = 0
        """Peak memory in bytes, after its first and its last call."""
        self.once = False
        """Whether it has CPUs for itself, which are free for others after its call."""
        self.ending = False
        """Whether it gets no more calls."""
        self.killed_for: Lease | None = None
        self.held: list[tuple[Any, ...]] = []
        """A result that counts only when the process and everything it left behind are gone."""
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
        """Queue a call behind the earlier ones."""
        self._next += 1
        call.worker, call.key = self, self._next
        self.calls[call.key] = call
        number = id(call.context)
        if number not in self._contexts:
            self._forget_contexts()
            # The key is an object id. Keep the object while the worker knows it, so that the id is not reused.
            self._contexts[number] = call.context
            self._say((frames.CONTEXT, number, *call.context))
        lease = call.lease
        _, dot, index = lease.job.rpartition(".")
        at = int(index) if dot and index.isdigit() else -1
        trace = call.task.env.get(VARIABLE, "")
        self._say((frames.CALL, call.key, number, lease.job, lease.attempt, at, call.stem, trace))

    def _forget_contexts(self) -> None:
        """Drop contexts that no queued call needs, because each may be as large as the arguments of a call."""
        if len(self._contexts) < MOST_CONTEXTS:
            return
        needed = {id(call.context) for call in self.calls.values()}
        idle = [number for number in self._contexts if number not in needed]
        for number in idle:
            del self._contexts[number]
        if idle:
            self._say((frames.FORGET, idle))

    def order(self, kind: int, what: object) -> None:
        """Send an order about its calls."""
        self._say((kind, what), orders=True)

    def connected(self, transport: asyncio.WriteTransport, *, orders: bool, pid: int) -> None:
        """Record one of its two connections."""
        self._channels[orders] = transport
        self.pid = pid
        self._flush(orders=orders)

    def read_rest(self) -> None:
        """Read the results that it sent before it died."""
        transport = self._channels.get(False)
        if transport is not None and isinstance(connection := transport.get_protocol(), WorkerConnection):
            connection.read_rest()

    def now(self) -> tuple[int, int]:
        """Return the key of the running call and when it began; zeros if none runs."""
        key, began = frames.NOW.unpack_from(self._page)
        return key, began

    def unsent(self) -> list[tuple[Any, ...]]:
        """Return the results that are in the page and were not sent."""
        length = frames.STAGED.unpack_from(self._page, frames.STAGED_AT)[0]
        return frames.unpack_records(self._page[frames.RECORDS_AT : frames.RECORDS_AT + length])

    def close_connections(self) -> None:
        """Close the connections, so that it ends after its current calls."""
        self.ending = True
        for transport in self._channels.values():
            transport.close()

    def clear(self) -> None:
        """Release everything, because the process is gone."""
        self.close_connections()
        self._page.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
        for key in list(self.naming):
            self.answer_names(key)

    def answer_names(self, key: int) -> None:
        """Wake those who wait for the name of an output."""
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
        """Write collected messages, once the worker is connected."""
        transport = self._channels.get(orders)
        if transport is not None and self._out[orders] and not transport.is_closing():
            transport.write(frames.pack(self._out[orders]))
            self._out[orders] = []


class WorkerConnection(asyncio.Protocol):
    """One connection of a worker. It identifies itself first."""

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
        """Keep the transport."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read the introduction, then results or answers."""
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
                answers += marshal.loads(body)  # noqa: S302 - it presented the secret
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
        """Read the rest if writing failed, because earlier messages may be unread."""
        if exc is not None:
            self.read_rest()

    def read_rest(self) -> None:
        """Read everything that has arrived."""
        if self._transport is None:
            return
        end = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            while data := os.read(end.fileno(), frames.STAGE):
                self.data_received(data)

    def _introduced(self) -> bool:
        """Return whether the other end has identified itself as a worker that we expect."""
        buffer, head = self._buffer, SECRET_BYTES + frames.LENGTH.size
        if self._transport is None or len(buffer) < head:
            return False
        if bytes(buffer[:SECRET_BYTES]) != self._secret:
            self._transport.close()
            return False
        end = head + frames.LENGTH.unpack_from(buffer, SECRET_BYTES)[0]
        if len(buffer) < end:
            return False
        ((number, orders, pid),) = marshal.loads(bytes(buffer[head:end]))  # noqa: S302 - it presented the secret
        del buffer[:end]
        self._worker, self._orders = self._find(number), orders
        if self._worker is None:
            self._transport.close()
            return False
        self._worker.connected(self._transport, orders=orders, pid=pid)
        return True
