"""Measures how many short jobs run per second, from a bulk submission until every result is durable.

Alternates with the floor (a C program that only starts the same processes), Ray, Parsl, Dask and Slurm.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import BUILD, Connection, Cpu, cpu_below, folder, job, serving

HERE: Final = Path(__file__).resolve().parent
PEERS: Final = HERE.parent / ".bench-venv" / "bin" / "python"
SLOTS: Final = 2
FLOOR: Final = "floor (C)"
OURS: Final = "spillover"
PROCESS_PEERS: Final = {"ray": "Ray", "parsl": "Parsl HTEX", "distributed": "Dask"}
"""By the name of their package."""
SCRIPTS: Final = {"distributed": "dask"}
"""What a peer's program is called, where that is not the name of its package."""
SLURM: Final = "Slurm"
MOST_SLURM: Final = 1000


class Round(Struct, frozen=True):
    """One measurement."""

    rate: float
    """Tasks a second."""
    cpu: dict[str, float]
    """CPU microseconds a task, by part; empty where nobody counted."""


def build_floor() -> Path:
    """Compile the floor."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "floor"
    subprocess.run(["cc", "-O2", "-o", str(program), str(HERE / "floor.c")], check=True)
    return program


def floor(path: Path, count: int) -> Round:
    """Only start processes and wait for them."""
    told = json.loads(output_of([str(build_floor()), str(path), str(count)]))
    cpu = {"spawning": told["own_cpu"] / count * 1e6, "children": told["children_cpu"] / count * 1e6}
    return Round(count / told["seconds"], cpu)


def peer(name: str, path: Path, count: int) -> Round:
    """Measure another scheduler with the same tasks."""
    told = json.loads(
        output_of([str(PEERS), str(HERE / "peers" / f"{name}_tasks.py"), str(path), str(count)])
    )
    return Round(count / told["seconds"], {})


def slurm(path: Path, count: int) -> Round:
    """Measure Slurm with fewer jobs, as it runs some fifty a second."""
    return peer("slurm", path, min(count, MOST_SLURM))


def ours(path: Path, count: int) -> Round:
    """Measure `spill up` with one local agent of two slots."""
    (path / "data").mkdir()
    with (
        serving(path / "data", "--slots", str(SLOTS)) as server,
        contextlib.closing(server.connect()) as http,
    ):
        server.wait_for_agents()
        (agent,) = server.agents()
        jobs = [job("true", command=["/bin/true"], workdir="/") for _ in range(count)]
        request = http.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}).encode())
        before = server.cpu(), cpu_below(agent.pid)
        begin = time.monotonic()
        http.ask(request)
        while http.get("/v1/server")["queued"]:  # cheap to ask, but what is placed is not over yet
            time.sleep(0.02)
        while ended(http) < count:
            time.sleep(0.01)
        seconds = time.monotonic() - begin
        used = server.cpu() - before[0], cpu_below(agent.pid) - before[1]
    return Round(count / seconds, _split(used, count))


def ended(http: Connection) -> int:
    """Return how many jobs have succeeded durably."""
    for line in http.ask(http.request("GET", "/metrics")).splitlines():
        if line.startswith(b'spill_jobs_ended_total{state="SUCCEEDED"}'):
            return int(float(line.split()[1]))
    return 0


def _split(used: tuple[Cpu, Cpu], count: int) -> dict[str, float]:
    server, agent = used
    parts = {"server": server.own, "agent": agent.own, "children": agent.children}
    return {name: value / count * 1e6 for name, value in parts.items()}


def output_of(command: list[str]) -> str:
    """Return the last line that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:2]} failed: {done.stderr[-500:]}")
    return done.stdout.strip().splitlines()[-1]


def available(name: str) -> str | None:
    """Return None if a peer is installed, else why it is left out."""
    if not PEERS.exists():
        return f"{name} is left out: there is no environment for peers; `make bench` creates it"
    done = subprocess.run([str(PEERS), "-c", f"import {name}"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{name} is left out: it cannot be imported here"


def measure(options: Options) -> Report:
    """Alternate the contenders, and compare the best round of each."""
    count, rounds = (1000, 1) if options.quick else (20_000, 3)
    report = Report("Throughput of short jobs")
    contenders: dict[str, Callable[[Path, int], Round]] = {FLOOR: floor, OURS: ours}
    for name, label in PROCESS_PEERS.items():
        missing = available(name)
        if missing is None:
            contenders[label] = partial(peer, SCRIPTS.get(name, name))
        else:
            report.notes.append(missing)
    if shutil.which("slurmctld") is not None and os.geteuid() == 0:
        contenders[SLURM] = slurm
    else:
        report.notes.append("Slurm is left out: it needs Debian's slurm-wlm and munge, and root")
    found: dict[str, list[Round]] = {name: [] for name in contenders}
    # All files are kept until the end: where many were just deleted, ext4 is slow at creating others for a while.
    with folder("throughput") as path:
        for number in range(rounds):
            for name, run in contenders.items():
                place = path / f"{number}-{name.split()[0].lower()}"
                place.mkdir()
                found[name].append(run(place, count))
                tell(f"round {number + 1}: {name}: {found[name][-1].rate:,.0f} a second")
    best = {name: max(each, key=lambda one: one.rate) for name, each in found.items()}
    table = Table(
        f"{count:,} jobs `/bin/true`, {SLOTS} at a time, output to files; best of {rounds} alternating rounds",
        ("", "jobs/s", "of the floor", "median", "CPU µs a job"),
    )
    base = best[FLOOR].rate
    for name, one in best.items():
        parts = ", ".join(f"{part} {used:,.0f}" for part, used in one.cpu.items()) or "-"
        table.add(
            name, one.rate, one.rate / base, statistics.median(each.rate for each in found[name]), parts
        )
        report.figures[f"{name} jobs/s"] = one.rate
    report.tables.append(table)
    report.goals.append(Goal("spillover / floor", best[OURS].rate / base, 0.6, at_most=False))
    peers = {name: one.rate for name, one in best.items() if name in PROCESS_PEERS.values()}
    if peers:
        first = max(peers, key=lambda name: peers[name])
        report.goals.append(Goal(f"spillover / {first}", best[OURS].rate / peers[first], 2.0, at_most=False))
    own = sum(best[OURS].cpu.values()) - sum(best[FLOOR].cpu.values())
    report.goals.append(Goal("CPU µs a job above the floor", own, 400, at_most=True))
    report.notes.append(
        "Spillover's time begins with the bulk request and ends when all results are durable in SQLite. The peers "
        "store nothing, and start and warm up before their time begins."
    )
    return report


if __name__ == "__main__":
    main(measure, "Short jobs a second: Spillover, the floor, Ray and Parsl.")
