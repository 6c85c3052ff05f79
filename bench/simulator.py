"""Measures simulations: jobs per CPU second, memory and growth, compared with the original simulator and a floor.

Everything counts except the start of the interpreter: reading, deciding, statistics. Each run is a separate process,
`spill simulate` as users call it; so is the floor, the least that the same rules take.
"""

import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from bench.peers import bare_loop
from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.deciding.engine import Engine
from spillover.forms.policystring import read_policies
from spillover.sim import runner
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.setting import RENTED
from spillover.sim.studies.study import Study, read_jobs, run

HERE: Final = Path(__file__).resolve().parent
SHARED: Final = HERE.parents[1] / "shared"
LIST: Final = SHARED / "reference" / "starburst" / "synthetic-64x8-5k"
PHILLY: Final = SHARED / "traces" / "philly_2017.csv.gz"
SPILL: Final = str(Path(sys.executable).parent / "spill")
NOTHING: Final = [sys.executable, "-c", "pass"]
FIRST_FIT: Final = "place=first_fit"
MACHINES: Final = "3952x16cpu"
GANGS: Final = "synthetic:jobs={},load=1.05,cpus=16:0.4|64:0.3|256:0.2|1024:0.1"
"""Jobs of 1 to 64 whole machines."""
AHEAD: Final = {
    "compute": "wait=compute(0.001)",
    "break_even": "wait=break_even(0.001)",
    "easy": "wait=compute(0.001),backfill=easy",
    "conservative": "wait=compute(0.001),backfill=conservative",
}
"""Policies, of which all but the first look ahead."""


class Contest(NamedTuple):
    """A run for which three simulators give the same outcome."""

    policy: str
    bare: tuple[str, str, str]
    """Wait, coefficient and backfill, as the bare loop takes them."""
    goal: float | None
    """Times faster than the original, at the least."""


CONTESTS: Final = {
    "compute_ooo": Contest(
        f"wait=compute(0.1389),backfill=out_of_order,{FIRST_FIT}", ("compute", "0.1389", "out_of_order"), 25
    ),
    "constant": Contest(f"wait=constant(1h),backfill=strict,{FIRST_FIT}", ("constant", "1", "strict"), None),
    "no_wait": Contest(f"wait=zero,backfill=strict,{FIRST_FIT}", ("zero", "0", "strict"), None),
}


class Cost(NamedTuple):
    """What a process used."""

    cpu: float
    """Seconds, of user and system."""
    memory: float
    """MiB resident, at the most."""
    output: bytes


def measure(options: Options) -> Report:
    """Measure one topic after the other."""
    report = Report("Simulator")
    with tempfile.TemporaryDirectory() as folder, compiled(folder):
        _measure(report, options)
    return report


@contextmanager
def compiled(folder: str) -> Iterator[None]:
    """Compile all modules for the measured processes, as an installation does."""
    given = {name: os.environ.pop(name, None) for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    os.environ["PYTHONPYCACHEPREFIX"] = folder
    try:
        cost_of(NOTHING)
        cost_of(spill("synthetic:jobs=50,load=1", "64x8gpu", "wait=compute(0.076)"))
        yield
    finally:
        del os.environ["PYTHONPYCACHEPREFIX"]
        os.environ.update({name: value for name, value in given.items() if value is not None})


def _measure(report: Report, options: Options) -> None:
    rounds = 3 if options.quick else 9
    if LIST.with_name(f"{LIST.name}.csv.gz").exists():
        _contests(report, rounds)
    else:
        report.notes.append(
            "The original simulator's lists are not beside the repository (../shared/reference): left out."
        )
    _growth(report, (5000, 20_000) if options.quick else (5000, 50_000, 300_000), 1 if options.quick else 3)
    _ahead(report, 1000 if options.quick else 5000, 3 if options.quick else 5)
    if PHILLY.exists():
        _philly(report, 1 if options.quick else 3)
        if options.long:
            _frontier(report)
        else:
            report.notes.append("A frontier of 40 points takes minutes and is measured with `--long`.")
    else:
        report.notes.append("The Philly trace is not beside the repository (../shared/traces): left out.")


def spill(trace: str, owned: str, policy: str, *more: str, rented: str = "gpu=1") -> list[str]:
    """Return the command of one simulation."""
    given = ["--trace", trace, "--owned", owned, "--rented", rented, "--policy", policy, "--json"]
    return [SPILL, "simulate", *given, "--estimates", "true", *more]


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed: {errors.read().decode()}")
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read())


