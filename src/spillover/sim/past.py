"""Histories that really happened: of our own journal, or of Slurm; as jobs to simulate again and what became of them.

A job is simulated from when it could have been placed: what it waited for before, no policy could have changed. All times are UTC.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from spillover.model.budget import Budget
from spillover.model.job import Burst, Shape
from spillover.model.resources import Resources
from spillover.model.units import MONEY
from spillover.sim.outcome import JobOutcome
from spillover.sim.report import so_many
from spillover.sim.setting import OWNED, UNDIVIDED, Fleet, Rent, Site, site_of
from spillover.sim.standing import Life, at_beginning
from spillover.sim.trace import Happened, Own, Trace, TraceJob
from spillover.wire.api import PastJob


class PastJobs(Struct, frozen=True):
    """Jobs that ran, where they ran, and what became of them."""

    jobs: tuple[TraceJob, ...]
    """In the order in which they could have been placed: `submit` is that time. Those that stood there in the beginning come first."""
    happened: tuple[JobOutcome, ...]
    """Of each of them."""
    site: Site
    fleet: Fleet = UNDIVIDED
    """Machines that jobs are split over which do not say themselves how."""
    budgets: tuple[Budget, ...] = ()
    never_ran: int = 0
    """Jobs that ended before they ever ran, or had not ended yet; they are left out."""
    left_out: int = 0
    """Rows that were wrong and skipped."""
    remarks: tuple[str, ...] = ()
    """What may not be as one thinks, a line each."""
    standing: int = 0
    """Jobs that ran or waited already when the span began: they take room, and count nowhere."""

    def counted(self, warmup: int = 0) -> range:
        """The places of jobs that count, without so many at both ends."""
        return range(self.standing + warmup, len(self.jobs) - warmup)


def from_journal(
    past: Iterable[PastJob],
    site: Site,
    budgets: Sequence[Budget] = (),
    before: Iterable[PastJob] = (),
    begin: int = 0,
) -> PastJobs:
    """Our own history, as a server tells it; `before` are jobs that were submitted before a span and ended after its beginning."""
    told = list(past)
    ran = _in_order(told)
    lives = [_own_life(job) for job in ran]
    there, later = at_beginning(map(_own_life, _in_order(before)), begin, site.rented)
    lives = sorted([*lives, *later], key=_ready) if later else lives
    return PastJobs(
        *_numbered([*there, *lives]),
        site,
        budgets=tuple(budgets),
        never_ran=len(told) - len(ran),
        remarks=tuple(_remarks(ran, site)),
        standing=len(there),
    )


def from_slurm(trace: Trace, fleet: Fleet, rent: Rent, since: int | None, until: int | None) -> PastJobs:
    """The history of a cluster that was all owned; jobs that were submitted within a span of nanoseconds UTC."""
    begin = since or 0
    before: list[Life] = []
    found: list[Life] = []
    zero = trace.zero
    for job, past in zip(trace.jobs, trace.happened, strict=True):
        submitted = job.submit + zero
        if past is None or (until is not None and submitted >= until):
            continue
        (before if submitted < begin else found).append(_slurm_life(job, past, zero))
    outside = sum(at + zero < begin or (until is not None and at + zero >= until) for at in trace.not_jobs_at)
    there, later = at_beginning(before, begin, ())
    jobs, happened = _numbered([*there, *sorted([*found, *later], key=_ready)])
    return PastJobs(
        jobs,
        happened,
        site_of(fleet, rent),
        fleet,
        never_ran=trace.not_jobs - outside,
        left_out=trace.left_out,
        remarks=tuple(_too_small(fleet, jobs, happened)),
        standing=len(there),
    )


def _too_small(fleet: Fleet, jobs: Sequence[TraceJob], happened: Sequence[JobOutcome]) -> Iterable[str]:
    """A remark if more was in use at a time than the machines have: they cannot be those that the jobs ran on."""
    capacity = fleet.capacity
    changes: dict[int, int] = {}
    for job, one in zip(jobs, happened, strict=True):
        size = job.gpus if capacity.by_gpu else job.cpus
        changes[one.start] = changes.get(one.start, 0) + size
        changes[one.end] = changes.get(one.end, 0) - size
    used = most = 0
    for _, change in sorted(changes.items()):
        used += change
        most = max(most, used)
    if capacity.units and most > capacity.units:
        unit, name = (1, "GPUs") if capacity.by_gpu else (1000, "CPUs")
        there = f"--owned has {capacity.units / unit:,.6g}"
        yield f"up to {most / unit:,.6g} {name} really ran jobs at a time, and {there}: its machines are fewer than there were"


def _in_order(past: Iterable[PastJob]) -> list[PastJob]:
    """Jobs that ran, in the order in which they could have been placed; told newest first."""
    ran = [job for job in past if job.started_ns is not None]
    rank: dict[str, int] = {}
    for job in reversed(ran):
        rank.setdefault(job.id.partition(".")[0], len(rank))
    return sorted(ran, key=lambda job: _turn(job, rank))


def _ready(life: Life) -> int:
    """Since when a job could have been placed."""
    return life[0].submit


def _numbered(lives: Sequence[Life]) -> tuple[tuple[TraceJob, ...], tuple[JobOutcome, ...]]:
    """Jobs, and what became of each under its number."""
    return (
        tuple(job for job, _ in lives),
        tuple(
            JobOutcome(at, one.submit, one.start, one.end, one.cluster, one.node, one.cost, "")
            for at, (_, one) in enumerate(lives)
        ),
    )


def _turn(job: PastJob, rank: dict[str, int]) -> tuple[int, int, int, int]:
    """When it was a job's turn to be looked at first: as it came, members of an array by their numbers."""
    base, _, index = job.id.partition(".")
    return job.ready_ns, job.submitted_ns, rank[base], int(index or 0)


