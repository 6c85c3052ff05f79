"""Says in words where jobs are and how they went, the same in every command that lists them."""

from typing import TYPE_CHECKING, Final

from spillover.cli.printing.shown import NOTHING

if TYPE_CHECKING:
    from spillover.wire.api import Forecast, JobView

_WORDS: Final = {
    "RUNNING": "running",
    "PLACED": "placed",
    "QUEUED": "queued",
    "HELD": "held",
    "SUCCEEDED": "done",
    "FAILED": "failed",
    "TIMED_OUT": "timed out",
    "CANCELLED": "cancelled",
}
"""Says the states of the members of an array, in this order."""


def place(job: "JobView | Forecast") -> str:
    """Return cluster and node, as far as they are known; of a gang the first node, and how many more."""
    first = "/".join(part for part in (job.cluster, job.node) if part)
    return first if job.nodes <= 1 else f"{first} and {job.nodes - 1} more"


def place_and_reason(job: "JobView") -> str:
    """Describe where a job is, with the progress of an array and the reason why it waits or failed."""
    parts = [place(job)]
    if job.array is not None:
        parts.append(progress(job.array.counts, job.array.size))
    if job.reason is not None and job.state != "SUCCEEDED":
        parts.append(job.reason.message)
    return ": ".join(part for part in parts if part) or NOTHING


def progress(counts: dict[str, int], size: int) -> str:
    """Describe the progress of an array: `1000: 12 running, 300 done, 2 failed`."""
    known = [f"{counts[state]} {word}" for state, word in _WORDS.items() if counts.get(state)]
    return f"{size}: {', '.join(known)}" if known else str(size)


def outcome(job: "JobView") -> str:
    """Describe the end of a job in one line."""
    why = f": {job.reason.message}" if job.reason is not None else ""
    return f"{job.id} ({job.name}) is {job.state}{why}"


def has_run(job: "JobView") -> bool:
    """Tell whether a job may have output; one whose program does not exist has an exit code but no start."""
    return job.started_at is not None or job.exit_code is not None
