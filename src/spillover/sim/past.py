"""Histories that really happened: of our own journal, or of Slurm; as jobs to simulate again and what became of them.

A job is simulated from when it could have been placed: what it waited for before, no policy could have changed. All times are UTC.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm, Problem
from spillover.model.budget import EVERY, Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst, Shape
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MONEY, SECOND, parse_time
from spillover.sim.outcome import Outcome
from spillover.sim.report import so_many
from spillover.sim.setting import OWNED, UNDIVIDED, Fleet, Machine, Rent, Site, site_of
from spillover.sim.standing import Life, at_beginning
from spillover.sim.trace import Happened, Own, Trace, TraceJob
from spillover.wire.api import AgentView, BudgetView, ClusterView, PastJob, PolicyRecord


class History(Struct, frozen=True):
    """Jobs that ran, where they ran, and what became of them."""

    jobs: tuple[TraceJob, ...]
    """In the order in which they could have been placed: `submit` is that time. Those that stood there in the beginning come first."""
    happened: tuple[Outcome, ...]
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


class Ruling(Struct, frozen=True):
    """The policies that really decided."""

    first: PolicySet
    """When the first job came."""
    changes: tuple[tuple[int, PolicySet], ...] = ()
    """When others took over, nanoseconds UTC, in order of time."""

    @property
    def last(self) -> PolicySet:
        """Those that decided in the end."""
        return self.changes[-1][1] if self.changes else self.first


def from_journal(
    past: Iterable[PastJob],
    site: Site,
    budgets: Sequence[BudgetView],
    before: Iterable[PastJob] = (),
    begin: int = 0,
) -> History:
    """Our own history, as a server tells it; `before` are jobs that were submitted before a span and ended after its beginning."""
    told = list(past)
    ran = _in_order(told)
    lives = [_own_life(job) for job in ran]
    there, later = at_beginning(map(_own_life, _in_order(before)), begin, site.rented)
    lives = sorted([*lives, *later], key=_ready) if later else lives
    return History(
        *_numbered([*there, *lives]),
        site,
        budgets=_budgets(budgets),
        never_ran=len(told) - len(ran),
        remarks=tuple(_remarks(ran, site)),
        standing=len(there),
    )


def from_slurm(trace: Trace, fleet: Fleet, rent: Rent, since: int | None, until: int | None) -> History:
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
    there, later = at_beginning(before, begin, ())
    return History(
        *_numbered([*there, *sorted([*found, *later], key=_ready)]),
        site_of(fleet, rent),
        fleet,
        never_ran=trace.not_jobs,
        left_out=trace.left_out,
        standing=len(there),
    )


def site_from(clusters: Sequence[ClusterView], agents: Sequence[AgentView]) -> Site:
    """The clusters of a server with the machines that they have now."""
    machines = [
        Machine(
            ClusterName(one.cluster),
            NodeName(one.name),
            _resources(one.capacity),
            tuple(sorted(one.offers)),
        )
        for one in agents
        if one.state != "lost"
    ]
    return Site(tuple(map(_cluster, clusters)), tuple(machines))


def ruling_from(now: str, records: Sequence[PolicyRecord], begin: int, end: int) -> Ruling:
    """What decided from one time to another, by what decides now and the changes before, newest first."""
    changes: list[tuple[int, PolicySet]] = []
    first = now
    for record in records:
        at = parse_time(record.at)
        if at <= begin:
            break
        first = record.before
        if at < end:
            changes.append((at, _known(record.after)))
    return Ruling(_known(first), tuple(reversed(changes)))


def _known(line: str) -> PolicySet:
    """Policies that decided, if they are installed here too."""
    try:
        return read_policies(line)
    except BadForm as error:
        (first, *_) = error.problems
        advice = "name what comes closest with --really"
        raise BadForm(
            [Problem("", None, "", f"{line} decided then, and cannot here: {first.message}; {advice}")]
        ) from None


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


def _numbered(lives: Sequence[Life]) -> tuple[tuple[TraceJob, ...], tuple[Outcome, ...]]:
    """Jobs, and what became of each under its number."""
    return (
        tuple(job for job, _ in lives),
        tuple(
            Outcome(at, one.submit, one.start, one.end, one.cluster, one.node, one.cost, "")
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
    return again, Outcome(
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


def _cluster(view: ClusterView) -> ClusterSpec:
    """A cluster as it is configured there."""
    price = view.price
    node = None
    if view.node is not None:
        node = NodeClass("node", _resources(view.node), _millionths(price.get("node_hour", 0)))
    return ClusterSpec(
        ClusterName(view.name),
        view.kind,
        Role(view.role),
        Price(
            _millionths(price.get("cpu_hour", 0)),
            _millionths(price.get("memory_gib_hour", 0)),
            _millionths(price.get("gpu_hour", 0)),
            node,
            _millionths(price.get("egress_gb", 0)),
        ),
        Billing(
            round(view.billing.get("step_s", 1) * SECOND), round(view.billing.get("minimum_s", 0) * SECOND)
        ),
        view.gangs,
        round(view.startup_s * SECOND),
    )


def _budgets(views: Sequence[BudgetView]) -> tuple[Budget, ...]:
    """Budgets as they are configured there; one for all is shown for each that has spent of it."""
    found = (
        Budget(Of(one.of), EVERY if one.every else one.name, Per(one.per), _millionths(one.limit))
        for one in views
    )
    return tuple(dict.fromkeys(found))


def _resources(amounts: dict[str, float]) -> Resources:
    """Resources from the numbers that people use."""
    return Resources(
        round(amounts.get("cpu", 0) * 1000), round(amounts.get("memory", 0)), round(amounts.get("gpu", 0))
    )


def _millionths(amount: float) -> int:
    """Money from the number that people use."""
    return round(amount * MONEY)


def _slurm_life(job: TraceJob, past: Happened, zero: int) -> Life:
    """A job of Slurm from when it could have been placed, and what became of it, in UTC."""
    submit = zero + (job.submit if past.ready is None else past.ready)
    start, end = past.start + zero, past.end + zero
    again = TraceJob(
        job.id,
        submit,
        job.runtime,
        job.gpus,
        job.cpus,
        job.nodes,
        job.memory,
        job.user,
        job.project,
        job.walltime,
        job.estimate,
        job.own,
    )
    return again, Outcome(0, submit, start, end, past.cluster or OWNED, past.node, past.cost, "")