def _own_life(job: PastJob) -> Life:
    """A job of the journal as it is simulated, and what became of it."""
    shape = Shape(
        Resources(job.cpu_milli, job.memory, job.gpu), tuple(job.needs), job.tasks, Burst(job.burst)
    )
    total = shape.total
    told = job.estimate_ns
    if told is None and job.walltime_ns is None:
        told = job.predicted_ns
    again = TraceJob(
        job.id,
        job.ready_ns,
        job.ran_ns or max(0, job.finished_ns - (job.started_ns or 0)),
        total.gpu,
        total.cpu,
        0,
        total.memory,
        job.user,
        job.project,
        job.walltime_ns,
        told,
        Own(
            shape,
            job.name,
            job.queue,
            job.priority,
            job.deadline_ns,
            None if job.max_cost is None else round(job.max_cost * MONEY),
            job.data,
        ),
    )
    start, cost = job.started_ns or 0, round(job.cost * MONEY)
    return again, JobOutcome(
        0, job.ready_ns, start, job.finished_ns, job.cluster or "", job.node or "", cost, ""
    )


def _remarks(ran: Sequence[PastJob], site: Site) -> Iterable[str]:
    """What a simulation of these jobs there cannot know."""
    again = sum(job.attempt > 1 for job in ran)
    if again:
        yield f"{so_many(again)} ran more than once: each is simulated as its last attempt ran"
    there = {(machine.cluster, machine.name) for machine in site.machines}
    gone = sum((job.cluster, job.node) not in there for job in ran)
    if gone:
        yield f"{so_many(gone)} ran on machines that are not there now: the simulation has those that are"
    empty = [spec.name for spec in site.clusters if all(one.cluster != spec.name for one in site.machines)]
    if empty:
        yield f"without machines now, and so in the simulation: {', '.join(empty)}"


def _slurm_life(job: TraceJob, past: Happened, zero: int) -> Life:
    """A job of Slurm from when it could have been placed, and what became of it, in UTC."""
    submit = zero + (job.submit if past.ready is None else past.ready)
    start, end = past.start + zero, past.end + zero
    return job.but(submit, job.estimate), JobOutcome(
        0, submit, start, end, past.cluster or OWNED, past.node, past.cost, ""
    )
