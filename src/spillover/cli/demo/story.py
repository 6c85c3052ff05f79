"""What happened to the demo's jobs between two looks, as lines to show. Values in, values out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.demo.plan import CURRENCY, RENTED
from spillover.cli.shown import ENDED, NOTHING, between

if TYPE_CHECKING:
    from spillover.wire.api import ClusterView, JobView, WhyView

_UNSTARTED: Final = frozenset({"HELD", "QUEUED", "PLACED"})


class Happening(NamedTuple):
    """One thing worth a line."""

    job: str
    """Its name."""
    text: str
    style: str
    """On a terminal."""


class DemoLook(NamedTuple):
    """Everything that one look at the server saw."""

    elapsed: float
    """Seconds since the first submission."""
    jobs: "dict[str, JobView]"
    """By id, in the order of submission; members of arrays stand for their array."""
    clusters: "list[ClusterView]"
    total: int
    """How many jobs there will be."""
    heads: "Sequence[tuple[JobView, WhyView]]" = ()
    """The first jobs that wait, and why."""

    def count(self, *states: str) -> int:
        """How many jobs are in one of these states."""
        return sum(job.state in states for job in self.jobs.values())

    def waiting(self) -> "list[JobView]":
        """Jobs that have not started yet, the oldest first."""
        return [job for job in self.jobs.values() if job.state in _UNSTARTED]

    def done(self) -> bool:
        """Whether all jobs were submitted and have ended."""
        return self.count(*ENDED) == self.total

    def rent(self) -> float:
        """What rented capacity has cost so far."""
        return sum(job.cost for job in self.jobs.values() if job.cluster == RENTED)


def happened(before: "Mapping[str, JobView]", after: "Mapping[str, JobView]") -> list[Happening]:
    """What is new since the look before: where jobs went and why, and how they ended."""
    found: list[Happening] = []
    for key, job in after.items():
        old = before.get(key)
        if job.started_at is not None and (old is None or old.started_at is None):
            found.append(_went(job))
        if job.state in ENDED and (old is None or old.state not in ENDED):
            found.append(_ended(job))
    return found


def called(job: "JobView") -> str:
    """The name of a job; a member of an array has its index."""
    _, dot, index = job.id.partition(".")
    return f"{job.name}.{index}" if dot else job.name


def waited(job: "JobView") -> float | None:
    """Seconds until it started; None if it never did."""
    return None if job.started_at is None else between(job.submitted_at, job.started_at)


def ran(job: "JobView") -> float | None:
    """Seconds it ran; None if it never did."""
    return None if job.finished_at is None else between(job.started_at, job.finished_at)


def mean_wait(jobs: "Iterable[JobView]") -> float:
    """Seconds that the jobs which started had waited, on average."""
    waits = [seconds for job in jobs if (seconds := waited(job)) is not None]
    return sum(waits) / len(waits) if waits else 0.0


def waits_for(why: "WhyView") -> str:
    """What a job waits for and for how long, as far as that is known."""
    told = why.reason.message if why.reason is not None else "is about to start"
    return told if why.spills_in_s is None else f"may spill over in {tenths(why.spills_in_s)}; {told}"


def tenths(seconds: float | None) -> str:
    """Seconds of jobs as short as these."""
    return NOTHING if seconds is None else f"{seconds:.1f}s"


def cents(amount: float) -> str:
    """Money of jobs as short as these."""
    return f"{amount:.2f}"


def _went(job: "JobView") -> Happening:
    """A job began to run."""
    why = f": {job.placed_because.message}" if job.placed_because is not None else ""
    spilled = job.cluster == RENTED
    return Happening(
        called(job),
        f"{'spills over to' if spilled else 'runs on'} {job.cluster}{why}",
        "yellow" if spilled else "cyan",
    )


def _ended(job: "JobView") -> Happening:
    """A job ended."""
    if job.state != "SUCCEEDED":
        why = f": {job.reason.message}" if job.reason is not None else ""
        return Happening(called(job), f"{job.state.lower().replace('_', ' ')}{why}", "red")
    cost = f" for {cents(job.cost)} {CURRENCY}" if job.cost else ""
    return Happening(called(job), f"succeeded on {job.cluster} after {tenths(ran(job))}{cost}", "green")
