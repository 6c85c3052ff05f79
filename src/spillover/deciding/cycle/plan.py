"""What a cycle decided, and the events that make it so."""

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
    WaitsExpired,
)
from spillover.core.state import State
from spillover.deciding.budgets.check import CostHold
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import Reason

if TYPE_CHECKING:
    import hashlib

RULES: Final = 2
"""By which rules plans are made. Journals tell, so that plans of older releases are made anew as they were.

0: however much there is to decide, a plan has all of it; what a bounded look does not reach has to wait.
1: a plan is bounded, and what a bounded look does not reach has its turn.
2: a plan asks prefetched leases back that wait too long, or whose jobs can be rented sooner.
"""


class Placement(Struct, frozen=True, array_like=True, gc=False):
    """A job, or a pending member of an array, gets a place."""

    job: JobId
    index: int | None
    """Of the member; None for a job of its own."""
    cluster: ClusterName
    node: NodeName
    why: Reason


class GangPlacement(Struct, frozen=True, array_like=True, gc=False):
    """All tasks of a job get a place, on one cluster."""

    job: JobId
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """One for each task, in their order."""
    why: Reason


class Expiry(Struct, frozen=True, array_like=True, gc=False):
    """A job may be rented from now on."""

    job: JobId
    why: Reason
    members: int = 0
    """Of an array, how many pending members; 0 is all."""


class Plan(Struct, frozen=True, array_like=True):
    """The outcome of one cycle."""

    now: int
    seed: int
    admitted: tuple[tuple[JobId, int], ...]
    """Jobs that wait, with their latest start on owned capacity in steady time."""
    expired: tuple[Expiry, ...]
    placements: tuple[Placement | GangPlacement, ...]
    holds: tuple[tuple[int, CostHold], ...] = ()
    """What is to be held for some of the placements, by their position."""
    revoked: tuple[JobId, ...] = ()
    """Jobs whose prefetched leases are asked back."""

    def __bool__(self) -> bool:
        return bool(self.admitted or self.expired or self.placements or self.revoked)

    def digest(self) -> bytes:
        """The same for the same plan, on any machine."""
        made = (self.now, self.seed, self.admitted, self.expired, self.placements)
        if self.revoked:
            return _digest((*made, self.holds, self.revoked))
        return _digest((*made, self.holds) if self.holds else made)


class _Routeless(Struct, frozen=True):
    """Policies as they were before leases were routed: what they have been called since must not change."""

    order: Choice
    backfill: Choice
    wait: Choice
    place: Choice
    depth: int
    unknown_runtime: int


def digest_of(policies: PolicySet) -> bytes:
    """A short digest of policies."""
    if policies.route != PolicySet().route:
        return _digest(policies)
    return _digest(
        _Routeless(
            policies.order,
            policies.backfill,
            policies.wait,
            policies.place,
            policies.depth,
            policies.unknown_runtime,
        )
    )


def _digest(value: object) -> bytes:
    return _blake2b()(msgpack.encode(value, order="deterministic"), digest_size=16).digest()


@cache
def _blake2b() -> "type[hashlib.blake2b]":
    from hashlib import blake2b  # noqa: PLC0415 - takes long to load, and what is only simulated has no digests

    return blake2b


def _held(plan: Plan, at: int, hold: CostHold) -> CostHeld:
    """What is held for a placement."""
    placed = plan.placements[at]
    index = placed.index if isinstance(placed, Placement) else None
    job = placed.job if index is None else member_id(placed.job, index)
    return CostHeld(job, plan.now, hold.amount, hold.limit, hold.periods)


def events_of(plan: Plan, state: State, policies: bytes, rules: int = RULES) -> list[AnyEvent]:
    """The events that carry a plan into the book; `policies` is the digest of those that made it, empty if nobody asks for digests."""
    digest = plan.digest() if policies else b""
    events: list[AnyEvent] = [Decided(plan.now, plan.seed, policies, digest, rules)]
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
    holds = dict(plan.holds) if plan.holds else {}
    for at, each in enumerate(plan.placements):
        events.append(_placed(plan.now, each, state))
        if at in holds:
            events.append(_held(plan, at, holds[at]))
    return events


def unwritable(plan: Plan, state: State, encode: Callable[[AnyEvent], bytes]) -> dict[JobId, Exception]:
    """Jobs of a plan whose own events cannot be made or encoded, each with why."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            found[job] = error
    return found


def _placed(now: int, each: Placement | GangPlacement, state: State) -> AnyEvent:
    """A lease is granted, or those of a gang."""
    job = state.jobs[each.job]
    if isinstance(each, GangPlacement):
        return GangPlaced(job.id, now, each.cluster, each.nodes, job.attempt, job.seq + 1, each.why)
    if each.index is not None:
        return MemberPlaced(each.job, each.index, now, each.cluster, each.node, 1, each.why)
    return JobPlaced(job.id, now, each.cluster, each.node, job.attempt, job.seq + 1, each.why)
