"""The unfinished plan of a cycle: the decisions so far, and what they leave of each job."""

from collections.abc import Sequence

from spillover.core.events import AnyEvent
from spillover.core.records.jobs import Job, Queued
from spillover.core.state import State
from spillover.deciding.budgets.check import CostHold
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.cycle.plan import Expiry, GangPlacement, Placement, Plan
from spillover.model import ranges
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.ids import JobId
from spillover.model.inside import Granted
from spillover.model.reasons import AlwaysRented, Reason, RoomOwned, RoomSoon

ROOM_OWNED = RoomOwned()
ROOM_SOON = RoomSoon()


class Draft:
    """Collects decisions during one cycle. Each step writes to it and reads what earlier steps decided."""

    __slots__ = (
        "admitted",
        "ahead",
        "expired",
        "granted",
        "machines",
        "now",
        "placements",
        "plans_machines",
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
        self.granted: list[tuple[int, tuple[Granted | None, ...]]] = []
        """Cores and GPUs of placements, by position; of each task by rank."""
        self.taken: dict[JobId, int] = {}
        """By job, how many members this plan places; 1 for a job that is not an array."""
        self.rented: dict[JobId, int] = {}
        """How many of those are on rented capacity."""
        self.ahead: dict[JobId, None] = {}
        """Jobs that this plan prefetches. Their wait continues."""

        self.machines: tuple[AnyEvent, ...] = ()
        """What becomes of rented machines."""
        self.plans_machines = True
        """Whether that was planned, if it was needed; else the next plan does."""
        self.revoked: dict[JobId, None] = {}
        """Jobs whose prefetched leases the server asks back."""

    def count(self, job: Job, cluster: Capacity) -> None:
        """Count one more placement of a job."""
        self.taken[job.id] = self.taken.get(job.id, 0) + 1
        if not cluster.owned:
            self.rented[job.id] = self.rented.get(job.id, 0) + 1

    def why(self, job: Job, cluster: Capacity, *, ahead: bool) -> Reason:
        """Return why a job is placed on a cluster."""
        if cluster.owned:
            return ROOM_SOON if ahead else ROOM_OWNED
        if job.id in self.expired:
            return self.expired[job.id].why
        return job.due or AlwaysRented()

    def may_be_rented(self, job: Job) -> bool:
        """Return whether all of a job may be rented."""
        return (job.due is not None and not job.partly_due) or job.id in self.expired

    def waits(self, job: Job) -> bool:
        """Return whether a job, or part of it, still waits for room after this plan."""
        return job.id in self.ahead or self.left(job) > 0

    def patient(self, job: Job) -> int:
        """Return how much of a job is left and may use owned capacity only."""
        members = job.extra.members
        due = members.due if members is not None and job.due is not None else 0
        return self.left(job) - due

    def left(self, job: Job, role: Role = OWNED) -> int:
        """Return how much of a job this plan has not placed yet; for RENTED, only what may be rented."""
        members = job.extra.members
        taken = self.taken.get(job.id, 0)
        if members is None:
            return 1 - taken
        pending = ranges.size(members.pending)
        if members.most:
            pending = min(pending, members.most - members.live)
        if role is RENTED:
            limit = self.expired[job.id].members if job.id in self.expired else members.due
            return min(pending - taken, (limit or pending) - self.rented.get(job.id, 0))
        return pending - taken

    def plan(self, holds: Sequence[tuple[int, CostHold]]) -> Plan:
        """Return the finished plan. It omits waits and expiries of jobs that it places completely."""
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
            self.now,
            self.seed,
            admitted,
            expired,
            tuple(self.placements),
            tuple(holds) if holds else (),
            tuple(self.revoked) if self.revoked else (),
            tuple(self.granted) if self.granted else (),
            self.machines,
            self.plans_machines,
        )
