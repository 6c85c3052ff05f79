"""Runs real servers to measure: `spill up` as a process, with cheap requests over bare sockets."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "bench"
"""Where measurements put what they need: on the file system of the work tree."""
FREE: Final = "127.0.0.1:0"


class Cpu(NamedTuple):
    """CPU seconds of a process and of the children that it has waited for."""

    own: float
    children: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.own - other.own, self.children - other.children)


class Connection:
    """One persistent connection with a minimal HTTP client."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"host: {host}:{port}\r\nauthorization: Bearer {token}\r\n"
        self._left = b""

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return a complete request as bytes."""
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        return f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of the answer; raise if the request failed."""
        self._socket.sendall(request)
        said = self._left
        while (end := said.find(b"\r\n\r\n")) < 0:
            said += self._more()
        head = said[:end].lower()
        size = int(head.partition(b"content-length:")[2].split(b"\r", 1)[0])
        parts, have = [said[end + 4 :]], len(said) - end - 4
        while have < size:
            parts.append(self._more())
            have += len(parts[-1])
        whole = b"".join(parts)
        self._left = whole[size:]
        if not head.startswith((b"http/1.1 200", b"http/1.1 201")):
            raise RuntimeError(f"refused: {head[:40]!r} {whole[:300]!r}")
        return whole[:size]

    def get(self, path: str) -> Any:
        """Return the decoded answer of a path."""
        return json.loads(self.ask(self.request("GET", path)))

    def _more(self) -> bytes:
        piece = self._socket.recv(1 << 18)
        if not piece:
            raise RuntimeError("the server closed the connection")
        return piece


class Running:
    """A server that is ready."""

    def __init__(self, process: "subprocess.Popen[bytes]", data: Path, url: str, ready_after: float) -> None:
        self.process = process
        self.data = data
        self.ready_after = ready_after
        """Seconds from its start until it was ready."""
        host, _, port = url.rpartition("/")[2].rpartition(":")
        self.host, self.port = host, int(port)
        self.token = (data / "token").read_text(encoding="utf-8").strip()

    def connect(self) -> Connection:
        """Open a connection."""
        return Connection(self.host, self.port, self.token)

    def cpu(self) -> Cpu:
        """Return the CPU time of the server so far, without its agents."""
        return cpu_of(self.process.pid)

    def agents(self) -> list[psutil.Process]:
        """Return the processes of its agents."""
        name, found = str(self.data), []
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one that has just ended
                if "spillover.agent" in (line := each.cmdline()) and name in line:
                    found.append(each)
        return found

    def resident(self) -> int:
        """Return the bytes of memory of the server alone."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def wait_for_agents(self, count: int = 1) -> None:
        """Wait until its agents are ready."""
        with contextlib.closing(self.connect()) as connection:
            until(lambda: sum(each["state"] == "ready" for each in connection.get("/v1/agents")) >= count, 30)


def cpu_of(process: int) -> Cpu:
    """Return the CPU time that a process has used so far."""
    times = psutil.Process(process).cpu_times()
    return Cpu(times.user + times.system, times.children_user + times.children_system)


def cpu_below(process: int) -> Cpu:
    """Return the CPU time of a process and its helpers so far, including ended children."""
    whole = psutil.Process(process)
    each = [cpu_of(one.pid) for one in (whole, *whole.children())]
    return Cpu(sum(one.own for one in each), sum(one.children for one in each))


def until(holds: Any, seconds: float, every: float = 0.02) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain")
        time.sleep(every)


@contextlib.contextmanager
def folder(name: str) -> Iterator[Path]:
    """Create an empty folder, and delete it at the end."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=BUILD))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def serving(data: Path, *words: str, program: Sequence[str] = ("-m", "spillover.cli")) -> Iterator[Running]:
    """Run `spill up` on a data folder, or another program with the same arguments."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}
    environment["PYTHONPATH"] = str(ROOT)  # a program of ours is found from another folder too
    command = [
        sys.executable,
        *program,
        "up",
        "--data",
        str(data),
        "--http",
        FREE,
        "--grpc",
        FREE,
    ]
    begin = time.monotonic()
    with (data.parent / f"{data.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=data.parent,
            env=environment,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if not line.startswith("ready "):
            said = (data.parent / f"{data.name}.log").read_text(encoding="utf-8")
            raise RuntimeError(f"the server did not start: {said[-500:]}")
        yield Running(process, data, line.split()[1], time.monotonic() - begin)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def job(name: str = "bench", **spec: Any) -> dict[str, Any]:
    """Return a job document."""
    return {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
