"""Measures how long a gang takes to start: from its submission, with room free, to the start of its last task.

The floor starts the same commands from one program on the same machine, without a scheduler.
"""

import contextlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import folder, job, serving

AGENTS: Final = 8
TASKS: Final = 16
STAMP: Final = 'date +%s%N > "$STAMPS/$SPILL_JOB_ID.$SPILL_TASK.new"; cd "$STAMPS"; mv "$SPILL_JOB_ID.$SPILL_TASK.new" "$SPILL_JOB_ID.$SPILL_TASK"'
"""Each task writes when it runs, in nanoseconds."""


def config() -> str:
    """Return eight agents with two slots each."""
    local = ", ".join(f"{{name: n{number}, cpu: 2, memory: 1Gi}}" for number in range(AGENTS))
    return (
        "apiVersion: spillover/v1\nkind: Config\n"
        f"clusters: [{{name: here, kind: agents, role: owned, local: [{local}]}}]\n"
    )


def stamps_of(path: Path, name: str) -> list[int]:
    """Return when the tasks of a gang ran, once all have."""
    files = [path / f"{name}.{rank}" for rank in range(TASKS)]
    until = time.monotonic() + 60
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            raise TimeoutError(f"the gang {name} did not start")
        time.sleep(0.002)
    return [int(file.read_text()) for file in files]


def ours(path: Path, gangs: int) -> list[tuple[float, float]]:
    """Return for each gang the milliseconds to the start of its last task, and between the first and the last."""
    (path / "data").mkdir(parents=True)
    stamps = path / "stamps"
    stamps.mkdir()
    (path / "spill.yaml").write_text(config(), encoding="utf-8")
    found: list[tuple[float, float]] = []
    with (
        serving(path / "data", "--config", str(path / "spill.yaml")) as server,
        contextlib.closing(server.connect()) as http,
    ):
        server.wait_for_agents(AGENTS)
        gang = job(
            "gang", command=["/bin/sh", "-c", STAMP], workdir="/", tasks=TASKS, env={"STAMPS": str(stamps)}
        )
        for number in range(gangs + 3):
            request = http.request("POST", "/v1/jobs", json.dumps({"jobs": [gang]}).encode())
            begin = time.time_ns()
            (name,) = json.loads(http.ask(request))["jobs"]
            times = stamps_of(stamps, name)
            if number >= 3:  # the first ones load what is needed
                found.append(((max(times) - begin) / 1e6, (max(times) - min(times)) / 1e6))
            while http.get(f"/v1/jobs/{name}")["state"] != "SUCCEEDED":
                time.sleep(0.005)
    return found


def floor(path: Path, gangs: int) -> list[tuple[float, float]]:
    """Return the same for commands that this program starts itself."""
    path.mkdir(parents=True)
    found: list[tuple[float, float]] = []
    for number in range(gangs):
        begin = time.time_ns()
        started = [
            subprocess.Popen(
                ["/bin/sh", "-c", STAMP],
                env=os.environ | {"STAMPS": str(path), "SPILL_JOB_ID": f"f{number}", "SPILL_TASK": str(rank)},
            )
            for rank in range(TASKS)
        ]
        for each in started:
            each.wait()
        times = stamps_of(path, f"f{number}")
        found.append(((max(times) - begin) / 1e6, (max(times) - min(times)) / 1e6))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of them is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(options: Options) -> Report:
    """Start gangs one after the other."""
    gangs = 20 if options.quick else 200
    report = Report("Start of gangs")
    with folder("gangs") as path:
        tell("starting commands without a scheduler")
        bare = floor(path / "floor", gangs)
        tell("starting gangs")
        found = ours(path / "ours", gangs)
    table = Table(
        f"{gangs} gangs of {TASKS} tasks on {AGENTS} local agents, one after the other; milliseconds",
        ("", "p50 to the last task", "p99", "p50 from first to last task", "p99 "),
    )
    for name, each in (("16 processes, no scheduler", bare), ("a gang", found)):
        whole, skew = [one for one, _ in each], [one for _, one in each]
        table.add(
            name,
            statistics.median(whole),
            quantile(whole, 0.99),
            statistics.median(skew),
            quantile(skew, 0.99),
        )
    report.tables.append(table)
    p50 = statistics.median([one for one, _ in found])
    report.figures |= {
        "p50 ms": p50,
        "p99 ms": quantile([one for one, _ in found], 0.99),
        "floor p50 ms": statistics.median([one for one, _ in bare]),
    }
    report.goals.append(
        Goal("gang / 16 bare processes, p50", p50 / report.figures["floor p50 ms"], 5, at_most=True)
    )
    return report


if __name__ == "__main__":
    main(measure, "Start of a gang of 16 tasks on 8 agents.")
