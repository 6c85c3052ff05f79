"""Measures the memory of a queued job, and how long a restart with many jobs takes.

Submits jobs over HTTP, without keys, to a real server whose agents have not come yet. Memory is the growth of the
resident size since the server was empty. A restart is timed until `ready`, and compared with reading the same rows from
the database.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw
import psutil

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Connection, Running, folder, job, serving, until
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.archive import Finished
from spillover.stores.open import open_store

CONFIG: Final = """\
apiVersion: spillover/v1
kind: Config
clusters: [{name: later, kind: agents, role: owned}]
"""
"""A cluster without agents: jobs wait for the first. A job that is too large for all agents would be refused."""
CHUNK: Final = 10_000
"""Jobs of one request."""
SHAPES: Final = 500
RUNTIMES: Final = 10_000
LIVE: Final = 100_000
FINISHED: Final = 1_000_000


def _requests(http: Connection, count: int, start: int = 0) -> Iterator[bytes]:
    """Yield requests that submit so many jobs of some shapes and many runtimes."""
    for first in range(start, start + count, CHUNK):
        jobs = [
            job(
                "bench",
                command=["/bin/true"],
                workdir="/",
                resources={"cpu": 2, "memory": (1 + number % SHAPES) * 2**20},
                estimate=f"{1 + number * 7919 % RUNTIMES}s",
            )
            for number in range(first, min(first + CHUNK, start + count))
        ]
        yield http.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}).encode())


def _serving(data: Path) -> contextlib.AbstractContextManager[Running]:
    """Run a server that has no agents."""
    config = data.parent / "spill.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return serving(data, "--config", str(config))


def submit(server: Running, count: int, start: int = 0) -> float:
    """Submit so many jobs; return jobs per second."""
    begin = time.monotonic()
    with contextlib.closing(server.connect()) as http:
        for request in _requests(http, count, start):
            http.ask(request)
        queued = http.get("/v1/server")["queued"]
    if queued != start + count:
        raise RuntimeError(f"{queued} jobs are queued instead of {start + count}")
    return count / (time.monotonic() - begin)


def settle(server: Running) -> int:
    """Return the resident bytes once the server is idle."""
    process = psutil.Process(server.process.pid)
    calm = 0

    def quiet() -> bool:
        nonlocal calm
        calm = calm + 1 if process.cpu_percent(0.5) < 10 else 0
        return calm >= 4

    until(quiet, 120, every=0)
    return server.resident()


def queued_memory(report: Report, sizes: tuple[int, ...]) -> None:
    """Measure the bytes per queued job, for queues of growing length in one server."""
    table = Table(
        f"resident memory above an empty server; {SHAPES} shapes, {RUNTIMES:,} runtimes, no keys",
        ("queued jobs", "resident MiB", "above empty MiB", "bytes a job", "submitted/s"),
    )
    with folder("memory") as path:
        (path / "data").mkdir()
        with _serving(path / "data") as server:
            empty = settle(server)
            table.add("0", empty / 2**20, 0.0, "-", "-")
            there = 0
            for size in sizes:
                rate = submit(server, size - there, there)
                there = size
                resident = settle(server)
                each = (resident - empty) / size
                table.add(size, resident / 2**20, (resident - empty) / 2**20, each, rate)
                tell(f"{size:,} queued: {each:,.0f} bytes a job")
                report.figures[f"bytes a job at {size:,}"] = each
        report.goals.append(Goal(f"bytes a queued job at {size:,}", each, 1024, at_most=True))
    report.tables.append(table)


async def _archive(data: Path, count: int) -> None:
    """Store finished jobs as a server that ran them would."""
    store = await open_store("sqlite", data)
    try:
        epoch = await store.election.campaign("bench", "http://127.0.0.1:1")
        if not isinstance(epoch, int):
            raise TypeError(f"the store is held by {epoch.name}")
        now = time.time_ns()
        for first in range(0, count, CHUNK):
            await store.archive.put(
                [_finished(number, now) for number in range(first, min(first + CHUNK, count))], epoch
            )
        await store.election.resign(epoch)
    finally:
        await store.close()


def _finished(number: int, now: int) -> Finished:
    """Return a job that ran for a second."""
    return Finished(
        job=JobId(f"{number:012d}".translate(str.maketrans("0123456789", "abcdefghij"))),
        number=number + 1,
        name="bench",
        user="ada",
        project="default",
        queue="default",
        priority=0,
        state="SUCCEEDED",
        submitted=now - 3 * SECOND,
        started=now - 2 * SECOND,
        finished=now - SECOND,
        cluster="local",
        node="local-1",
        attempt=1,
        exit_code=0,
        signal=None,
        cost=0,
        spec=b"0123456789abcdef",
        shape=Shape(Resources(1000, (1 + number % SHAPES) * 2**20)),
        terms=Terms(estimate=(1 + number * 7919 % RUNTIMES) * SECOND),
        why=None,
        placed_why=None,
        usage=(SECOND, SECOND, 2**20),
    )


def _read_rows(data: Path) -> tuple[float, int]:
    """Read what a server starts from; return the seconds and bytes."""
    begin = time.monotonic()
    size = 0
    connection = apsw.Connection(
        f"file:{data / 'spill.db'}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        checkpoint = connection.execute("SELECT value FROM meta WHERE name = 'checkpoint'").get
        for (body,) in connection.execute("SELECT body FROM records"):
            size += len(body)
        for (body,) in connection.execute("SELECT body FROM batches WHERE last > ?", (checkpoint,)):
            size += len(body)
    finally:
        connection.close()
    return time.monotonic() - begin, size


def _start(data: Path) -> float:
    """Return the seconds until a server on this data is ready."""
    with _serving(data) as server:
        return server.ready_after


def restart(report: Report, live: int, finished: int, rounds: int) -> None:
    """Measure starts with an empty folder, with live jobs, and also with many finished ones."""
    table = Table(
        f"start until `ready`; best of {rounds} alternating rounds",
        ("", "seconds", "above an empty start", "reading its rows", "ratio", "MB read"),
    )
    with folder("restart") as path:
        empty, full, old = path / "empty", path / "live", path / "live-and-finished"
        for each in (empty, full, old):
            each.mkdir()
        for data in (full, old):
            if data is old:
                tell(f"archiving {finished:,} finished jobs")
                asyncio.run(_archive(data, finished))
            tell(f"submitting {live:,} jobs")
            with _serving(data) as server:
                submit(server, live)
                settle(server)
        cases = {"empty": empty, f"{live:,} live": full, f"{live:,} live, {finished:,} finished": old}
        found: dict[str, list[float]] = {name: [] for name in cases}
        floors: dict[str, list[float]] = {name: [] for name in cases}
        sizes = dict.fromkeys(cases, 0)
        for _ in range(rounds):
            for name, data in cases.items():
                found[name].append(_start(data))
                seconds, sizes[name] = _read_rows(data)
                floors[name].append(seconds)
                tell(f"{name}: ready after {found[name][-1]:.2f} s")
    base = min(found["empty"])
    for name in cases:
        took, least = min(found[name]), min(floors[name])
        above = took - base
        table.add(name, took, above, least, "-" if name == "empty" else above / least, sizes[name] / 1e6)
        report.figures[f"restart, {name}: seconds"] = took
    (_, few, many) = (min(each) for each in found.values())
    report.goals.append(
        Goal(f"restart with {finished:,} finished jobs / without them", many / few, 1.5, at_most=True)
    )
    report.tables.append(table)


def measure(options: Options) -> Report:
    """Measure memory, then restarts."""
    report = Report("Memory and restart")
    queued_memory(report, (20_000,) if options.quick else (100_000, 1_000_000))
    restart(
        report,
        LIVE // 10 if options.quick else LIVE,
        FINISHED // 20 if options.quick else FINISHED,
        1 if options.quick else 3,
    )
    report.notes.append(
        "The floor of a restart only reads the last checkpoint and the events after it from the same file."
    )
    return report


if __name__ == "__main__":
    main(measure, "Memory of queued jobs, and time to restart.")