def rounds_of(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Cost]]:
    """Run each in turns, so that a change of the machine's speed affects all."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(cost_of(command))
    return found


def cpu(costs: Sequence[Cost], start: Sequence[Cost]) -> float:
    """Return the median CPU seconds, without those of an idle interpreter."""
    return statistics.median(each.cpu for each in costs) - statistics.median(each.cpu for each in start)


# --- beside the original and the floor


def _contests(report: Report, rounds: int) -> None:
    source = f"{LIST}.csv.gz"
    expected = json.loads(Path(f"{LIST}.expected.json").read_text(encoding="utf-8"))
    original = {each["label"]: float(each["cpu_s"]) for each in expected}
    table = Table(
        f"synthetic-64x8-5k: 5,000 jobs, 64 nodes; median of {rounds} alternating rounds",
        (
            "run",
            "CPU s",
            "jobs a CPU-second",
            "peak MiB",
            "original CPU s",
            "times faster",
            "floor CPU s",
            "of the floor",
        ),
    )
    for label, contest in CONTESTS.items():
        tell(f"{label}, {rounds} rounds")
        _check_same(source, contest)
        found = rounds_of(
            {
                "nothing": NOTHING,
                "spill": spill(source, "64x8gpu", contest.policy, "--warmup", "500"),
                "bare": [sys.executable, str(HERE / "peers" / "bare_loop.py"), source, "64", *contest.bare],
            },
            rounds,
        )
        took, bare = cpu(found["spill"], found["nothing"]), cpu(found["bare"], found["nothing"])
        memory = max(each.memory for each in found["spill"])
        faster = original[label] / took
        table.add(label, took, round(5000 / took), memory, original[label], faster, bare, took / bare)
        report.figures |= {f"{label}_cpu_s": took, f"{label}_floor_cpu_s": bare, f"{label}_faster": faster}
        if contest.goal is not None:
            report.goals.append(
                Goal(f"{label}: times faster than the original", faster, contest.goal, at_most=False)
            )
    report.tables.append(table)
    report.notes.append(
        "Without interpreter start. The original's CPU seconds were recorded with its results, on a similar machine. The floor "
        "(bench/peers/bare_loop.py) is one loop for GPUs alone, measured in the same rounds. All three start every job at the same time in the same place."
    )


def _check_same(source: str, contest: Contest) -> None:
    """Raise if the outcomes differ."""
    study = Study(source, read_owned("64x8gpu"), read_rented("gpu=1"))
    trace = read_jobs(study)
    _, ours = run(study, trace.jobs, read_policies(contest.policy))
    name, coefficient, fill = contest.bare
    theirs = bare_loop.run(
        bare_loop.read(source), 64, bare_loop.waiting(name, coefficient), strict=fill == "strict"
    )
    if [(each.start, each.cluster == RENTED) for each in ours] != theirs:
        raise SystemExit(f"the bare loop and {contest.policy} do not agree")


# --- growth


def _growth(report: Report, sizes: Sequence[int], rounds: int) -> None:
    table = Table(
        f"synthetic jobs at load 1, 64 nodes, compute(0.076); median of {rounds} alternating rounds",
        ("jobs", "CPU s", "µs a job", "growth", "jobs a CPU-second", "peak MiB"),
    )
    tell(f"growth up to {sizes[-1]:,} jobs")
    recipe = "synthetic:jobs={},load=1,burstiness=2"
    commands = {str(size): spill(recipe.format(size), "64x8gpu", "wait=compute(0.076)") for size in sizes}
    found = rounds_of({"nothing": NOTHING, **commands}, rounds)
    first = 0.0
    for size in sizes:
        took = cpu(found[str(size)], found["nothing"])
        each = took / size * 1e6
        first = first or each
        memory = max(one.memory for one in found[str(size)])
        table.add(size, took, each, each / first, round(size / took), memory)
        report.figures |= {f"us_a_job_{size}": each, f"peak_mib_{size}": memory}
        if size == sizes[-1]:
            growth = Goal(f"cost a job, {sizes[0]:,} to {size:,} jobs", each / first, 1.25, at_most=True)
            report.goals.append(growth)
    report.tables.append(table)


# --- Philly


class _Timed(Engine):
    """An engine that records its slowest step."""

    worst = 0.0

    def step(self, *args: Any, **named: Any) -> Any:
        begin = time.process_time()
        found = super().step(*args, **named)
        _Timed.worst = max(_Timed.worst, time.process_time() - begin)
        return found


def _philly(report: Report, rounds: int) -> None:
    """Measure two policies, and the cost of looking ahead."""
    policies = {
        "zero": "wait=zero",
        "compute": "wait=compute(0.076)",
        "compute, max_queue 30": "wait=compute(0.076,max_queue=30)",
        "break_even": "wait=break_even(0.06)",
    }
    tell(f"Philly, {rounds} rounds")
    found = rounds_of(
        {"nothing": NOTHING}
        | {
            name: spill(str(PHILLY), "64x8gpu", policy, "--warmup", "5000")
            for name, policy in policies.items()
        },
        rounds,
    )
    study = Study(str(PHILLY), read_owned("64x8gpu"), read_rented("gpu=1"))
    jobs = read_jobs(study).jobs
    count = len(jobs)
    table = Table(
        f"Philly, {count:,} jobs, 64 nodes; median of {rounds} alternating rounds",
        ("wait", "CPU s", "jobs a CPU-second", "µs a job", "of compute", "worst cycle ms", "peak MiB"),
    )
    base = cpu(found["compute"], found["nothing"])
    for name, policy in policies.items():
        took = cpu(found[name], found["nothing"])
        _Timed.worst = 0.0
        gc.collect()
        with patch.object(runner, "Engine", _Timed):
            run(study, jobs, read_policies(policy))
        memory = max(each.memory for each in found[name])
        table.add(
            name, took, round(count / took), took / count * 1e6, took / base, _Timed.worst * 1e3, memory
        )
        report.figures |= {f"philly_{name}_cpu_s": took, f"philly_{name}_worst_cycle_ms": _Timed.worst * 1e3}
        if name == "compute, max_queue 30":
            report.goals.append(Goal("Philly under one policy, CPU seconds", took, 5, at_most=True))
    report.tables.append(table)
    look = (cpu(found["break_even"], found["nothing"]) - base) / count * 1e6
    report.figures["look_ahead_us_a_job"] = look
    report.notes.append(f"Looking ahead costs {look:.0f} µs a job more than compute.")


def _ahead(report: Report, count: int, rounds: int) -> None:
    """Measure what looking ahead costs on thousands of machines, beside a policy that does not."""
    tell(f"looking ahead on {MACHINES}, {rounds} rounds")
    commands = {
        name: spill(GANGS.format(count), MACHINES, policy, rented="cpu=1") for name, policy in AHEAD.items()
    }
    found = rounds_of({"nothing": NOTHING, **commands}, rounds)
    table = Table(
        f"{count:,} jobs of 1 to 64 machines on {MACHINES}; median of {rounds} alternating rounds",
        ("policy", "CPU s", "CPU ms a job", "of compute"),
    )
    base = cpu(found["compute"], found["nothing"])
    for name in AHEAD:
        took = cpu(found[name], found["nothing"])
        table.add(name, took, took / count * 1e3, took / base)
        report.figures[f"machines_{name}_ms_a_job"] = took / count * 1e3
        if name != "compute":
            goal = f"{name} / compute on {MACHINES}"
            report.goals.append(Goal(goal, took / base, 2.0, at_most=True))
    report.tables.append(table)


def _frontier(report: Report) -> None:
    """Measure a sweep of 40 points on two cores."""
    tell("a frontier of 40 points")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *spill(str(PHILLY), "64x8gpu", "", "--warmup", "5000", "--processes", "2"),
            *("--sweep", "wait=constant(0.1h..4h/20)", "--sweep", "wait=compute(0.01..0.2/19)"),
            *("--out", f"{folder}/points.jsonl"),
        ]
        begin = time.monotonic()
        done = cost_of(command)
        took = time.monotonic() - begin
        points = len(re.findall(rb"\n", Path(f"{folder}/points.jsonl").read_bytes()))
    del done
    report.figures["frontier_s"] = took
    report.goals.append(Goal(f"a frontier of {points} points on two cores, seconds", took, 180, at_most=True))


if __name__ == "__main__":
    main(measure, "The simulator.")
