"""What would happen if: more jobs, other policies, more machines, another request. Nothing of it happens.

A `Snapshot` is an engine on a copy-on-write view of a live one. It decides as that one would, and cannot change it.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.decide import decide
from spillover.core.events import JobSubmitted
from spillover.core.jobs import Job, Queued
from spillover.core.nodes import Node
from spillover.core.proposals import Refusal, RefusalKind, SetPolicies, Submit
from spillover.core.snapshot import StateSnapshot
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import Plan
from spillover.deciding.engine import Engine
from spillover.deciding.explain.explain import Explanation, explain
from spillover.deciding.queue.snapshot import IndexSnapshot
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources


class Snapshot(Engine):
    """An engine that starts from where a live one is."""

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
        """Stay as it is from now on, so that another thread may use it while the live one goes on, until `release`."""
        if self._copied is not None:
            self._copied.copy_all()
        self._book.detach(lock)

    def release(self) -> None:
        """Be of no use any more."""
        self._book.release()


class Trial(Struct, frozen=True):
    """What would become of jobs that were not submitted."""

    engine: Engine
    """The snapshot, with these jobs."""
    now: int
    plan: Plan
    jobs: dict[JobId, tuple[Job, Explanation]]


def try_jobs(snapshot: Snapshot, now: int, proposal: Submit) -> Trial | Refusal:
    """What the next cycle would decide if these jobs were submitted now."""
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
    """Let these jobs wait as a plan says, and be placed nowhere: so they can be explained as they are."""
    jobs, tried = snapshot.state.jobs, dict.fromkeys(submitted)
    for job, latest in plan.admitted:
        if job in tried:
            jobs[job].latest, jobs[job].round = latest, snapshot.state.facts.rounds
    for expiry in plan.expired:
        if expiry.job in tried and not expiry.members:
            jobs[expiry.job].due = expiry.why


class OtherPolicies(Struct, frozen=True):
    """What if other policies decided."""

    policies: PolicySet


class MoreMachines(Struct, frozen=True):
    """What if a cluster had so many machines more."""

    cluster: ClusterName
    count: int
    capacity: Resources | None = None
    """Of each; None is that of the largest that it has."""


class OtherRequest(Struct, frozen=True):
    """What if a queued job asked for something else."""

    job: JobId
    resources: Resources
    """Of each task."""


Assumption: TypeAlias = OtherPolicies | MoreMachines | OtherRequest


def assume(snapshot: Snapshot, now: int, assumptions: Iterable[Assumption]) -> Refusal | None:
    """Let a snapshot be as if, and carry out what it then decides; a refusal says what cannot be assumed."""
    now = max(now, snapshot.now)
    for assumption in assumptions:
        match assumption:
            case OtherPolicies(policies):
                events, reply = decide(snapshot.state, SetPolicies(policies, "what-if"), now)
                for event in events:
                    snapshot.apply(event)
                refused = reply if isinstance(reply, Refusal) else None
            case MoreMachines():
                refused = _add_machines(snapshot, assumption)
            case OtherRequest(job, resources):
                refused = _change_request(snapshot, job, resources)
        if refused is not None:
            return refused
    snapshot.step(now)
    return None


def _add_machines(snapshot: Snapshot, more: MoreMachines) -> Refusal | None:
    """Let machines join a cluster, like the largest that it has but for their capacity."""
    state = snapshot.state
    if more.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return Refusal(RefusalKind.INVALID, f"there is no cluster {more.cluster}; there are: {known}")
    like = _largest(state, more.cluster)
    capacity = more.capacity if like is None or more.capacity is not None else like.capacity
    if capacity is None:
        return Refusal(
            RefusalKind.INVALID, f"cluster {more.cluster} has no machines yet: say how large those are to be"
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
    snapshot.index.look_at_what_moved()
    return None


def largest_machine(state: State, cluster: ClusterName) -> Resources | None:
    """What the largest machine of a cluster has; None if it has none."""
    largest = _largest(state, cluster)
    return None if largest is None else largest.capacity


def _largest(state: State, cluster: ClusterName) -> Node | None:
    return max([node for node in state.nodes.values() if node.cluster == cluster], key=_size, default=None)


def _size(node: Node) -> tuple[int, int, int]:
    capacity = node.capacity
    return capacity.gpu, capacity.cpu, capacity.memory


def _change_request(snapshot: Snapshot, job_id: JobId, resources: Resources) -> Refusal | None:
    """Let a queued job ask for something else, as if it had done so when it was submitted."""
    state = snapshot.state
    job = state.jobs.get(job_id)
    if job is None or type(job.phase) is not Queued:
        what = f"there is no job {job_id}" if job is None else f"{job_id} is {job.state}"
        return Refusal(
            RefusalKind.INVALID, f"{what}: only a queued job can be assumed to ask for something else"
        )
    before = job.kind
    job.kind = state.share(replace(before, shape=replace(before.shape, resources=resources, rest=None)))
    snapshot.index.change_lane(job, before)
    return None
