"""Counts the instructions of a simulated job of one task, beside an earlier state of this repository.

Seconds on a busy machine differ by a tenth from run to run, which hides a change of a few hundredths. Instructions do
not. The start of the program is subtracted: each simulation runs with many jobs and with few.
"""

import gzip
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.reporting import Goal, Options, Report, Table, main, tell

HERE: Final = Path(__file__).resolve().parents[1]
TRACES: Final = HERE.parent / "shared" / "traces"
BASE: Final = os.environ.get("BASE", "93051920")
"""The earlier state; by default the last one before gangs ran on agents."""
FEW: Final = 10


class Run(NamedTuple):
    """A simulation."""

    trace: str
    owned: str
    policy: str


RUNS: Final = (
    Run("kth_sp2_1996", "1x100cpu", "wait=compute(0.001)"),
    Run("kth_sp2_1996", "1x100cpu", "wait=compute(0.001),backfill=easy"),
    Run("kth_sp2_1996", "1x100cpu", "wait=break_even(0.001)"),
    Run("philly_2017", "64x8gpu", "wait=compute(0.076)"),
    Run("philly_2017", "64x8gpu", "wait=break_even(0.06)"),
)


def measure(options: Options) -> Report:
    """Count each simulation in both states."""
    report = Report("Instructions of a simulated job")
    if (missing := _missing()) is not None:
        report.notes.append(f"{missing}: left out.")
        return report
    many = 1000 if options.quick else 4000
    table = Table(
        f"the first {many:,} jobs of each trace; thousands of instructions a job",
        ("trace and machines", "policy", "now", f"at {BASE}", "ratio"),
    )
    with tempfile.TemporaryDirectory() as folder, _state_at(BASE, Path(folder) / "base") as base:
        for run in RUNS:
            tell(f"{run.trace}, {run.policy}")
            now, then = (_instructions(run, source, Path(folder), many) for source in (HERE / "src", base))
            table.add(f"{run.trace}, {run.owned}", run.policy, now / 1000, then / 1000, now / then)
            report.figures[f"{run.trace} {run.policy}"] = now / then
            report.goals.append(
                Goal(f"{run.trace}, {run.policy}: now / then", now / then, 1.05, at_most=True)
            )
    report.tables.append(table)
    return report


def _missing() -> str | None:
    """Return what is not here that this needs."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if not all((TRACES / f"{run.trace}.csv.gz").exists() for run in RUNS):
        return "the traces are not beside the repository (../shared/traces)"
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{BASE}^{{commit}}"], cwd=HERE, capture_output=True, check=False
    )
    return f"this clone has no commit {BASE}" if known.returncode else None


@contextmanager
def _state_at(revision: str, folder: Path) -> Iterator[Path]:
    """Check out the sources of a revision beside this one."""
    git = ["git", "-C", str(HERE), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder / "src"
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _instructions(run: Run, source: Path, folder: Path, many: int) -> float:
    """Return the instructions of a job: those of many jobs without those of few."""
    return (_count(run, source, folder, many) - _count(run, source, folder, FEW)) / (many - FEW)


def _count(run: Run, source: Path, folder: Path, jobs: int) -> int:
    """Return the instructions of one simulation of the first jobs of a trace."""
    head = folder / f"{run.trace}-{jobs}.csv"
    if not head.exists():
        with gzip.open(TRACES / f"{run.trace}.csv.gz", "rt", encoding="utf-8") as lines:
            head.write_text("".join(itertools.islice(lines, jobs + 1)), encoding="utf-8")
    simulate = ["simulate", "--trace", str(head), "--owned", run.owned, "--rented", "gpu=1,cpu=0.1"]
    done = subprocess.run(
        [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}"),
            *(sys.executable, "-m", "spillover.cli", *simulate, "--policy", run.policy, "--json"),
            # The name of true runtimes that both states know. By default, traces with walltimes use these now.
            *("--estimates", "runtime"),
        ],
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    (told,) = [line for line in done.stderr.splitlines() if "refs:" in line]
    return int(told.rpartition(":")[2].replace(",", ""))


if __name__ == "__main__":
    main(measure, __doc__ or "")
