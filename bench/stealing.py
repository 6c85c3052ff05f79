"""Measures a heavy-tailed batch on 16 agents with uneven queues: with stealing, without it, and in the best case."""

import contextlib
import heapq
import json
import random
import time
from pathlib import Path
from typing import Final

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import folder, job, serving
from bench.throughput import ended

AGENTS: Final = 16
AHEAD: Final = "5s"
"""So much work is prefetched that queues grow uneven; the default, 0.1 s, hardly leaves anything to steal."""
SEED: Final = 4
WARM: Final = 64


def config(*, stealing: bool) -> str:
    """Return sixteen agents of one slot, of which a quarter is preferred."""
    local = ", ".join(f"{{name: n{number}, cpu: 1, memory: 1Gi}}" for number in range(AGENTS))
    return (
        "apiVersion: spillover/v1\nkind: Config\n"
        "policy: {route: {biased: {share: 0.25}}}\n"
        f"agents: {{ahead: {AHEAD}, stealing: {str(stealing).lower()}}}\n"
        f"clusters: [{{name: here, kind: agents, role: owned, local: [{local}]}}]\n"
    )


def runtimes(count: int) -> list[float]:
    """Return runtimes in seconds: most are short, a few take most of the time."""
    dice = random.Random(SEED)
    return [min(4.0, max(0.02, 0.12 * dice.paretovariate(1.3))) for _ in range(count)]


def perfect(seconds: list[float]) -> float:
    """Return the makespan with the longest tasks first, within a few per cent of the optimum."""
    free = [0.0] * AGENTS
    for one in sorted(seconds, reverse=True):
        heapq.heappushpop(free, free[0] + one)
    return max(free)


def in_order(seconds: list[float]) -> float:
    """Return the makespan in order of arrival: the best possible without known runtimes."""
    free = [0.0] * AGENTS
    for one in seconds:
        heapq.heappushpop(free, free[0] + one)
    return max(free)


def makespan(path: Path, seconds: list[float], *, stealing: bool) -> tuple[float, int]:
    """Return the seconds from submission to the last end, and how many leases moved."""
    (path / "data").mkdir(parents=True)
    (path / "spill.yaml").write_text(config(stealing=stealing), encoding="utf-8")
    with (
        serving(path / "data", "--config", str(path / "spill.yaml")) as server,
        contextlib.closing(server.connect()) as http,
    ):
        server.wait_for_agents(AGENTS)
        # So that it is known how long tasks take here: work is prefetched by that.
        warm = [job("warm", command=["/bin/sleep", "0.3"], workdir="/") for _ in range(WARM)]
        http.ask(http.request("POST", "/v1/jobs", json.dumps({"jobs": warm}).encode()))
        while ended(http) < WARM:
            time.sleep(0.05)
        jobs = [job("tail", command=["/bin/sleep", f"{one:.3f}"], workdir="/") for one in seconds]
        request = http.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}).encode())
        begin = time.monotonic()
        http.ask(request)
        while ended(http) < WARM + len(seconds):
            time.sleep(0.02)
        took = time.monotonic() - begin
        moved = sum(int(each["stolen_in"]) for each in http.get("/v1/agents"))
    return took, moved


def measure(options: Options) -> Report:
    """Alternate runs with and without stealing."""
    count, rounds = (300, 1) if options.quick else (1000, 3)
    report = Report("Stealing on a skewed load")
    seconds = runtimes(count)
    best = perfect(seconds)
    found: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    with folder("stealing") as path:
        for number in range(rounds):
            for stealing, each in found.items():
                each.append(makespan(path / f"{number}-{stealing}", seconds, stealing=stealing))
                what = "with" if stealing else "without"
                tell(f"round {number + 1}: {what} stealing {each[-1][0]:.2f} s, {each[-1][1]} moved")
    table = Table(
        f"{count:,} tasks of 0.12 s to 4 s (Pareto), {AGENTS} agents of one slot, route biased, {AHEAD} of work ahead; best of {rounds}",
        ("", "seconds", "of a perfect schedule", "leases moved"),
    )
    table.add("perfect: runtimes known, longest first", best, 1.0, 0)
    table.add("in order, onto whoever is free first", in_order(seconds), in_order(seconds) / best, 0)
    for stealing, each in found.items():
        took, moved = min(each)
        table.add("with stealing" if stealing else "without", took, took / best, moved)
        report.figures[f"{'with' if stealing else 'without'} stealing s"] = took
    report.tables.append(table)
    report.figures["perfect s"] = best
    report.goals.append(Goal("with stealing / perfect", min(found[True])[0] / best, 1.1, at_most=True))
    return report


if __name__ == "__main__":
    main(measure, "Makespan of a heavy-tailed batch with and without stealing.")
