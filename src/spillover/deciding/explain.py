"""Why a job is where it is, and what would change that: derived when somebody asks, from what the cycle itself looks at."""

from typing import Protocol

from msgspec import Struct

from spillover.core import ranges
from spillover.core.state import Ended, Job, Placed, Queued, Running, Spread, State, Waiting
from spillover.deciding.board import Board
from spillover.deciding.estimates import Estimate, estimate
from spillover.deciding.protocols import Policies
from spillover.deciding.rooms import Machine, Room
from spillover.model.cluster import Role
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.reasons import (
    AfterJobs,
    BehindOthers,
    BeyondDepth,
    BurstRefused,
    Fresh,
    GangUnsupported,
    Held,
    NoRoom,
    NotBefore,
    NotObserved,
    NotOffered,
    Reason,
    Stopping,
    TooBig,
)
from spillover.model.resources import Resources
from spillover.model.units import FOREVER


class Decider(Protocol):
    """What explaining looks at: an engine."""

    state: State
    board: Board
    policies: Policies


class Verdict(Struct, frozen=True):
    """What one cluster says to a job that is queued."""

    cluster: ClusterName
    role: Role
    reason: Reason | None
    """None when it would take the job now."""


class Explanation(Struct, frozen=True):
    """All there is to say about a job that has not ended."""

    reason: Reason | None
    """None for a job that is placed and well."""
    verdicts: tuple[Verdict, ...]
    ahead: int
    """Queued jobs that are tried before it."""
    spills_at: int | None
    """When it may be rented, nanoseconds UTC; None if never, or already."""
    estimate: Estimate


def explain(engine: Decider, job: Job) -> Explanation:
    """Say why."""
    state, board = engine.state, engine.board
    expected = estimate(job.terms, engine.policies.chosen.unknown_runtime)
    if type(job.phase) is not Queued:
        return Explanation(_unqueued(job), (), 0, None, expected)
    verdicts = tuple(_verdict(room, job.kind.shape) for room in board.rooms.values())
    reason = _why_queued(engine, job, verdicts)
    spills_at = None
    if job.latest is not None and job.due is None and job.latest < FOREVER and not reason.never:
        spills_at = job.latest + state.facts.jumped
    return Explanation(reason, verdicts, _ahead(board, job), spills_at, expected)


def _unqueued(job: Job) -> Reason | None:
    """Why a job that is not queued is where it is."""
    match job.phase:
        case Waiting(by):
            if by is not None:
                return Held(by)
            if job.extra.after:
                return AfterJobs(tuple(wanted.job for wanted in job.extra.after))
            return NotBefore(job.extra.not_before or 0)
        case Placed() | Running():
            return Stopping(job.phase.stopping) if job.phase.stopping is not None else None
        case Ended():
            return job.phase.why
        case Spread() | Queued():
            return None


def _why_queued(engine: Decider, job: Job, verdicts: tuple[Verdict, ...]) -> Reason:
    """The one reason that comes first: never before not now, the nearest cause before the others."""
    shape = job.kind.shape
    if shape.tasks > 1:
        return GangUnsupported(shape.tasks)
    possible = [each for each in verdicts if each.reason is None or not each.reason.never]
    if not possible:
        return _why_never(engine.state, engine.board, shape, verdicts)
    if job.latest is None:
        return Fresh()
    allowed = [
        each
        for each in possible
        if each.role is Role.OWNED or job.due is not None or shape.burst is Burst.ALWAYS
    ]
    names = tuple(each.cluster for each in allowed or possible)
    if all(type(each.reason) is NotObserved for each in allowed or possible):
        return NotObserved(names)
    if (cut := _cut_off(engine, job)) is not None:
        return cut
    return NoRoom(shape.resources, names)


def _why_never(state: State, board: Board, shape: Shape, verdicts: tuple[Verdict, ...]) -> Reason:
    """Why no cluster could ever run a job, by what comes nearest."""
    refused = [each.reason for each in verdicts if each.reason is not None]
    if not state.nodes:
        return NotObserved(tuple(board.rooms))
    for kind in (BurstRefused, TooBig):
        for reason in refused:
            if type(reason) is kind:
                return reason
    offered = {word for node in state.nodes.values() for word in node.offers}
    missing = tuple(word for word in shape.needs if word not in offered)
    return NotOffered(missing or shape.needs)


def _verdict(room: Room, shape: Shape) -> Verdict:
    """What one cluster says."""
    return Verdict(room.name, room.spec.role, _refusal(room, shape))


def _refusal(room: Room, shape: Shape) -> Reason | None:
    """Why a cluster does not take a job of this shape now; None if it does."""
    if shape.tasks > 1:
        return GangUnsupported(shape.tasks)
    ruled_out = Burst.NEVER if room.spec.role is Role.RENTED else Burst.ALWAYS
    if shape.burst is ruled_out and any(machine.could_fit(shape) for machine in room.machines):
        return BurstRefused(shape.burst)
    if not room.machines:
        return NotObserved((room.name,))
    offering = [machine for machine in room.machines if machine.offers.issuperset(shape.needs)]
    if not offering:
        return NotOffered(tuple(word for word in shape.needs if not _offered(room, word)) or shape.needs)
    if not any(machine.could_fit(shape) for machine in offering):
        return TooBig(shape.resources, _largest(offering))
    if shape.burst is ruled_out:
        return BurstRefused(shape.burst)
    if not any(machine.ready for machine in offering):
        return NotObserved((room.name,))
    if any(machine.fits(shape) for machine in offering):
        return None
    return NoRoom(shape.resources, (room.name,))


def _offered(room: Room, word: str) -> bool:
    return any(word in machine.offers for machine in room.machines)


def _largest(machines: list[Machine]) -> Resources:
    """The most that any of them has of each resource."""
    totals = list(zip(*(machine.total for machine in machines), strict=True))
    return Resources(*(max(total) for total in totals))


def _cut_off(engine: Decider, job: Job) -> Reason | None:
    """Whether the cycle never got as far as this job's lane."""
    board = engine.board
    lane = board.lanes.get(job.kind)
    strict, depth = engine.policies.backfill.strict, engine.policies.chosen.depth
    for place, (entry, each) in enumerate(board.queue.lanes()):
        if each is lane:
            return None
        if strict:
            return BehindOthers(entry[2])
        if place + 1 >= depth:
            return BeyondDepth(depth)
    return None


def _ahead(board: Board, job: Job) -> int:
    """How many queued jobs sort before this one, members of arrays counted one by one."""
    mine = board.entry(job)
    count = 0
    for heap in board.queue.heaps.values():
        for entry in heap:
            if entry < mine and board.queue.valid(entry):
                members = board.state.jobs[entry[2]].extra.members
                count += 1 if members is None else ranges.size(members.pending)
    return count
