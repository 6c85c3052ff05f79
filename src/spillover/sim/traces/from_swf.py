"""Reads traces in the Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, -1 if unknown."""

import re
from typing import Final

from spillover.model.units import SECOND
from spillover.sim.trace import Happened, Trace, TraceJob
from spillover.sim.traces.rows import Memo, Rows, Wrong, milli, scaled, times

FIELDS: Final = 18
_PARTIAL: Final = frozenset({"2", "3", "4"})
"""Status of a line that describes a part of a job; the whole job has another line."""
_STATES: Final = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}
_START = re.compile(r";\s*UnixStartTime:\s*(\d{1,12})\s*$", re.IGNORECASE)


def read(text: str, rows: Rows) -> Trace:
    """Read the jobs that ran, with their real times."""
    memos = _Memos()
    found: list[tuple[TraceJob, Happened | None]] = []
    zero = not_jobs = 0
    for line, row in enumerate(text.splitlines(), 1):
        if row.startswith(";"):
            if match := _START.match(row):
                zero = int(match[1]) * SECOND
            continue
        fields = row.split()
        if not fields:
            continue
        if len(fields) < FIELDS:
            rows.wrong(line, ("", f"has {len(fields)} fields; a line must have {FIELDS}"))
            continue
        try:
            one = memos.job(fields)
        except Wrong as error:
            rows.wrong(line, ("", str(error)))
            continue
        if one is None:
            not_jobs += 1
        else:
            found.append(one)
    rows.check()
    found.sort(key=lambda one: one[0].submit)
    jobs = tuple(job for job, _ in found)
    happened = tuple(past for _, past in found)
    known = any(past is not None for past in happened)
    return Trace(jobs, zero, happened if known else (), rows.left_out, not_jobs)


class _Memos:
    """Parsers that remember the values they have seen."""

    def __init__(self) -> None:
        self._time = Memo(times(SECOND))
        self._milli = Memo(milli)
        self._kib = Memo(scaled(2**10))

    def job(self, fields: list[str]) -> tuple[TraceJob, Happened | None] | None:
        """Parse one line; None if it is not a job that ran."""
        number, submit, wait, runtime, allocated, _, _, asked, limit, memory, status, user, group = fields[
            :13
        ]
        if status in _PARTIAL:
            return None
        cpus = self._milli[allocated] if _known(allocated) and allocated != "0" else 0
        cpus = cpus or (self._milli[asked] if _known(asked) else 0)
        if not _known(runtime) or not cpus:
            return None
        began = self._time[submit]
        ran = self._time[runtime]
        job = TraceJob(
            number,
            began,
            ran,
            0,
            cpus,
            0,
            self._kib[memory] * cpus // 1000 if _known(memory) else 0,
            user if _known(user) else "",
            group if _known(group) else "",
            self._time[limit] if _known(limit) and limit != "0" else None,
        )
        if not _known(wait):
            return job, None
        start = began + self._time[wait]
        return job, Happened(start, start + ran, _STATES.get(status, ""))


def _known(text: str) -> bool:
    """Tell whether a field has a value."""
    return text != "-1" and not text.startswith("-1.")
