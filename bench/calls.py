"""Measures durable Python calls per second and the start latency of calls and commands, compared with Dask and Ray."""

import contextlib
import json
import statistics
import time
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Running, cpu_below, folder, job, serving
from bench.throughput import HERE, PEERS, SCRIPTS, SLOTS, available, output_of
from spillover import Client

OURS: Final = "spillover"
LABELS: Final = {"distributed": "Dask", "ray": "Ray"}


class Round(Struct, frozen=True):
    """One measurement."""

    rate: float
    """Calls a second."""
    starts: list[float]
    """Milliseconds from submission to start, each on an idle agent."""
    cpu: dict[str, float] = {}
    """CPU microseconds a call, by part."""
    commands: list[float] = []
    """As `starts`, of commands."""


def ours(path: Path, count: int, samples: int) -> Round:
    """Measure `spill up` with one local agent of two slots."""
    (path / "data").mkdir(parents=True)
    with (
        serving(path / "data", "--slots", str(SLOTS)) as server,
        Client(data=str(path / "data")) as client,
    ):
        server.wait_for_agents()
        (agent,) = server.agents()
        list(client.map(lambda _: None, range(1000)))
        before = server.cpu(), cpu_below(agent.pid)
        begin = time.monotonic()
        if any(each is not None for each in client.map(lambda _: None, range(count))):
            raise RuntimeError("a call returned something")
        seconds = time.monotonic() - begin
        used = server.cpu() - before[0], cpu_below(agent.pid) - before[1]
        starts = [_start(client) for _ in range(samples)]
        commands = _commands(server, path, samples)
    parts = {"server": used[0].own, "agent and workers": used[1].own + used[1].children}
    return Round(
        count / seconds, starts, {name: each / count * 1e6 for name, each in parts.items()}, commands
    )


def _start(client: Client) -> float:
    """Return the milliseconds until a call begins."""
    sent = time.monotonic()
    return (client.call(time.monotonic).result() - sent) * 1e3


def _commands(server: Running, path: Path, samples: int) -> list[float]:
    """Return the milliseconds until commands begin, from the times that they write."""
    found = []
    with contextlib.closing(server.connect()) as http:
        for number in range(samples):
            told = path / f"begun{number}"
            # On one machine, and nothing sets its clock meanwhile.
            spec = job("begin", run=f"date +%s.%N > {told}", workdir="/")
            request = http.request("POST", "/v1/jobs", json.dumps({"jobs": [spec]}).encode())
            sent = time.time()
            (name,) = json.loads(http.ask(request))["jobs"]
            http.get(f"/v1/jobs/{name}/wait?timeout=10")
            found.append((float(told.read_text()) - sent) * 1e3)
    return found


def peer(name: str, count: int, samples: int) -> Round:
    """Measure another scheduler."""
    script = HERE / "peers" / f"{SCRIPTS.get(name, name)}_calls.py"
    told: dict[str, Any] = json.loads(output_of([str(PEERS), str(script), str(count), str(samples)]))
    return Round(count / told["seconds"], told["starts"])


def measure(options: Options) -> Report:
    """Alternate the contenders, and compare the best round of each."""
    count, samples, rounds = (5_000, 20, 1) if options.quick else (100_000, 300, 2)
    report = Report("Python calls, and how soon work begins")
    found: dict[str, list[Round]] = {OURS: []}
    for name, label in LABELS.items():
        missing = available(name)
        if missing is None:
            found[label] = []
        else:
            report.notes.append(missing)
    with folder("calls") as path:
        for number in range(rounds):
            for label, each in found.items():
                names = [name for name, known in LABELS.items() if known == label]
                one = peer(names[0], count, samples) if names else ours(path / str(number), count, samples)
                each.append(one)
                tell(f"round {number + 1}: {label}: {one.rate:,.0f} calls a second")
    best = {name: max(each, key=lambda one: one.rate) for name, each in found.items()}
    table = Table(
        f"{count:,} calls of a function that does nothing, {SLOTS} workers; best of {rounds} alternating rounds",
        ("", "calls/s", "CPU µs a call"),
    )
    for name, one in best.items():
        parts = ", ".join(f"{part} {used:,.0f}" for part, used in one.cpu.items()) or "-"
        table.add(name, one.rate, parts)
        report.figures[f"{name} calls/s"] = one.rate
    report.tables.append(table)
    soon = Table(
        f"milliseconds from submission to start on an idle agent, {samples} one by one, medians of {rounds} rounds",
        ("", "p50", "p99"),
    )
    rows = {f"{name}, a call": [one.starts for one in each] for name, each in found.items()}
    rows["spillover, a command"] = [one.commands for one in found[OURS]]
    for name, times in rows.items():
        half = statistics.median(statistics.median(each) for each in times)
        last = statistics.median(statistics.quantiles(each, n=100)[98] for each in times)
        soon.add(name, half, last)
        report.figures[f"{name} p50 ms"], report.figures[f"{name} p99 ms"] = half, last
    report.tables.append(soon)
    if "Dask" in best:
        report.goals.append(Goal("spillover / Dask", best[OURS].rate / best["Dask"].rate, 1.0, at_most=False))
    report.notes.append(
        "Spillover's calls are one `client.map`, from the call until the client has fetched the last result. Each result is durable in "
        "SQLite before the server reports it. The peers store nothing. A command records the time of its start itself."
    )
    return report


if __name__ == "__main__":
    main(measure, "Python calls a second and time to start: Spillover, Dask and Ray.")
