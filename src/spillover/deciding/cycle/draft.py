"""A plan in the making: what one cycle has decided so far, and how much of each job that leaves."""

from collections.abc import Sequence

from spillover.core import ranges
from spillover.core.jobs import Job, Queued
from spillover.core.state import State
from spillover.deciding.budgets.check import CostHold
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.cycle.plan import Expiry, GangPlacement, Placement, Plan
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.ids import JobId
from spillover.model.reasons import AlwaysRented, Reason, RoomOwned, RoomSoon

ROOM_OWNED = RoomOwned()
ROOM_SOON = RoomSoon()


class Draft:
    """Lives for one cycle; each of its steps writes into it and reads what those before decided."""

    __slots__ = (
        "admitted",
        "ahead",
        "expired",
        "now",
        "placements",
        "rented",
        "revoked",
        "seed",
        "state",
        "steady",
        "taken",
    )

    def __init__(self, state: State, now: int, seed: int) -> None:
        self.state = state
        self.now = now
        self.seed = seed
        self.steady = now - state.facts.jumped
        self.admitted: dict[JobId, int] = {}
        """Until when new jobs wait for owned capacity, in steady time."""
        self.expired: dict[JobId, Expiry] = {}
        self.placements: list[Placement | GangPlacement] = []
        self.taken: dict[JobId, int] = {}
        """How many members of each array, or 1 for each job, this plan places."""
        self.rented: dict[JobId, int] = {}
        """How many of those on rented capacity."""
        self.ahead: dict[JobId, None] = {}
        """Jobs that this plan places ahead of room: their wait goes on."""

        self.revoked: dict[JobId, None] = {}
        """Jobs whose prefetched leases are asked back."""

    def count(self, job: Job, cluster: Capacity) -> None:
        """Note that one more of a job is placed."""
        self.taken[job.id] = self.taken.get(job.id, 0) + 1
        if not cluster.owned:
            self.rented[job.id] = self.rented.get(job.id, 0) + 1

    def why(self, job: Job, cluster: Capacity, *, ahead: bool) -> Reason:
        """Why a job is placed there."""
        if cluster.owned:
            return ROOM_SOON if ahead else ROOM_OWNED
        if job.id in self.expired:
            return self.expired[job.id].why
        return job.due or AlwaysRented()

    def may_be_rented(self, job: Job) -> bool:
        """Whether all of a job may be rented."""
        return (job.due is not None and not job.partly_due) or job.id in self.expired

    def waits(self, job: Job) -> bool:
        """Whether a job, or some of it, still waits for room after this plan."""
        return job.id in self.ahead or self.left(job) > 0

    def patient(self, job: Job) -> int:
        """How much of a job is left and waits for owned capacity only."""
        members = job.extra.members
        due = members.due if members is not None and job.due is not None else 0
        return self.left(job) - due

    def left(self, job: Job, role: Role = OWNED) -> int:
        """How much of a job this plan has not placed yet; for renting, of what may be rented."""
        members = job.extra.members
        taken = self.taken.get(job.id, 0)
        if members is None:
            return 1 - taken
        pending = ranges.size(members.pending)
        if role is RENTED:
            limit = self.expired[job.id].members if job.id in self.expired else members.due
            return min(pending - taken, (limit or pending) - self.rented.get(job.id, 0))
        return pending - taken

    def plan(self, holds: Sequence[tuple[int, CostHold]]) -> Plan:
        """What was decided, with what is to be held for placements. A job that starts at once need not be told how long it may wait."""
        admitted: tuple[tuple[JobId, int], ...] = ()
        expired: tuple[Expiry, ...] = ()
        if self.admitted:
            jobs = self.state.jobs
            admitted = tuple(
                [(each, latest) for each, latest in self.admitted.items() if self.waits(jobs[each])]
            )
        if self.expired:
            expired = tuple(
                each
                for each in self.expired.values()
                if self.waits(self.state.jobs[each.job])
                or type(self.state.jobs[each.job].phase) is not Queued
            )
        return Plan(
            self.now, self.seed, admitted, expired, tuple(self.placements), tuple(holds), tuple(self.revoked)
        )
