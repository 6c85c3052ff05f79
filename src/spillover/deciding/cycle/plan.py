"""The plan that a cycle returns, and the events that carry it out."""

from collections.abc import Callable
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct, msgpack

from spillover.core.events import (
    AnyEvent,
    CostHeld,
    Decided,
    GangPlaced,
    JobPlaced,
    JobsAdmitted,
    LeasesRevoked,
    MemberPlaced,
    MemberSplit,
    WaitsExpired,
)
from spillover.core.state import State
from spillover.deciding.budgets.check import CostHold
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.inside import Granted
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import Reason

if TYPE_CHECKING:
    import hashlib

RULES: Final = 7
"""The version of the planning rules. Journals record it, so that a replay makes old plans by the rules of their time.

0: A plan is unbounded. Jobs beyond a bounded look wait.
1: A plan is bounded. Jobs beyond a bounded look get their turn.
2: A plan also asks back prefetched leases that wait too long, or whose jobs can be rented sooner.
3: As many jobs as the backfill policy says have a reservation. Before, at most one had.
4: Machines that were ordered for a gang are kept for it until it starts. Clock jumps are no time to join.
5: On machines of pools, jobs go where they add least to the bill, and wait policies see what renting a job now would mean.
6: Wait policies see that for nodes of whole clusters too. Machines that are coming count only for jobs that may run there.
7: A gang gets machines of a pool that are there or coming, and new ones for the rest. Before, all of its machines were new.
   Jobs do not wait again and again for room on a machine of a task that runs longer than expected. Tasks with cores of one
   NUMA node take its memory.
"""


class Placement(Struct, frozen=True, array_like=True, gc=False):
    """Places a job, or one pending member of an array."""

    job: JobId
    index: int | None
    """Index of the member; None for a job that is not an array."""
    cluster: ClusterName
    node: NodeName
    why: Reason


class GangPlacement(Struct, frozen=True, array_like=True, gc=False):
    """Places all tasks of a gang on one cluster."""

    job: JobId
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """One for each task, in order."""
    why: Reason


class GangMemberPlacement(GangPlacement, frozen=True, array_like=True, gc=False):
    """Places all tasks of a pending member of an array; `job` is the array."""

    index: int
    """Index of the member."""


class Expiry(Struct, frozen=True, array_like=True, gc=False):
    """Lets a job be rented from now on."""

    job: JobId
    why: Reason
    members: int = 0
    """For an array, how many pending members; 0 means all."""


