"""Measures how fast the command line starts, compared with an interpreter that does nothing."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.reporting import Goal, Options, Report, Table, main

SPILL: Final = str(Path(sys.executable).parent / "spill")
FLOOR: Final = "python -c pass"
COMMANDS: Final = {
    FLOOR: [sys.executable, "-c", "pass"],
    "spill version": [SPILL, "version"],
    "spill run --help": [SPILL, "run", "--help"],
    "spill ls, no server": [SPILL, "ls", "--data", "/nonexistent"],
}


def measure(options: Options) -> Report:
    """Run each command in turns."""
    rounds = 5 if options.quick else 25
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, words in COMMANDS.items():
            begun = time.perf_counter()
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            taken[name].append((time.perf_counter() - begun) * 1000)
    median = {name: statistics.median(times) for name, times in taken.items()}
    table = Table(
        f"median of {rounds} alternating rounds", ("command", "ms", "above the floor", "of the floor")
    )
    for name, each in median.items():
        table.add(name, each, each - median[FLOOR], each / median[FLOOR])
    report = Report("Start of the command line", [table], figures=median)
    above = median["spill version"] - median[FLOOR]
    report.goals.append(Goal("spill version above the floor, ms", above, 150, at_most=True))
    return report


if __name__ == "__main__":
    main(measure, "Start of the command line.")
