"""Reads traces from CSV with a header, a plain format that others are easy to convert to."""

import csv
from collections.abc import Callable, Sequence
from io import StringIO
from operator import attrgetter
from typing import Final

from spillover.model.units import HOUR, SECOND
from spillover.sim.trace import Trace, TraceJob
from spillover.sim.traces.places import Places
from spillover.sim.traces.rows import Memo, Rows, Wrong, WrongRow, milli, refuse, scaled, times, whole

SIZES: Final = ("gpus", "cpus", "nodes", "nodes_or_procs")
"""Columns with the size of a job."""


def read(text: str, rows: Rows) -> Trace:
    """Read the jobs of a table; ignore unknown columns."""
    reader = csv.reader(StringIO(text, newline=""))
    try:
        header = [name.strip().lower() for name in next(reader, [])]
    except csv.Error as error:
        raise refuse(rows.source, f"is not valid CSV: {error}") from None
    table = _Table(header, rows.source)
    jobs: list[TraceJob] = []
    number = -1
    while True:
        try:
            for row in reader:
                if not row:
                    continue
                number += 1
                try:
                    jobs.append(table.job(row, number))
                except WrongRow as error:
                    rows.wrong(reader.line_num, ("", str(error)))
                except Wrong:
                    rows.wrong(reader.line_num, *table.problems(row))
        except csv.Error as error:  # one broken row; continue with the next
            number += 1
            rows.wrong(reader.line_num, ("", str(error)))
            continue
        break
    rows.check()
    jobs.sort(key=attrgetter("submit"))
    return Trace(tuple(jobs), left_out=rows.left_out)


class _Table:
    """The meaning of the columns of one table."""

    def __init__(self, header: Sequence[str], source: str) -> None:
        self._width = len(header)
        self._at = {name: at for at, name in reversed(list(enumerate(header))) if name}
        self._submit, self._submit_of = self._time(source, "submit")
        self._runtime, runtime_of = self._time(source, "runtime")
        self._runtime_of = Memo(runtime_of)
        if not any(name in self._at for name in SIZES):
            raise refuse(source, f"no column has the size of jobs; add one of {', '.join(SIZES)}")
        # Each row gets an empty field at its end, which stands for every missing column.
        blank = self._width
        self._id, self._user, self._project, self._gpus, self._cpus, self._nodes, self._either = (
            self._at.get(name, blank)
            for name in ("id", "user", "project", "gpus", "cpus", "nodes", "nodes_or_procs")
        )
        self._memory, self._limit = self._at.get("memory_mb", blank), self._at.get("req_walltime_s", blank)
        self._whole, self._milli, self._bytes = Memo(whole), Memo(milli), Memo(scaled(2**20))
        self._limit_of = Memo(times(SECOND))
        self._places = Places(self._at)

    def _time(self, source: str, name: str) -> tuple[int, Callable[[str], int]]:
        """Return the position of a time column, and the function that parses it."""
        given = [(f"{name}_{letter}", unit) for letter, unit in (("s", SECOND), ("h", HOUR))]
        here = [(self._at[column], times(unit)) for column, unit in given if column in self._at]
        if len(here) != 1:
            has = "both" if here else "neither"
            raise refuse(
                source,
                f"the header must have exactly one of {name}_s and {name}_h; it has {has}",
            )
        return here[0]

    def job(self, row: list[str], number: int) -> TraceJob:
        """Parse one row."""
        if len(row) != self._width:
            raise WrongRow(f"has {len(row)} columns; the header has {self._width}")
        row.append("")
        gpus, cpus = row[self._gpus], row[self._cpus]
        if not gpus and not cpus:
            cpus = row[self._either]
        nodes = self._whole[row[self._nodes]]
        limit = row[self._limit]
        job = TraceJob(
            row[self._id] or str(number),
            self._submit_of(row[self._submit]),
            self._runtime_of[row[self._runtime]],
            self._whole[gpus],
            self._milli[cpus],
            nodes,
            self._bytes[row[self._memory]],
            row[self._user],
            row[self._project],
            (self._limit_of[limit] or None) if limit else None,
            topology=self._places.of(row) if self._places.given else None,
        )
        if not (job.gpus or job.cpus or nodes):
            raise WrongRow("asks for no resources; set gpus, cpus or nodes")
        return job

    def problems(self, row: list[str]) -> list[tuple[str, str]]:
        """Return all problems with the values of a row, which has the extra empty field already."""
        cpus = self._cpus if row[self._gpus] or row[self._cpus] else self._either
        checks: list[tuple[int, Callable[[str], int]]] = [
            (self._submit, self._submit_of),
            (self._runtime, self._runtime_of.__getitem__),
            (self._gpus, self._whole.__getitem__),
            (cpus, self._milli.__getitem__),
            (self._nodes, self._whole.__getitem__),
            (self._memory, self._bytes.__getitem__),
            (self._limit, lambda text: self._limit_of[text] if text else 0),
        ]
        names = {at: name for name, at in self._at.items()}
        found: list[tuple[str, str]] = []
        for at, read_one in checks:
            try:
                read_one(row[at])
            except Wrong as error:
                found.append((names[at], str(error)))
        return found + self._places.problems(row)
