"""Finds what happened to the jobs of the demo between two looks, as lines to show. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.demo.plan import CURRENCY, RENTED
from spillover.cli.printing.shown import ENDED, NOTHING, between

if TYPE_CHECKING:
    from spillover.cli.demo.machines import Rented
    from spillover.wire.api import ClusterView, JobView, WhyView

_UNSTARTED: Final = frozenset({"HELD", "QUEUED", "PLACED"})


class Happening(NamedTuple):
    """One event that is worth a line."""

    subject: str
    """Name of the job or the machine."""
    text: str
    style: str
    """Style on a terminal."""


class DemoLook(NamedTuple):
    """What one look at the server found."""

    elapsed: float
    """Seconds since the first submission."""
    jobs: "dict[str, JobView]"
    """By id, in the order of submission; members instead of arrays."""
    clusters: "list[ClusterView]"
    total: int
    """Number of jobs that the demo submits in total."""
    machines: "Mapping[str, Rented]" = MappingProxyType({})
    """All rented machines by id, in the order in which they were ordered."""
    heads: "Sequence[tuple[JobView, WhyView]]" = ()
    """The first waiting jobs, with their reasons."""

    def count(self, *states: str) -> int:
        """Count the jobs in any of these states."""
        return sum(job.state in states for job in self.jobs.values())

    def waiting(self) -> "list[JobView]":
        """Return the jobs that have not started, the oldest first."""
        return [job for job in self.jobs.values() if job.state in _UNSTARTED]

    def ended(self) -> bool:
        """Tell whether all jobs were submitted and have ended."""
        return self.count(*ENDED) == self.total

    def done(self) -> bool:
        """Tell whether all jobs have ended, and all machines were given back."""
        return self.ended() and not self.live()

    def live(self) -> "list[Rented]":
        """Return the machines that may cost something."""
        return [each for each in self.machines.values() if each.gone is None]

    def rent(self) -> float:
        """Return what machines cost so far."""
        return sum(each.machine.cost for each in self.machines.values())


def happened(before: "Mapping[str, JobView]", after: "Mapping[str, JobView]") -> list[Happening]:
    """Return what is new since the last look: where jobs started and why, and how they ended."""
    found: list[Happening] = []
    for key, job in after.items():
        old = before.get(key)
        if job.started_at is not None and (old is None or old.started_at is None):
            found.append(_went(job))
        if job.state in ENDED and (old is None or old.state not in ENDED):
            found.append(_ended(job))
    return found


def called(job: "JobView") -> str:
    """Return the name of a job; for a member of an array, with its index."""
    _, dot, index = job.id.partition(".")
    return f"{job.name}.{index}" if dot else job.name


def waited(job: "JobView") -> float | None:
    """Return the seconds from submission to start; None if the job has not started."""
    return None if job.started_at is None else between(job.submitted_at, job.started_at)


def ran(job: "JobView") -> float | None:
    """Return the seconds from start to end; None if the job did not run or has not ended."""
    return None if job.finished_at is None else between(job.started_at, job.finished_at)


def mean_wait(jobs: "Iterable[JobView]") -> float:
    """Return the mean wait in seconds of the jobs that started."""
    waits = [seconds for job in jobs if (seconds := waited(job)) is not None]
    return sum(waits) / len(waits) if waits else 0.0


def waits_for(why: "WhyView") -> str:
    """Describe what a job waits for, and how long if known."""
    told = why.reason.message if why.reason is not None else "is about to start"
    return told if why.spills_in_s is None else f"may spill over in {tenths(why.spills_in_s)}; {told}"


def tenths(seconds: float | None) -> str:
    """Format seconds with one decimal."""
    return NOTHING if seconds is None else f"{seconds:.1f}s"


def cents(amount: float) -> str:
    """Format money with two decimals."""
    return f"{amount:.2f}"


def _went(job: "JobView") -> Happening:
    """Describe the start of a job."""
    why = f": {job.placed_because.message}" if job.placed_because is not None else ""
    spilled = job.cluster == RENTED
    return Happening(
        called(job),
        f"{'spills over to' if spilled else 'runs on'} {job.cluster}{why}",
        "yellow" if spilled else "cyan",
    )


def _ended(job: "JobView") -> Happening:
    """Describe the end of a job."""
    if job.state != "SUCCEEDED":
        why = f": {job.reason.message}" if job.reason is not None else ""
        return Happening(called(job), f"{job.state.lower().replace('_', ' ')}{why}", "red")
    cost = f" for {cents(job.cost)} {CURRENCY}" if job.cost else ""
    return Happening(called(job), f"succeeded on {job.cluster} after {tenths(ran(job))}{cost}", "green")
