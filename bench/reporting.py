"""Formats the results of measurements: aligned tables, goals that hold or not, and JSON."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field


class Table(Struct):
    """A table of figures."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Add a row."""
        self.rows.append(tuple(shown(cell) for cell in cells))


class Goal(Struct, frozen=True):
    """A limit that a figure must keep."""

    what: str
    measured: float
    limit: float
    at_most: bool
    """Whether the limit is the most; else the least."""

    @property
    def holds(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


class Report(Struct):
    """The results of one topic."""

    topic: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out and why, and how to read the figures."""
    figures: dict[str, float] = field(default_factory=dict)
    """The bare numbers, by name."""


def shown(cell: Any) -> str:
    """Format a number with its significant digits."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    size = abs(cell)
    return f"{cell:,.0f}" if size >= 100 else f"{cell:.1f}" if size >= 10 else f"{cell:.2f}"


def as_markdown(report: Report) -> str:
    """Format a report as aligned Markdown, which is also readable on a terminal."""
    parts = [f"## {report.topic}"]
    for table in report.tables:
        widths = [
            max(len(row[at]) for row in (table.columns, *table.rows)) for at in range(len(table.columns))
        ]
        lines = [
            _line(table.columns, widths),
            "| "
            + " | ".join("-" * (width - 1) + (":" if at else "-") for at, width in enumerate(widths))
            + " |",
            *(_line(row, widths) for row in table.rows),
        ]
        parts.append(f"**{table.title}**\n\n" + "\n".join(lines))
    if report.goals:
        parts.append("\n".join(_goal(goal) for goal in report.goals))
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    return "\n\n".join(parts) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if at else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {' | '.join(cells)} |"


def _goal(goal: Goal) -> str:
    word, bound = ("held" if goal.holds else "MISSED"), ("at most" if goal.at_most else "at least")
    return f"- goal {word}: {goal.what}: {shown(goal.measured)} ({bound} {shown(goal.limit)})"


def machine() -> str:
    """Describe this machine in one line."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{len(os.sched_getaffinity(0))} cores ({model}), {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load before {os.getloadavg()[0]:.1f}"
    )


def tell(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Options(Struct, frozen=True):
    """The options of a measurement."""

    quick: bool
    """Smaller and fewer rounds: to see that it works, not to quote."""
    long: bool = False
    """Also what takes minutes."""


def main(measure: Callable[[Options], Report], description: str) -> None:
    """Run one topic as a program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer rounds")
    parser.add_argument("--long", action="store_true", help="also run measurements that take minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    given = parser.parse_args()
    tell(machine())
    report = measure(Options(quick=given.quick, long=given.long))
    print(as_markdown(report))
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode([report])))
