"""Measures acknowledged submissions per second; an answer means that the job is durable in SQLite.

Alternates with the store alone, which writes the same events with 1, 64 and 10,000 submissions per commit.
"""

import asyncio
import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Final

from bench.reporting import Options, Report, Table, main, tell
from bench.servers import Running, folder, job, serving
from bench.store_rate import Round, store_alone, written_for_one
from spillover.client import Client

CLIENTS: Final = 64
GENERATORS: Final = 2
"""Processes that the clients are spread over."""
BULK: Final = 10_000
DOCUMENT: Final = job("bench", command=["/bin/true"], workdir="/", needs=["a-word-that-nobody-offers"])
"""It is taken and waits for good, so that nothing but submissions is measured."""


def one_by_one(server: Running, count: int) -> Round:
    """Measure one client that sends a request after each answer."""
    before, used = server.cpu().own, time.process_time()
    with contextlib.closing(server.connect()) as http:
        request = http.request("POST", "/v1/jobs", json.dumps(DOCUMENT).encode())
        times = []
        begin = time.monotonic()
        for _ in range(count):
            asked = time.monotonic()
            http.ask(request)
            times.append(time.monotonic() - asked)
    return _round(server, before, used, begin, count, statistics.median(times))


def library(server: Running, count: int) -> Round:
    """Measure the same through `spillover.Client`."""
    with Client(f"http://{server.host}:{server.port}", server.token) as client:
        client.submit(DOCUMENT)
        before, used = server.cpu().own, time.process_time()
        times = []
        begin = time.monotonic()
        for _ in range(count):
            asked = time.monotonic()
            client.submit(DOCUMENT)
            times.append(time.monotonic() - asked)
    return _round(server, before, used, begin, count, statistics.median(times))


def bulk(server: Running, count: int) -> Round:
    """Measure all submissions in one request."""
    before, used = server.cpu().own, time.process_time()
    with contextlib.closing(server.connect()) as http:
        request = http.request("POST", "/v1/jobs", json.dumps({"jobs": [DOCUMENT] * count}).encode())
        begin = time.monotonic()
        http.ask(request)
    return _round(server, before, used, begin, count, time.monotonic() - begin)


def _round(server: Running, before: float, used: float, begin: float, count: int, waited: float) -> Round:
    seconds = time.monotonic() - begin
    return Round(
        count / seconds,
        (server.cpu().own - before) / count * 1e6,
        (time.process_time() - used) / count * 1e6,
        waited * 1e3,
    )


def at_once(server: Running, count: int) -> Round:
    """Measure 64 clients in two processes. Each sends a request after each answer."""
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(GENERATORS + 1)
    results = context.SimpleQueue()
    share = count // GENERATORS
    place = (server.host, server.port, server.token)
    workers = [
        context.Process(
            target=lambda: results.put(
                asyncio.run(_generate(place, CLIENTS // GENERATORS, share, ready.wait))
            )
        )
        for _ in range(GENERATORS)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    before, begin = server.cpu().own, time.monotonic()
    found = [results.get() for _ in workers]
    seconds = time.monotonic() - begin
    for worker in workers:
        worker.join()
    asked = share * GENERATORS
    return Round(
        asked / seconds,
        (server.cpu().own - before) / asked * 1e6,
        sum(used for used, _ in found) / asked * 1e6,
        statistics.median(waited for _, waited in found) * 1e3,
    )


class _Asking(asyncio.Protocol):
    """A connection that sends the next request after each answer; it only counts bytes, as all answers have one size."""

    def __init__(self, request: bytes, go_on: Callable[[float], bool], ended: Callable[[], None]) -> None:
        self._request, self._go_on, self._ended = request, go_on, ended
        self._asked = 0.0
        self._said = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self) -> None:
        """Send the next request."""
        assert self._transport is not None
        self._asked = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._said += data
        if not self._said.endswith(b"]}"):
            return
        if not self._said.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"refused: {self._said[:200]!r}")
        self._said = b""
        if self._go_on(time.monotonic() - self._asked):
            self.ask()
        else:
            self._transport.close()
            self._ended()


async def _generate(
    place: tuple[str, int, str], clients: int, count: int, ready: Callable[[], object]
) -> tuple[float, float]:
    """Send requests from several connections; return the CPU seconds used, and the median latency."""
    host, port, token = place
    body = json.dumps(DOCUMENT).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {token}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    times: list[float] = []
    live = clients
    done = asyncio.Event()

    def go_on(waited: float) -> bool:
        times.append(waited)
        return len(times) + live <= count

    def ended() -> None:
        nonlocal live
        live -= 1
        if not live:
            done.set()

    loop = asyncio.get_running_loop()
    asking = [
        (await loop.create_connection(lambda: _Asking(request, go_on, ended), host, port))[1]
        for _ in range(clients)
    ]
    ready()
    used = time.process_time()
    for each in asking:
        each.ask()
    await done.wait()
    return time.process_time() - used, statistics.median(times)


def measure(options: Options) -> Report:
    """Alternate the server and its store, and compare the medians."""
    count, rounds = (300, 1) if options.quick else (2000, 5)
    ways: tuple[tuple[str, int, int, Callable[[Running, int], Round]], ...] = (
        ("one client, one by one", 1, count, one_by_one),
        ("one client, spillover.Client", 1, count // 2, library),
        (f"{CLIENTS} clients at once", CLIENTS, 4 * count, at_once),
        (f"bulk, {BULK:,} a request", BULK, BULK, bulk),
    )
    server_rounds: dict[str, list[Round]] = {name: [] for name, *_ in ways}
    store_rounds: dict[int, list[Round]] = {together: [] for _, together, *_ in ways}
    for number in range(rounds):
        with folder("submissions") as path:
            (path / "data").mkdir()
            with serving(path / "data", "--slots", "1") as server:
                server.wait_for_agents()
                one_by_one(server, 50)
                for name, _, many, run in ways:
                    server_rounds[name].append(run(server, many))
                    tell(f"round {number + 1}: {name}: {server_rounds[name][-1].rate:,.0f} a second")
            written = asyncio.run(written_for_one(path / "data"))
        for together, each in store_rounds.items():
            each.append(asyncio.run(store_alone(written, together, max(count, 4 * together))))
            tell(f"round {number + 1}: the store, {together} a commit: {each[-1].rate:,.0f} a second")
    report = Report("Acknowledged submissions")
    table = Table(
        f"durable submissions a second; median of {rounds} alternating rounds",
        ("", "server/s", "store alone/s", "ratio", "server CPU µs", "clients' CPU µs", "median ms"),
    )
    for name, together, *_ in ways:
        ours, store = _median(server_rounds[name]), _median(store_rounds[together])
        table.add(name, ours.rate, store.rate, ours.rate / store.rate, ours.server, ours.clients, ours.waited)
        report.figures[f"{name}: server"] = ours.rate
        report.figures[f"{name}: store"] = store.rate
    report.tables.append(table)
    report.notes.append(
        "The store alone appends the events that the server wrote for one submission, with 1, 64 or 10,000 "
        "submissions per commit and the same durability. Clients share the cores with the server."
    )
    return report


def _median(rounds: list[Round]) -> Round:
    """Return the median round."""
    return sorted(rounds, key=lambda one: one.rate)[len(rounds) // 2]


if __name__ == "__main__":
    main(measure, "Acknowledged submissions a second, and what the store alone could do.")
