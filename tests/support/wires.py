"""Connects real agents through faulty networks: namespaces if possible, and a proxy that cuts and delays."""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Final

CHUNK: Final = 1 << 16
ROAD: Final = "10.77"
"""First half of the addresses in namespaces."""


class Wire:
    """The connection of one agent to the server: an address with the ports of the server."""

    def __init__(self, host: str, namespace: str | None, device: str | None) -> None:
        self.host = host
        self.namespace = namespace
        """Network namespace of the agent; None if it shares that of the machine."""
        self._device = device
        self._delay = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command that runs on the agent's side of the wire."""
        if self.namespace is None:
            return list(words)
        return ["ip", "netns", "exec", self.namespace, *words]

    def cut(self) -> None:
        """Drop all traffic silently."""
        self._open.clear()
        if self._device is not None:
            _ip("link", "set", self._device, "down")

    def mend(self) -> None:
        """Let all traffic pass, without delay."""
        if self._device is not None:
            _ip("link", "set", self._device, "up")
        self._open.set()
        self._delay = 0.0

    def slow(self, seconds: float) -> None:
        """Delay all data by this many seconds."""
        self._delay = seconds

    async def serve(self, ports: Sequence[int]) -> list[asyncio.Server]:
        """Forward connections on these ports to the same ports of the server."""

        def connected(port: int) -> Any:
            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._carry(reader, writer, port)

            return handle

        return [await asyncio.start_server(connected(port), self.host, port) for port in ports]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Forward one connection until one end closes it."""
        with contextlib.suppress(OSError):
            await self._open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far_writer))
                    group.create_task(self._pump(far_reader, writer))
            far_writer.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction; its end raises an error, which ends the other direction."""
        while data := await reader.read(CHUNK):
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


_groups = itertools.count()


class Wires:
    """Several wires, served by a thread."""

    def __init__(self, count: int) -> None:
        self.apart = _can_be_apart()
        """Whether agents have their own namespaces."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        # The devices of an earlier group may still be on their way out, so this one has names and addresses of its own.
        self._group = next(_groups)
        self.wires: list[Wire] = []
        try:
            for number in range(1, count + 1):
                self.wires.append(self._wire(number))
        except BaseException:
            self.close()
            raise

    def open(self, ports: Sequence[int]) -> None:
        """Start forwarding."""
        self._thread.start()
        for wire in self.wires:
            self._servers += self._do(wire.serve(ports))

    def call(self, what: Any, *arguments: Any) -> None:
        """Call a function in the thread of the wires."""

        async def do() -> None:
            what(*arguments)

        self._do(do())

    def close(self) -> None:
        """Stop forwarding, and clean up."""
        if self._thread.is_alive():
            self._do(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        for wire in self.wires:
            if wire.namespace is not None:
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip("netns", "del", wire.namespace)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _wire(self, number: int) -> Wire:
        """Create a wire with its namespace and devices."""
        if not self.apart:
            return Wire(f"127.0.0.{10 + number}", None, None)
        name = f"sp{os.getpid() % 100_000}{chr(ord('a') + self._group % 26)}{number}"
        near, far = f"{name}h", f"{name}n"
        road = f"{ROAD}.{(os.getpid() + self._group) % 200}"
        host, guest = f"{road}.{4 * number + 1}", f"{road}.{4 * number + 2}"
        _ip("netns", "add", name)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{host}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{guest}/30", "dev", far)
        _ip("-n", name, "link", "set", far, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        return Wire(host, name, near)


def _can_be_apart() -> bool:
    """Tell whether we may create namespaces and virtual links on this machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"sp{os.getpid() % 100_000}-0"
    try:
        _ip("netns", "add", name)
        try:
            _ip("link", "add", f"{name}h", "type", "veth", "peer", "name", f"{name}n", "netns", name)
        finally:
            _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