class Plan(Struct, frozen=True, array_like=True):
    """The result of one cycle."""

    now: int
    seed: int
    admitted: tuple[tuple[JobId, int], ...]
    """Jobs that wait, each with its latest start on owned capacity in steady time."""
    expired: tuple[Expiry, ...]
    placements: tuple[Placement | GangPlacement, ...]
    holds: tuple[tuple[int, CostHold], ...] = ()
    """Cost holds of placements, by position in `placements`."""
    revoked: tuple[JobId, ...] = ()
    """Jobs whose prefetched leases the server asks back."""
    granted: tuple[tuple[int, tuple[Granted | None, ...]], ...] = ()
    """Cores and GPUs that tasks get by name, by position in `placements`; of each task by rank."""
    machines: tuple[AnyEvent, ...] = ()
    """What becomes of rented machines, as the events that say so."""
    plans_machines: bool = True
    """Whether machines were planned, if that was needed. It is not a part of what was decided, nor of the digest."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.expired or self.placements or self.revoked or self.machines)

    def digest(self) -> bytes:
        """Return a digest that is the same for equal plans on every machine."""
        made = (self.now, self.seed, self.admitted, self.expired, self.placements)
        if self.machines:
            return _digest((*made, self.holds, self.revoked, self.granted, self.machines))
        if self.granted:
            return _digest((*made, self.holds, self.revoked, self.granted))
        if self.revoked:
            return _digest((*made, self.holds, self.revoked))
        return _digest((*made, self.holds) if self.holds else made)


class _Routeless(Struct, frozen=True):
    """Policies without a route and a size, as before those existed. Digests of old policies must not change."""

    order: Choice
    backfill: Choice
    wait: Choice
    place: Choice
    depth: int
    unknown_runtime: int


class _Sizeless(Struct, frozen=True):
    """Policies with a route, as before sizes existed."""

    order: Choice
    backfill: Choice
    wait: Choice
    place: Choice
    depth: int
    unknown_runtime: int
    route: Choice


def digest_of(policies: PolicySet) -> bytes:
    """Return a short digest of policies."""
    if policies.size != PolicySet().size:
        return _digest(policies)
    without = (
        policies.order,
        policies.backfill,
        policies.wait,
        policies.place,
        policies.depth,
        policies.unknown_runtime,
    )
    if policies.route != PolicySet().route:
        return _digest(_Sizeless(*without, policies.route))
    return _digest(_Routeless(*without))


def _digest(value: object) -> bytes:
    return _blake2b()(msgpack.encode(value, order="deterministic"), digest_size=16).digest()


@cache
def _blake2b() -> "type[hashlib.blake2b]":
    from hashlib import blake2b  # noqa: PLC0415 - slow to import, and simulations have no digests

    return blake2b


def _held(plan: Plan, at: int, hold: CostHold) -> CostHeld:
    """Return the event for the cost hold of a placement."""
    placed = plan.placements[at]
    index = placed.index if isinstance(placed, Placement | GangMemberPlacement) else None
    job = placed.job if index is None else member_id(placed.job, index)
    return CostHeld(job, plan.now, hold.amount, hold.limit, hold.periods)


def events_of(plan: Plan, state: State, policies: bytes, rules: int = RULES) -> list[AnyEvent]:
    """Return the events that carry out a plan. An empty `policies` digest leaves out the digest of the plan too."""
    digest = plan.digest() if policies else b""
    events: list[AnyEvent] = [Decided(plan.now, plan.seed, policies, digest, rules, plan.plans_machines)]
    if plan.admitted:
        jobs, latest = zip(*plan.admitted, strict=True)
        events.append(JobsAdmitted(jobs, latest))
    if plan.expired:
        for (why, members), alike in groupby(plan.expired, key=lambda each: (each.why, each.members)):
            jobs = tuple(each.job for each in alike)
            events += (
                [WaitsExpired((job,), why, members) for job in jobs] if members else [WaitsExpired(jobs, why)]
            )
    if plan.revoked:
        events.append(LeasesRevoked(plan.revoked, plan.now))
    if plan.holds or plan.granted:
        holds, granted = dict(plan.holds), dict(plan.granted)
        for at, each in enumerate(plan.placements):
            if type(each) is GangMemberPlacement:
                events.append(_split(plan.now, each))
            events.append(_placed(plan.now, each, state, granted.get(at, ())))
            if at in holds:
                events.append(_held(plan, at, holds[at]))
    else:
        for each in plan.placements:
            if type(each) is GangMemberPlacement:
                events.append(_split(plan.now, each))
            events.append(_placed(plan.now, each, state))
    if plan.machines:
        events += plan.machines
    return events


def unwritable(plan: Plan, state: State, encode: Callable[[AnyEvent], bytes]) -> dict[JobId, Exception]:
    """Return the jobs of a plan whose events cannot be built or encoded, with the error of each."""
    made: list[tuple[JobId, Callable[[], AnyEvent]]] = []
    made += [(job, partial(JobsAdmitted, (job,), (latest,))) for job, latest in plan.admitted]
    made += [(each.job, partial(WaitsExpired, (each.job,), each.why, each.members)) for each in plan.expired]
    made += [(each.job, partial(_placed, plan.now, each, state)) for each in plan.placements]
    made += [(job, partial(LeasesRevoked, (job,), plan.now)) for job in plan.revoked]
    made += [(plan.placements[at].job, partial(_held, plan, at, hold)) for at, hold in plan.holds]
    found: dict[JobId, Exception] = {}
    for job, make in made:
        try:
            encode(make())
        except Exception as error:  # noqa: BLE001 - the caller reports the error, whatever it is
            found[job] = error
    return found


def _split(now: int, each: GangMemberPlacement) -> AnyEvent:
    """Return the event before that which places a member of an array of gangs."""
    return MemberSplit(each.job, each.index, now, each.cluster)


def _placed(
    now: int, each: Placement | GangPlacement, state: State, granted: tuple[Granted | None, ...] = ()
) -> AnyEvent:
    """Return the event that grants a lease, or the leases of a gang."""
    job = state.jobs[each.job]
    least = state.facts.least_seq
    if isinstance(each, GangMemberPlacement):
        member = member_id(each.job, each.index)
        return GangPlaced(member, now, each.cluster, each.nodes, 1, max(1, least), each.why, granted)
    if isinstance(each, GangPlacement):
        seq = max(job.seq + 1, least)
        return GangPlaced(job.id, now, each.cluster, each.nodes, job.attempt, seq, each.why, granted)
    only = granted[0] if granted else None
    if each.index is not None:
        return MemberPlaced(each.job, each.index, now, each.cluster, each.node, max(1, least), each.why, only)
    seq = job.seq + 1 if job.seq >= least else least
    return JobPlaced(job.id, now, each.cluster, each.node, job.attempt, seq, each.why, only)
