"""Turns real histories, from our journal or from Slurm, into jobs to simulate and their real outcomes.

A simulated job begins when it could have been placed, because no policy could have changed what it waited for before.
All times are UTC.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.budget import Budget
from spillover.model.job import Burst, Shape
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import MONEY, so_many
from spillover.sim.outcome import JobOutcome
from spillover.sim.setting import OWNED, UNDIVIDED, Fleet, Rent, Site, site_of
from spillover.sim.studies.served_pools import made_by
from spillover.sim.studies.standing import Life, at_beginning
from spillover.sim.trace import Happened, Own, Trace, TraceJob
from spillover.wire.api import PastJob


class PastJobs(Struct, frozen=True):
    """Jobs that ran, where they ran, and their outcomes."""

    jobs: tuple[TraceJob, ...]
    """Ordered by `submit`, the time at which they could have been placed; standing jobs come first."""
    happened: tuple[JobOutcome, ...]
    """The real outcome of each job."""
    site: Site
    fleet: Fleet = UNDIVIDED
    """Machines over which to split jobs that do not specify their tasks."""
    budgets: tuple[Budget, ...] = ()
    never_ran: int = 0
    """Jobs that ended without running, or had not ended; they are left out."""
    left_out: int = 0
    """Invalid rows that were skipped."""
    remarks: tuple[str, ...] = ()
    """Notes for the user, one line each."""
    standing: int = 0
    """Jobs that ran or waited when the span began: they use capacity but are not counted."""
    queues: tuple[QueueSpec, ...] = ()
    """Named queues with limits that all of the jobs can keep."""

    def counted(self, warmup: int = 0) -> range:
        """Return the indexes of counted jobs, without `warmup` at each end."""
        return range(self.standing + warmup, len(self.jobs) - warmup)


def from_journal(
    past: Iterable[PastJob],
    site: Site,
    budgets: Sequence[Budget] = (),
    before: Iterable[PastJob] = (),
    begin: int = 0,
    queues: Sequence[QueueSpec] = (),
) -> PastJobs:
    """Convert the history of a server; `before` are jobs submitted before the span that ended after its beginning."""
    told = list(past)
    ran = _in_order(told)
    lives = [_own_life(job) for job in ran]
    there, later = at_beginning(map(_own_life, _in_order(before)), begin, site.rented)
    lives = sorted([*lives, *later], key=_ready) if later else lives
    jobs, happened = _numbered([*there, *lives])
    return PastJobs(
        jobs,
        happened,
        site,
        budgets=tuple(budgets),
        queues=for_all(queues, jobs),
        never_ran=len(told) - len(ran),
        remarks=tuple(_remarks(ran, site)),
        standing=len(there),
    )


def for_all(queues: Sequence[QueueSpec], jobs: Iterable[TraceJob]) -> tuple[QueueSpec, ...]:
    """Return queues in which all of these jobs can run: older jobs may be of other queues, and larger than limits now."""
    if not queues:
        return ()
    known = {each.name: each for each in queues}
    for job in jobs:
        if job.own is None:
            continue
        queue = known.get(job.own.queue) or QueueSpec(job.own.queue)
        size = job.own.shape.total
        total, each = (_with_room(limits, size) for limits in (queue.total, queue.each))
        known[queue.name] = replace(queue, total=total, each=each)
    return tuple(known.values())


def _with_room(limits: QueueLimits, size: Resources) -> QueueLimits:
    """Return limits that one job of a size can keep."""
    most = limits.resources
    cpu, memory, gpu = [
        limit and max(limit, asked)
        for limit, asked in ((most.cpu, size.cpu), (most.memory, size.memory), (most.gpu, size.gpu))
    ]
    return replace(limits, resources=Resources(cpu, memory, gpu))


def from_slurm(trace: Trace, fleet: Fleet, rent: Rent, since: int | None, until: int | None) -> PastJobs:
    """Convert the history of a cluster that was all owned; count jobs submitted within a span (nanoseconds UTC)."""
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
    """Yield a note if more was in use at some time than these machines have, so they cannot be the real ones."""
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
        yield f"jobs used up to {most / unit:,.6g} {name} at a time, but {there}; the simulated machines are too few"


def _in_order(past: Iterable[PastJob]) -> list[PastJob]:
    """Return the jobs that ran, ordered by when they could have been placed; the input has the newest first."""
    ran = [job for job in past if job.started_ns is not None]
    rank: dict[str, int] = {}
    for job in reversed(ran):
        rank.setdefault(job.id.partition(".")[0], len(rank))
    return sorted(ran, key=lambda job: _turn(job, rank))


def _ready(life: Life) -> int:
    """Return the time from which on a job could have been placed."""
    return life[0].submit


def _numbered(lives: Sequence[Life]) -> tuple[tuple[TraceJob, ...], tuple[JobOutcome, ...]]:
    """Split pairs into jobs and outcomes, and number the outcomes."""
    return (
        tuple(job for job, _ in lives),
        tuple(
            JobOutcome(at, one.submit, one.start, one.end, one.cluster, one.node, one.cost, "")
            for at, (_, one) in enumerate(lives)
        ),
    )


def _turn(job: PastJob, rank: dict[str, int]) -> tuple[int, int, int, int]:
    """Return the sort key of a job: by time, then submission, then array index."""
    base, _, index = job.id.partition(".")
    return job.ready_ns, job.submitted_ns, rank[base], int(index or 0)


def _own_life(job: PastJob) -> Life:
    """Convert a job of the journal into a job to simulate and its real outcome."""
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
    """Yield notes on what the simulation cannot reproduce."""
    again = sum(job.attempt > 1 for job in ran)
    if again:
        yield f"{so_many(again)} ran more than once; the simulation uses the last attempt of each"
    there = {(machine.cluster, machine.name) for machine in site.machines}
    pools = site.pools.keys()
    # What a template has made is named after it.
    kept = [job for job in ran if job.cluster not in pools and not made_by(job.cluster or "", pools)]
    gone = sum((job.cluster, job.node) not in there for job in kept)
    if gone:
        yield f"{so_many(gone)} ran on machines that no longer exist; the simulation uses the current machines"
    bare = [spec.name for spec in site.clusters if spec.name not in pools]
    empty = [name for name in bare if all(one.cluster != name for one in site.machines)]
    if empty:
        yield f"clusters without machines now, and so without machines in the simulation: {', '.join(empty)}"


def _slurm_life(job: TraceJob, past: Happened, zero: int) -> Life:
    """Convert a job of Slurm, from when it could have been placed, to a job to simulate and its real outcome (UTC)."""
    submit = zero + (job.submit if past.ready is None else past.ready)
    start, end = past.start + zero, past.end + zero
    return job.but(submit, job.estimate), JobOutcome(
        0, submit, start, end, past.cluster or OWNED, past.node, past.cost, ""
    )
