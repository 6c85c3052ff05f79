"""Measures what a job costs the server in CPU and disk, with one agent and with many, for tasks that take no time."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Connection, Running, folder, job, serving
from bench.throughput import ended

CLUSTER: Final = "fakes"
CONFIG: Final = f"""\
apiVersion: spillover/v1
kind: Config
clusters: [{{name: {CLUSTER}, kind: agents, role: owned}}]
"""

LOOK: Final = 0.05
"""Seconds between two questions: asking is no part of what a job costs."""


class Round(Struct, frozen=True):
    """One measurement."""

    cpu: float
    """Server's CPU milliseconds for 1,000 jobs, submission included."""
    disk: float
    """Bytes a job that the data folder has grown by."""
    rate: float


def measured(path: Path, agents: int, count: int) -> Round:
    """Run jobs on so many agents with 64 slots in total."""
    (path / "data").mkdir(parents=True)
    (path / "spill.yaml").write_text(CONFIG, encoding="utf-8")
    with (
        serving(path / "data", "--config", str(path / "spill.yaml")) as server,
        _fakes(server, agents),
        contextlib.closing(server.connect()) as http,
    ):
        server.wait_for_agents(agents)
        jobs = [job("true", command=["/bin/true"], workdir="/") for _ in range(count)]
        request = http.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}).encode())
        before, size = server.cpu(), _size(server.data)
        begin = time.monotonic()
        http.ask(request)
        while _left(http) or ended(http) < count:  # the first is cheap, and is ahead of what is on disk
            time.sleep(LOOK)
        seconds = time.monotonic() - begin
        used = (server.cpu() - before).own
        return Round(used / count * 1e6, (_size(server.data) - size) / count, count / seconds)


@contextlib.contextmanager
def _fakes(server: Running, agents: int) -> Iterator[None]:
    """Run agents in a separate process."""
    words = [sys.executable, "-m", "bench.fake_agents", str(server.data), CLUSTER, str(agents)]
    process = subprocess.Popen([*words, str(max(1, 64 // agents))], start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _left(http: Connection) -> int:
    """Return how many jobs are queued, placed or running."""
    now = http.get("/v1/server")
    return int(now["queued"] + now["running"])


def _size(data: Path) -> int:
    """Return the bytes of the store."""
    return sum(each.stat().st_size for each in data.glob("spill.db*"))


def measure(options: Options) -> Report:
    """Measure one agent and many, in alternating rounds."""
    count, rounds = (2_000, 1) if options.quick else (20_000, 3)
    report = Report("What a job costs the server")
    found: dict[int, list[Round]] = {1: [], 64: []}
    with folder("server-cost") as path:
        for number in range(rounds):
            for agents, each in found.items():
                each.append(measured(path / f"{number}-{agents}", agents, count))
                tell(f"round {number + 1}: {agents} agents: {each[-1].cpu:,.0f} ms for 1,000 jobs")
    best = {agents: min(each, key=lambda one: one.cpu) for agents, each in found.items()}
    table = Table(
        f"{count:,} jobs of no length; best of {rounds} alternating rounds",
        ("agents", "server CPU ms for 1,000 jobs", "bytes on disk a job", "jobs/s"),
    )
    for agents, one in best.items():
        table.add(agents, one.cpu, one.disk, one.rate)
        report.figures[f"{agents} agents CPU ms for 1,000 jobs"] = one.cpu
        report.figures[f"{agents} agents bytes a job"] = one.disk
    report.tables.append(table)
    report.goals.append(
        Goal("CPU a job with 64 agents / with 1", best[64].cpu / best[1].cpu, 1.25, at_most=True)
    )
    report.goals.append(
        Goal("bytes a job with 64 agents / with 1", best[64].disk / best[1].disk, 1.25, at_most=True)
    )
    return report


if __name__ == "__main__":
    main(measure, __doc__)
