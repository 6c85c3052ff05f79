"""The columns that `spill ls --columns` and `--sort` know, by name."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.command import UsageError
from spillover.cli.printing.listing import place, place_and_reason, progress
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, STYLES, between, duration, local, money, number, soon
from spillover.model.units import format_memory

if TYPE_CHECKING:
    from spillover.wire.api import JobView

Value = str | float | None
"""What jobs are sorted by; None comes last."""


class JobColumn(NamedTuple):
    """One column of a list of jobs."""

    column: Column
    about: str
    value: "Callable[[JobView], Value]"
    """What it is sorted by."""
    cell: "Callable[[JobView], str | Cell] | None" = None
    """Its text; None if that is the value."""


def _text(
    title: str, about: str, value: "Callable[[JobView], str | None]", *, gives: bool = False
) -> JobColumn:
    """Return a column of texts."""
    return JobColumn(Column(title, gives=gives), about, value)


def _whole(title: str, about: str, value: "Callable[[JobView], int | None]") -> JobColumn:
    """Return a column of whole numbers."""
    return JobColumn(Column(title, right=True), about, value)


def _span(title: str, about: str, value: "Callable[[JobView], float | None]") -> JobColumn:
    """Return a column of durations."""
    return JobColumn(Column(title, right=True), about, value, lambda job: duration(value(job)))


def _moment(title: str, about: str, value: "Callable[[JobView], str | None]") -> JobColumn:
    """Return a column of times; as text they sort in their order."""
    return JobColumn(Column(title), about, value, lambda job: local(value(job)))


def _left(job: "JobView") -> float | None:
    """Return the seconds until a running job reaches its walltime."""
    if job.walltime_s is None or job.started_at is None or job.finished_at is not None:
        return None
    return job.walltime_s - (between(job.started_at, None) or 0.0)


def _exit(job: "JobView") -> str | None:
    """Return how the program ended: its exit code, or its signal."""
    if job.signal is not None:
        return f"signal {job.signal}"
    return None if job.exit_code is None else str(job.exit_code)


JOB_COLUMNS: Final[dict[str, JobColumn]] = {
    "id": _text("JOB", "id", lambda job: job.id),
    "name": _text("NAME", "name", lambda job: job.name, gives=True),
    "user": _text("USER", "who submitted it", lambda job: job.user),
    "project": _text("PROJECT", "project", lambda job: job.project),
    "queue": _text("QUEUE", "queue", lambda job: job.queue),
    "state": JobColumn(
        Column("STATE"),
        "state",
        lambda job: job.state,
        lambda job: Cell(job.state, STYLES.get(job.state, "")),
    ),
    "priority": _whole("PRIORITY", "priority", lambda job: job.priority),
    "age": _span("AGE", "time since its submission", lambda job: between(job.submitted_at, None)),
    "ran": _span("RAN", "how long it runs, or ran", lambda job: between(job.started_at, job.finished_at)),
    "limit": _span("LIMIT", "walltime", lambda job: job.walltime_s),
    "left": _span("LEFT", "time until it reaches its walltime", _left),
    "estimate": _span("EXPECTED", "expected runtime", lambda job: job.estimate_s),
    "submitted": _moment("SUBMITTED", "when it was submitted", lambda job: job.submitted_at),
    "started": _moment("STARTED", "when its last attempt started", lambda job: job.started_at),
    "ended": _moment("ENDED", "when it ended", lambda job: job.finished_at),
    "starts": JobColumn(
        Column("STARTS", right=True),
        "when it is expected to start, while it waits",
        lambda job: None if job.expected_start is None else job.expected_start.p50,
        lambda job: soon(job.expected_start),
    ),
    "cost": JobColumn(
        Column("COST", right=True),
        "what its attempts cost so far",
        lambda job: job.cost,
        lambda job: money(job.cost) if job.cost else NOTHING,
    ),
    "cpu": JobColumn(
        Column("CPU", right=True),
        "CPUs of each task",
        lambda job: job.resources.get("cpu"),
        lambda job: number(job.resources.get("cpu", 0.0)),
    ),
    "memory": JobColumn(
        Column("MEMORY", right=True),
        "memory of each task",
        lambda job: job.resources.get("memory"),
        lambda job: format_memory(round(found)) if (found := job.resources.get("memory")) else NOTHING,
    ),
    "gpu": _whole("GPU", "GPUs of each task", lambda job: round(job.resources.get("gpu", 0))),
    "cluster": _text("CLUSTER", "cluster", lambda job: job.cluster),
    "node": _text("NODE", "node of its first task", lambda job: job.node),
    "where": _text("WHERE", "cluster and node", lambda job: place(job) or None, gives=True),
    "attempt": _whole("ATTEMPT", "number of its last attempt", lambda job: job.attempt),
    "exit": _text("EXIT", "exit code, or signal", _exit),
    "progress": _text(
        "PROGRESS",
        "for arrays, how many members there are in each state",
        lambda job: None if job.array is None else progress(job.array.counts, job.array.size),
        gives=True,
    ),
    "reason": _text(
        "REASON",
        "why it waits, or how it ended",
        lambda job: None if job.reason is None else job.reason.message,
        gives=True,
    ),
    "why": JobColumn(
        Column("WHERE, WHY", gives=True), "place, progress and reason together", place_and_reason
    ),
}
DEFAULT: Final = ("id", "name", "state", "age", "ran", "cost", "why")
WITH_STARTS: Final = (*DEFAULT[:3], "starts", *DEFAULT[3:])


def chosen(names: str) -> list[str]:
    """Return the columns of a list such as `id,name,state`; raise UsageError with those that there are."""
    return [_known("--columns", name.strip()) for name in names.split(",")]


def orders(given: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the columns to sort by, and whether from the highest down: `-cost,name`."""
    words = [word.strip() for each in given for word in each.split(",")]
    return [(_known("--sort", word.removeprefix("-")), word.startswith("-")) for word in words]


def _known(option: str, name: str) -> str:
    if name.lower() in JOB_COLUMNS:
        return name.lower()
    near = get_close_matches(name.lower(), JOB_COLUMNS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{option}: {name!r} is not a column{hint}", f"columns are {', '.join(JOB_COLUMNS)}")


def in_order(jobs: "Sequence[JobView]", by: Sequence[tuple[str, bool]]) -> "list[JobView]":
    """Return jobs sorted by columns, the first of which counts most; jobs without a value come last."""
    ordered = list(jobs)
    for name, down in reversed(by):
        value = JOB_COLUMNS[name].value
        known = [(found, job) for job in ordered if (found := value(job)) is not None]
        unknown = [job for job in ordered if value(job) is None]
        known.sort(key=lambda pair: pair[0], reverse=down)
        ordered = [job for _, job in known] + unknown
    return ordered


def columns_of(names: Sequence[str]) -> list[Column]:
    """Return the columns with these names."""
    return [JOB_COLUMNS[name].column for name in names]


def rows_of(jobs: "Sequence[JobView]", names: Sequence[str]) -> list[Row]:
    """Return one row for each job."""
    return [[_cell(JOB_COLUMNS[name], job) for name in names] for job in jobs]


def _cell(column: JobColumn, job: "JobView") -> str | Cell:
    if column.cell is not None:
        return column.cell(job)
    value = column.value(job)
    return NOTHING if value is None else str(value)
