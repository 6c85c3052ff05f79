"""Formats jobs as table rows, the same in every command that lists them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import ENDED, NOTHING, STYLES, between, duration, money, soon
from spillover.model.units import so_many

if TYPE_CHECKING:
    from spillover.wire.api import Forecast, JobView

COLUMNS: Final = (
    Column("JOB"),
    Column("NAME", gives=True),
    Column("STATE"),
    Column("AGE", right=True),
    Column("RAN", right=True),
    Column("COST", right=True),
    Column("WHERE, WHY", gives=True),
)


_START: Final = Column("STARTS", right=True)


def columns(*, starts: bool = False) -> tuple[Column, ...]:
    """Return the columns of a list of jobs, with that of expected starts if it is asked for."""
    return (*COLUMNS[:3], _START, *COLUMNS[3:]) if starts else COLUMNS


def rows(jobs: Sequence["JobView"], *, starts: bool = False) -> list[Row]:
    """Return one row for each job."""
    return [_row(job, starts=starts) for job in jobs]


def _row(job: "JobView", *, starts: bool) -> Row:
    return (
        job.id,
        job.name,
        Cell(job.state, STYLES.get(job.state, "")),
        *([soon(job.expected_start)] if starts else []),
        duration(between(job.submitted_at, None)),
        duration(between(job.started_at, job.finished_at)),
        money(job.cost) if job.cost else NOTHING,
        place_and_reason(job),
    )


def place(job: "JobView | Forecast") -> str:
    """Return cluster and node, as far as they are known; of a gang the first node, and how many more."""
    first = "/".join(part for part in (job.cluster, job.node) if part)
    return first if job.nodes <= 1 else f"{first} and {job.nodes - 1} more"


def place_and_reason(job: "JobView") -> str:
    """Describe where a job is, with the progress of an array and the reason why it waits or failed."""
    parts = [place(job)]
    if job.array is not None and job.state not in ENDED:
        parts.append(progress(job.array.counts, job.array.size))
    if job.reason is not None and job.state != "SUCCEEDED":
        parts.append(job.reason.message)
    return ": ".join(part for part in parts if part) or NOTHING


def progress(counts: dict[str, int], size: int) -> str:
    """Describe the progress of an array."""
    return f"{so_many(size, 'member')}, " + ", ".join(
        f"{n} {state.lower()}" for state, n in counts.items() if n
    )


def outcome(job: "JobView") -> str:
    """Describe the end of a job in one line."""
    why = f": {job.reason.message}" if job.reason is not None else ""
    return f"{job.id} ({job.name}) is {job.state}{why}"


def has_run(job: "JobView") -> bool:
    """Tell whether a job may have output; one whose program does not exist has an exit code but no start."""
    return job.started_at is not None or job.exit_code is not None
