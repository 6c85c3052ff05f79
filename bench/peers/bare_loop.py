"""The floor of the simulator: the least that a simulation of wait policies takes in plain Python.

One loop for GPUs on equal nodes, without events, plans, reasons, other resources, policies or orders. The rules are
those of the scheduler: at one instant, ends come first, then waits that are over, then arrivals, then placement in
order, first fit.

`bare_loop.py TRACE NODES WAIT COEFFICIENT strict|out_of_order` prints one line of JSON.
"""

import csv
import gzip
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from heapq import heappop, heappush

HOUR = 3600 * 10**9
HALF = Decimal("0.5")
"""Of a nanosecond: times are rounded as the trace reader does it."""
NODE = 8
"""GPUs of a node."""
NEVER = 1 << 62

Job = tuple[int, int, int]
"""Submission and runtime in nanoseconds, and GPUs."""


def read(path: str) -> list[Job]:
    """Read the jobs of a list whose times are in hours."""
    with gzip.open(path, "rt") as file:
        rows = [
            (
                int(Decimal(row["submit_h"]) * HOUR + HALF),
                int(Decimal(row["runtime_h"]) * HOUR + HALF),
                int(row["gpus"]),
            )
            for row in csv.DictReader(file)
        ]
    rows.sort(key=lambda row: row[0])
    return rows


def run(
    jobs: Sequence[Job], nodes: int, wait: Callable[[int, int], int], *, strict: bool
) -> list[tuple[int, bool]]:
    """Return when each job starts and whether it is rented. No job may be larger than a node."""
    free, queue = [NODE] * nodes, list[int]()
    ends: list[tuple[int, int, int]] = []
    waits: list[tuple[int, int]] = []
    start, rented = [-1] * len(jobs), [False] * len(jobs)
    at = 0
    while at < len(jobs) or queue:
        now = jobs[at][0] if at < len(jobs) else NEVER
        if ends and ends[0][0] < now:
            now = ends[0][0]
        while waits and start[waits[0][1]] >= 0:
            heappop(waits)
        if waits and waits[0][0] < now:
            now = waits[0][0]
        while ends and ends[0][0] == now:
            _, node, gpus = heappop(ends)
            free[node] += gpus
        while waits and waits[0][0] == now:
            job = heappop(waits)[1]
            if start[job] < 0:
                start[job], rented[job] = now, True
                queue.remove(job)
        fresh = len(queue)
        while at < len(jobs) and jobs[at][0] == now:
            queue.append(at)
            at += 1
        widest, kept = max(free), list[int]()
        for place, job in enumerate(queue):
            _, runtime, gpus = jobs[job]
            if gpus <= widest:
                node = next(each for each in range(nodes) if free[each] >= gpus)
                free[node] -= gpus
                heappush(ends, (now + runtime, node, gpus))
                start[job] = now
                widest = max(free)
                continue
            longest = wait(runtime, gpus) if place >= fresh else 1
            if longest <= 0:
                start[job], rented[job] = now, True
                continue
            kept.append(job)
            if place >= fresh:
                heappush(waits, (now + longest, job))
            if strict:
                widest = 0
        queue = kept
    return list(zip(start, rented, strict=True))


def waiting(name: str, coefficient: str) -> Callable[[int, int], int]:
    """Return a wait policy by its name; hours for constant."""
    up, down = Decimal(coefficient).as_integer_ratio()
    if name == "compute":
        return lambda runtime, gpus: up * gpus * runtime // down
    fixed = up * HOUR // down if name == "constant" else 0
    return lambda *_: fixed


def main() -> None:
    """Simulate, and print a summary."""
    path, nodes, name, coefficient, fill = sys.argv[1:]
    jobs = read(path)
    found = run(jobs, int(nodes), waiting(name, coefficient), strict=fill == "strict")
    waited = sum(start - job[0] for job, (start, _) in zip(jobs, found, strict=True))
    print(json.dumps({"rented": sum(rented for _, rented in found), "waited": waited}))


if __name__ == "__main__":
    main()
