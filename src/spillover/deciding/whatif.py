"""Answers what-if questions: more jobs, other policies, more machines, or a changed request. Nothing really happens.

A `Snapshot` is an engine on a copy-on-write view of a live one. It decides as the live one would, and cannot change it.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.appliers.queue import grant, let_rent
from spillover.core.decide import decide
from spillover.core.events import BudgetsConfigured, JobReprioritised, JobSubmitted, QueuesConfigured
from spillover.core.proposals import Act, Change, Proposal, Refusal, RefusalKind, SetPolicies, Submit
from spillover.core.records.jobs import Job, Queued
from spillover.core.records.nodes import Node
from spillover.core.snapshot import StateSnapshot
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import Plan
from spillover.deciding.engine import Engine, Step
from spillover.deciding.explain.explain import Explanation, explain
from spillover.deciding.queue.snapshot import IndexSnapshot
from spillover.model.budget import Budget
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Shape, Terms
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.resources import Resources


class Snapshot(Engine):
    """An engine that starts from the present state of a live engine."""

    def __init__(self, live: Engine) -> None:
        self._book = StateSnapshot(live.state)
        self._copied: IndexSnapshot | None = None
        if live.is_ready:
            self._copied = IndexSnapshot(live.index, self._book)
            ready = live.policies, self._copied
            super().__init__(self._book, live.load, now=live.now, digests=False, ready=ready)
        else:
            super().__init__(self._book, live.load, now=live.now, digests=False)
        self.rules = live.rules
        self.aside = live.aside.copy()

    def detach(self, lock: AbstractContextManager[object]) -> None:
        """Stop following the live engine, so that another thread can use this snapshot until `release`."""
        if self._copied is not None:
            self._copied.copy_all()
        self._book.detach(lock)

    def release(self) -> None:
        """Free the snapshot; it cannot be used afterwards."""
        self._book.release()


class Trial(Struct, frozen=True):
    """The outcome for jobs that were tried but not submitted."""

    engine: Engine
    """The snapshot that contains these jobs."""
    now: int
    plan: Plan
    jobs: dict[JobId, tuple[Job, Explanation]]


def try_jobs(snapshot: Snapshot, now: int, proposal: Submit) -> Trial | Refusal:
    """Return what the next cycle would decide if these jobs were submitted now."""
    now = max(now, snapshot.now)
    state = snapshot.state
    events, reply = decide(state, proposal, now)
    if isinstance(reply, Refusal):
        return reply
    for event in events:
        snapshot.apply(event)
    submitted = [event.job for event in events if type(event) is JobSubmitted]
    index = snapshot.index
    index.build()
    plan = cycle.run(state, index, snapshot.policies, now, state.facts.cycles).plan
    _take_waits(snapshot, plan, submitted)
    held = [hold for _, hold in plan.holds]
    tried = [state.jobs[job] for job in submitted]
    return Trial(snapshot, now, plan, {job.id: (job, explain(snapshot, job, held)) for job in tried})


def _take_waits(snapshot: Snapshot, plan: Plan, submitted: Sequence[JobId]) -> None:
    """Set the waits of a plan but place nothing, so that `explain` sees these jobs as queued."""
    jobs, tried = snapshot.state.jobs, dict.fromkeys(submitted)
    for job, latest in plan.admitted:
        if job in tried:
            jobs[job].latest, jobs[job].round = latest, snapshot.state.facts.rounds
    for expiry in plan.expired:
        if expiry.job in tried and not expiry.members:
            jobs[expiry.job].due = expiry.why


class OtherPolicies(Struct, frozen=True):
    """Assume that other policies decide."""

    policies: PolicySet


class MoreMachines(Struct, frozen=True):
    """Assume that a cluster has more machines."""

    cluster: ClusterName
    count: int
    capacity: Resources | None = None
    """The capacity of each machine; None means that of the largest one in the cluster."""


class OtherRequest(Struct, frozen=True):
    """Assume that a queued job asks for other resources."""

    job: JobId
    resources: Resources
    """Of each task."""


class OtherShape(Struct, frozen=True):
    """Assume that a queued job asks for something else of clusters and machines."""

    job: JobId
    shape: Shape


class OtherTerms(Struct, frozen=True):
    """Assume that a queued job has other limits of time or cost."""

    job: JobId
    terms: Terms


class OtherPriority(Struct, frozen=True):
    """Assume that a queued job has another priority."""

    job: JobId
    priority: int


class Release(Struct, frozen=True):
    """Assume that nobody holds a job."""

    job: JobId


class OtherBudgets(Struct, frozen=True):
    """Assume other budgets."""

    budgets: tuple[Budget, ...]


class OtherQueues(Struct, frozen=True):
    """Assume that named queues are configured differently."""

    queues: tuple[QueueSpec, ...]


Assumption: TypeAlias = (
    OtherPolicies
    | MoreMachines
    | OtherRequest
    | OtherShape
    | OtherTerms
    | OtherPriority
    | Release
    | OtherBudgets
    | OtherQueues
)


def assume(snapshot: Snapshot, now: int, assumptions: Iterable[Assumption]) -> Refusal | Step:
    """Apply assumptions to a snapshot and run a step; return that, or a refusal if one of them is impossible."""
    now = max(now, snapshot.now)
    for assumption in assumptions:
        if (refused := _apply(snapshot, now, assumption)) is not None:
            return refused
    return snapshot.step(now)


def _apply(snapshot: Snapshot, now: int, assumption: Assumption) -> Refusal | None:
    """Apply one assumption; return why it is impossible, or None."""
    match assumption:
        case OtherPolicies(policies):
            return _decide(snapshot, now, SetPolicies(policies, "what-if"))
        case Release(job):
            return _decide(snapshot, now, Change(Act.RELEASE, (job,), "what-if"))
        case MoreMachines():
            return _add_machines(snapshot, assumption)
        case OtherRequest() | OtherShape() | OtherTerms():
            return _change(snapshot, assumption)
        case OtherPriority(job, priority):
            snapshot.apply(JobReprioritised(job, now, "what-if", priority))
        case OtherBudgets(budgets):
            snapshot.apply(BudgetsConfigured(budgets))
        case OtherQueues(queues):
            snapshot.apply(QueuesConfigured(queues))
    return None


def _decide(snapshot: Snapshot, now: int, proposal: Proposal) -> Refusal | None:
    """Apply what a proposal decides; return its refusal, or None."""
    events, reply = decide(snapshot.state, proposal, now)
    for event in events:
        snapshot.apply(event)
    return reply if isinstance(reply, Refusal) else None


def _add_machines(snapshot: Snapshot, more: MoreMachines) -> Refusal | None:
    """Add machines to a cluster, like its largest one except for their capacity."""
    state = snapshot.state
    if more.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return Refusal(RefusalKind.INVALID, f"there is no cluster {more.cluster}; known clusters: {known}")
    like = _largest(state, more.cluster)
    capacity = more.capacity if like is None or more.capacity is not None else like.capacity
    if capacity is None:
        return Refusal(
            RefusalKind.INVALID,
            f"cluster {more.cluster} has no machines yet; give their size, such as 2x48cpu",
        )
    last = max((node.number for node in state.nodes.values()), default=0)
    external = state.clusters[more.cluster].external
    for number in range(1, more.count + 1):
        name = NodeName(f"what-if-{number}")
        node = Node(
            more.cluster,
            name,
            0,
            capacity,
            offers=() if like is None else like.offers,
            labels={} if like is None else like.labels,
            queue=0 if like is None else like.queue,
            number=last + number,
            foreign=Resources() if external else None,
            tasks=-1 if like is None else like.tasks,
            taints=() if like is None else like.taints,
        )
        state.nodes[node.key] = node
        if not external:
            state.agents[node.key] = node
        state.touch_node(node.key)
    snapshot.index.apply_moves()
    return None


def largest_machine(state: State, cluster: ClusterName) -> Resources | None:
    """Return the capacity of the largest machine of a cluster; None if it has no machines."""
    largest = _largest(state, cluster)
    return None if largest is None else largest.capacity


def _largest(state: State, cluster: ClusterName) -> Node | None:
    return max([node for node in state.nodes.values() if node.cluster == cluster], key=_size, default=None)


def _size(node: Node) -> tuple[int, int, int]:
    capacity = node.capacity
    return capacity.gpu, capacity.cpu, capacity.memory


def _change(snapshot: Snapshot, other: OtherRequest | OtherShape | OtherTerms) -> Refusal | None:
    """Change a queued job, as if it had been submitted that way."""
    job = snapshot.state.jobs.get(other.job)
    if job is None or type(job.phase) is not Queued:
        what = f"there is no job {other.job}" if job is None else f"{other.job} is {job.state}"
        return Refusal(RefusalKind.INVALID, f"{what}; only a queued job can be tried with other resources")
    before = job.kind
    match other:
        case OtherTerms(_, terms):
            job.terms = terms
        case OtherShape(_, shape):
            job.kind = snapshot.state.share(replace(before, shape=shape))
        case OtherRequest(_, resources):
            shape = replace(before.shape, resources=resources, rest=None, groups=())
            job.kind = snapshot.state.share(replace(before, shape=shape))
    _reset_wait(snapshot, job)
    snapshot.index.change_lane(job, before)
    return None


def _reset_wait(snapshot: Snapshot, job: Job) -> None:
    """Make the next cycle give a job a new wait, which counts from its arrival: its wait depends on its request."""
    grant(snapshot.state, job, None)
    let_rent(snapshot.state, job, None)
    if job.extra.members is not None:
        job.extra.members.due = 0
    snapshot.state.partly_due.pop(job.id, None)
    snapshot.index.waits.patient.pop(job.id, None)
