"""The scheduling index: the state in the form that a cycle needs. It holds lanes, free capacity and waits.

It follows every event, but contains no facts of its own. Following events gives the same index as building it from the
state.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from spillover.core.learned.estimates import estimate, likely
from spillover.core.records.jobs import Job, Kind, Placed, Queued, Running
from spillover.core.state import State
from spillover.deciding.budgets.check import BudgetCheck
from spillover.deciding.budgets.holders import Holders
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.finding import Finder
from spillover.deciding.capacity.limits import ClusterLimits
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.windows import Requester
from spillover.deciding.forecast.ends import Ends
from spillover.deciding.forecast.estimates import late_on
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.alarms import Alarms
from spillover.deciding.queue.lanes import Entry, JobQueue, Lane, LaneKey, LightestLanes
from spillover.deciding.queue.limits import NO_LIMITS, QueueUse, key_in_queues
from spillover.deciding.queue.newcomers import Newcomers
from spillover.deciding.queue.prefetched import PrefetchedLeases, is_ahead
from spillover.deciding.queue.ranking import RankedJobQueue, Ranking
from spillover.deciding.queue.turns import Turn, Turns, next_turn
from spillover.deciding.queue.waiting import WaitQueue
from spillover.deciding.queue.waits import Waits
from spillover.deciding.renting.earmarks import NO_EARMARKS, earmarks_at
from spillover.deciding.renting.offers import Imagined
from spillover.deciding.renting.spot import SpotSlack
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Burst
from spillover.model.units import FOREVER, SECOND

SOME = 16
"""Up to this many lanes, checking each one is faster than starting a cycle."""
FEW: Final = 64
"""Up to this many machines and jobs, a plan of machines is made as often as anything changes."""
PAUSE: Final = SECOND // 500
"""The time until the next plan of machines for each machine and job that the last one looked at, if it changed nothing.

A look takes some 20 µs. So the plans for hundreds of machines that boot, each of whose agents registers, take a part in a
hundred of a core, and not all of it.
"""
LONGEST_PAUSE: Final = SECOND
IDLE = 1024
"""Lanes without jobs that are kept, because similar jobs are likely to follow."""


class SchedulingIndex:
    """Queued jobs, free capacity, and the times at which something falls due."""

    def __init__(  # noqa: PLR0915 - the index has this many parts
        self,
        state: State,
        policies: Policies,
        aside: dict[JobId, None] | None = None,
        *,
        whole: bool = True,
        memory_inside: bool = True,
    ) -> None:
        """Build the whole index, or without `whole` only its clusters: then `build` adds jobs while events arrive."""
        self.state = state
        self.policies = policies
        self.memory_inside = memory_inside
        """Whether the memory of NUMA nodes counts, which earlier rules did not see."""
        self.aside = {} if aside is None else aside
        """Jobs that are not tried, because a cycle failed on them."""
        self.looking_at: JobId | None = None
        """The last job that a cycle tried: the culprit if the cycle fails."""
        self._key = key_in_queues(policies.order.key, state.queues)
        self.queue_use = QueueUse.of_queues(state.queues)
        """What runs under the limits of named queues; None if no queue has any."""
        self.lanes: dict[LaneKey, Lane] = {}
        self.serial = 0
        """Number of lanes created so far."""
        self.least = LightestLanes()
        self.ranking = Ranking(state, policies) if hasattr(policies.order, "ranks") else None
        """The ranks of projects; None if the order policy ranks none."""
        self.queue = self.new_queue(self.is_queued)
        """All queued jobs: tried on owned capacity."""
        self.due = self.new_queue(self.is_due)
        """Queued jobs that may be rented."""
        self.capacity: dict[ClusterName, Capacity] = {}
        self.finder = Finder(self.capacity, near=policies.keeps_near)
        self.can_rent = state.can_rent()
        self.waits = Waits(state, bounded=policies.max_queue is not None and self.can_rent)
        """Until when jobs wait for owned capacity."""
        self.fresh = Newcomers(state)
        """Queued jobs that no cycle has admitted yet."""
        self.turns = Turns(state)
        self.turn: Turn | None = None
        """The turn of the last cycle, if it left out jobs of other turns; None if it tried all jobs."""
        self.spent = False
        """Whether bounded looks of the last cycles met jobs that cannot start, and so may not have reached others."""
        self.alarms = Alarms(state, policies.back_after)
        self.brings_back = policies.back_after is not None
        """Whether the wait policy returns jobs from rented capacity to the queue."""
        self.ends: Ends | None = None
        """Expected ends of running jobs; None if no policy looks ahead."""
        self.wait_queue = WaitQueue(state, self.entry, self.runs, self.ranking) if policies.reviews else None
        """All jobs that wait for owned capacity; None unless the wait policy reviews them."""
        self.in_turn = policies.backfill.strict or policies.backfill.reservations > 0
        """Whether the order matters for every job, because what one finds depends on the jobs ahead of it."""
        self.again = FOREVER
        """When time alone could let another job start, nanoseconds UTC; FOREVER if never."""
        self.windowed = False
        """Whether there are advance reservations, so that machines are closed to some jobs at some times."""
        self.opens_at = FOREVER
        """When the next of them begins, nanoseconds UTC; FOREVER if there is none."""
        self.pooled = any(spec.pool is not None for spec in state.facts.clusters)
        """Whether any cluster has a pool, so that cycles plan machines."""
        self.kept_off = False
        """Whether the last cycle kept jobs off spot machines. What may be ordered decides that, so they are tried again."""
        self.earmarks = NO_EARMARKS
        """Machines that are kept for gangs that they were ordered for."""
        self.imagined: Imagined = {}
        """Machines that pools could rent, as the last plans imagined them."""
        self.rents_at = 0
        """When machines must be planned again although nothing happened, nanoseconds UTC."""
        self.rents_after = 0
        """Machines are not planned before this time, nanoseconds UTC: a plan looked at very many and changed nothing."""
        self.gained = True
        """Whether capacity, or permission to use it, was gained since the last cycle."""
        self.reordered = False
        """Whether the jobs that waited at the last cycle may be in another order, or have others between them."""
        self._last: Entry | tuple[()] = ()
        """An entry behind all of the queue; a new job with an earlier one is not the last."""
        self.kept: object | None = None
        """Reservations of the last cycle, for the next one; see `KeptReservations`. None if it must make its own."""
        self.limited: list[ClusterLimits] = []
        """The limits of clusters that have any; see `limit`."""
        self.counts = False
        """Whether placed jobs count against limits of clusters or queues."""
        self.grown: list[tuple[Capacity, Machine]] = []
        """Machines with more free capacity than when `may_decide` was last called."""
        self.passed = False
        """Whether some jobs waited for others in the last cycle, so that a job that leaves could let them start."""
        self.prefetched = PrefetchedLeases(state)
        self.holders = Holders(state)
        self.rest: list[Job] = []
        """Jobs that are not in the index yet, the first one last."""
        self._scrap: list[list[Any]] | None = None
        """What `free_some` still has to free; None while the index is in use."""
        self._begin()
        if whole:
            self.build()

    def capacity_of(self, spec: ClusterSpec) -> Capacity:
        """Return the capacity of a cluster, without machines yet."""
        return Capacity(spec, self.state.facts.ahead, memory_inside=self.memory_inside)

    def _begin(self) -> None:
        for spec in self.state.facts.clusters:
            self.capacity[spec.name] = self.capacity_of(spec)
        self.open_clusters()
        self.reserve(self.state.facts.now)
        for each in self.state.reservations.values():
            self.alarms.end_of(each)
        self.limit()
        for key, node in self.state.nodes.items():
            if node.cluster in self.capacity:
                self.capacity[node.cluster].refresh(node)
            if node.ahead:
                self.prefetched.note(key)
        if self.policies.looks_ahead:
            self.ends = Ends(self.state, self.capacity, self.runs)
        self.earmark(self.state.facts.now)
        self.rest = list(self.state.jobs.values())
        self.rest.reverse()

    @property
    def is_whole(self) -> bool:
        """Whether all jobs of the state are in the index. No cycle may run before that."""
        return not self.rest

    def build(self, most: int | None = None) -> bool:
        """Add at most `most` more jobs of the state, or all of them; return whether the index is complete.

        Each job is added in its present phase. An event may have added it before; the second entry does no harm.
        """
        rest, jobs = self.rest, self.state.jobs
        for _ in range(len(rest) if most is None else min(most, len(rest))):
            job = rest.pop()
            if jobs.get(job.id) is job:
                self._add(job)
        if rest:
            return False
        if self.wait_queue is not None:
            self.wait_queue.sort()
        return True

    def _add(self, job: Job) -> None:
        self.add_job(job)
        self.move_in(job)
        self.alarms.set(job)
        self.holders.note(job)
        if job.due is not None:
            self.prefetched.note_rentable(job)
        if self.ends is not None:
            self.ends.set(job)

    def free_some(self, most: int) -> bool:
        """Free a part of an unused index, because freeing all at once takes long; return whether nothing is left."""
        if self._scrap is None:
            heaps = (*self.queue.heaps.values(), *self.due.heaps.values())
            self._scrap = [*heaps, self.waits.heap, self.fresh.heap, self.alarms.heap, self.rest]
        while self._scrap and most > 0:
            last = self._scrap[-1]
            most -= max(1, len(last))
            del last[max(0, -most) :]
            if not last:
                self._scrap.pop()
        return not self._scrap

    def retire(self) -> None:
        """Drop all parts. They refer to the index, and reference cycles in frozen objects would never be collected."""
        vars(self).clear()

    # --- questions of the cycle

    def entry(self, job: Job) -> Entry:
        """Return the sort entry of a job."""
        return (self._key(job), job.number, job.id)

    def spot(self, job: Job) -> Entry:
        """Return the sort entry of a job among all queued jobs, with the latest rank of its project."""
        entry = self.entry(job)
        return entry if self.ranking is None else self.ranking.ranked(entry, job.kind.project)

    def lane_of(self, job: Job) -> Lane:
        """Return the lane of a job, and create it if necessary."""
        # As `known_lane`, without a call for every job where no queue has limits.
        lane = self.lanes.get(job.kind) if self.queue_use is None else self.known_lane(job.kind, job.user)
        return self._new_lane(job) if lane is None else lane

    def _new_lane(self, job: Job) -> Lane:
        use, kind, user, limits = self.queue_use, job.kind, "", NO_LIMITS
        if use is not None:
            user = use.user_of(kind.queue, job.user)
            limits = use.of(kind.queue, user)
        self.serial += 1
        lane = Lane(kind, self.serial, user, limits)
        self.lanes[lane.key] = lane
        if len(self.lanes) > 2 * len(self.queue.heaps) + IDLE:
            self.lanes = {each.key: each for each in (*self.queue.heaps, *self.due.heaps, lane)}
            self.finder.forget()
        return lane

    def known_lane(self, kind: Kind, user: str) -> Lane | None:
        """Return the lane of jobs of a kind and user; None if there is none."""
        own = "" if self.queue_use is None else self.queue_use.user_of(kind.queue, user)
        return self.lanes.get((kind, own) if own else kind)

    def is_held_back(self, job: Job) -> bool:
        """Return whether the limits of its queue keep a job from starting now."""
        return self.queue_use is not None and self.lane_of(job).is_held_back

    def least_cpu(self) -> int:
        """Return the smallest CPU request of any queued job, in thousandths; 0 if nothing is queued."""
        return self.least.cpu(self.queue.heaps)

    def rentable_now(self, job: Job, now: int) -> bool:
        """Return whether rented capacity has room for a job right now and its caps allow renting it."""
        shape, check = job.kind.shape, BudgetCheck(self.state, now)
        spot = SpotSlack(self.state, self, now)
        clusters = [
            cluster
            for cluster in self.capacity.values()
            if cluster.spec.role is Role.RENTED
            and cluster.name not in job.kind.backing_off
            and (cluster.limits is None or cluster.limits.allow(shape.total))
            and late_on(job, cluster.spec, now) is None
            and cluster.fits(shape)
            and matching.fits_beside(
                cluster, shape, {*self.closed_on(cluster, job, now), *spot.closed(job, cluster)}
            )
        ]
        return shape.burst is not Burst.NEVER and any(
            check.allows(job, cluster.spec, estimate(job, 0).runtime) for cluster in clusters
        )

    def length(self, job: Job) -> int:
        """Return how long a job may take at the latest, in nanoseconds: its walltime, else its expected runtime."""
        walltime = job.terms.walltime
        return self.runs(job) if walltime is None else walltime

    def closed_on(self, cluster: Capacity, job: Job, now: int, wait: int = 0) -> Collection[int]:
        """Return the machines that are closed to a job that starts now, or after at most `wait`.

        Advance reservations close machines, and so do earmarks for gangs.
        """
        closed: Collection[int] = ()
        if cluster.windows is not None:
            until = now + wait + cluster.spec.startup + self.length(job)
            closed = cluster.windows.barred(self.requester(job), now, until)
        if cluster.earmarks:
            kept = cluster.earmarked(job.id)
            closed = kept.union(closed) if closed else kept
        return closed

    def requester(self, job: Job) -> Requester:
        """Return what decides which windows of machines are open to a job."""
        return Requester(job.kind.project, job.kind.shape.reservation, job.terms.walltime is not None)

    def runs(self, job: Job) -> int:
        """Return the runtime of a job that forecasts use, in nanoseconds."""
        unknown = self.policies.chosen.unknown_runtime
        return estimate(job, unknown).runtime if self.wait_queue is None else likely(job, unknown)

    def next_time(self) -> int:
        """Return when something falls due that no event announces; FOREVER if nothing will."""
        at = self.again if self.again < self.opens_at else self.opens_at
        alarms, waits, prefetched = self.alarms.heap, self.waits.heap, self.prefetched.due
        if alarms and alarms[0][0] < at:
            at = alarms[0][0]
        if waits and waits[0][0] + self.state.facts.jumped < at:
            at = waits[0][0] + self.state.facts.jumped
        if self.pooled:
            later = self.rents_after
            rents = later if later and self.state.rented else max(self.rents_at, later)
            if rents < at:
                at = rents
        if self.queue.first:
            if self.turn is not None:
                at = min(at, next_turn(self.turn))
            if self.ranking is not None:
                at = min(at, self.ranking.next_time(passed=self.passed))
        return min(at, prefetched[0][0]) if prefetched else at

    def gains(self, now: int) -> bool:
        """Return whether to try all queued jobs again: capacity was gained, or the turn or the ranks changed."""
        if self.gained or (self.turn is not None and self.turns.at(now) != self.turn):
            return True
        return self.ranking is not None and self.ranking.outdated(now, passed=self.passed)

    def may_decide(self, now: int) -> bool:  # noqa: C901 - in one piece, because it runs before and after every cycle
        """Take in what moved since the last cycle, and return whether another one could decide anything."""
        state, prefetched = self.state, self.prefetched
        if state.moved or state.loosened:
            self.apply_moves()
        if self.again <= now:
            self.again, self.gained = FOREVER, True
        if self.opens_at <= now:
            self.opens_at, self.gained = self._next_opening(now), True
        if (state.groups or state.earmarked or self.earmarks.gangs) and self.earmark(now):
            self.gained = True
        if self.grown:
            if prefetched.rentable and not prefetched.sooner:
                prefetched.sooner = any(not cluster.owned for cluster, _ in self.grown)
            self.gained = self.gained or self._of_use()
            self.grown.clear()
        if self.fresh or self.queue.woken or self.due.woken:
            return True
        if self.pooled and self.rents_after <= now and (state.rented or self.rents_at <= now):
            return True
        if (prefetched.due or prefetched.rentable) and prefetched.may_decide(now):
            return True
        if self.gained or self.turn is not None or (self.ranking is not None and self.gains(now)):
            if not self.queue.first:
                self.gained, self.turn = False, None  # no queued job could use it
            elif self.gained or self.gains(now):
                return True
        waits = self.waits.heap
        return bool(waits) and waits[0][0] <= now - state.facts.jumped

    def plans_machines(self, now: int) -> bool:
        """Return whether a plan of machines could decide anything: for jobs, after a change, or because time passed."""
        return self.state.rented or self.rents_at <= now or bool(self.due.first)

    def _of_use(self) -> bool:
        """Return whether a queued job could start because machines gained free capacity."""
        lanes, due = self.queue.first, self.due.first
        grown = self.grown if due else [one for one in self.grown if one[0].owned]
        if not lanes or not grown:
            return False  # jobs that may not be rented cannot use rented capacity
        if len(lanes) > SOME or self.in_turn or self.passed or self.finder.eager():
            return True
        for cluster, machine in grown:
            for lane in lanes if cluster.owned else due:
                if machine.fits(lane.least) and cluster.may_hold(lane.total):
                    return True
        return False

    def end_cycle(
        self,
        now: int,
        decided: bool,
        moved: bool,
        passed: bool,
        again: int,
        turn: Turn | None = None,
        spent: bool = False,
    ) -> None:
        """Record the end of a cycle. If it moved jobs and some others waited for them, those may start next.

        New jobs that are told how long to wait move nothing.
        """
        self.gained = moved and passed
        self.reordered = False
        if not self.queue.first:
            self._last = ()
        self.passed = passed
        self.turn = turn
        self.spent = spent
        if again < self.again:
            self.again = again
        if self.ranking is not None:
            self.ranking.settle()
        self.queue.woken.clear()
        self.due.woken.clear()
        if self.fresh.heap:
            self.fresh.settle()
        if self.waits.heap:
            self.waits.settle()
        if self.prefetched.due or self.prefetched.rentable:
            self.prefetched.settle(now, decided=decided)

    def end_machines(self, now: int, *, rents_at: int, changed: bool, looked_at: int, kept_off: bool) -> None:
        """Record what a cycle says of machines of pools, and whether they must be planned again because of it."""
        self.kept_off = kept_off
        self.rents_at, self.state.rented = rents_at, changed
        if looked_at > FEW:
            self.rents_after = now + min(looked_at * PAUSE, LONGEST_PAUSE)

    # --- following events

    def apply_moves(self) -> None:
        """Apply changes of machines and caps that events have left in the state."""
        state, clusters = self.state, self.capacity
        gone: list[str] = []
        for key in state.moved:
            node = state.nodes.get(key)
            if node is None:
                gone.append(key)
                continue
            if node.ahead and key not in self.prefetched.nodes:
                self.prefetched.note(key)
            cluster = clusters.get(node.cluster)
            if cluster is not None and cluster.refresh(node):
                self.grown.append((cluster, cluster.by_name[node.name]))
        state.moved.clear()
        if gone:
            self._drop(gone)
        if state.loosened:
            state.loosened, self.gained, self.prefetched.sooner = False, True, True

    def open_clusters(self) -> None:
        """Update which clusters may get work; their machines are refreshed separately."""
        for name, cluster in self.capacity.items():
            cluster.open = self.state.is_open(name)

    def reserve(self, now: int) -> None:
        """Take over the advance reservations of the state."""
        reservations = self.state.reservations
        self.windowed = bool(reservations)
        self.opens_at = self._next_opening(now)
        for cluster in self.capacity.values():
            cluster.reserve(reservations.values())

    def earmark(self, now: int | None) -> bool:
        """Take over which machines are kept for gangs, or let go of all; return whether one is kept no longer."""
        before, groups = self.earmarks.gangs, self.state.groups or self.state.earmarked
        if not before and not groups:
            return False
        self.earmarks = earmarks_at(self.state, now) if now is not None and groups else NO_EARMARKS
        gangs = self.earmarks.gangs
        machines = self.state.machines
        for cluster in self.capacity.values():
            cluster.earmark(
                {
                    NodeName(each): gang
                    for each, gang in gangs.items()
                    if machines[each].cluster == cluster.name
                }
            )
        return any(gangs.get(machine) != gang for machine, gang in before.items())

    def _next_opening(self, now: int) -> int:
        starts = [each.start for each in self.state.reservations.values() if each.start > now]
        return min(starts, default=FOREVER)

    def _drop(self, nodes: Iterable[str]) -> None:
        """Remove nodes that are no longer in the state."""
        names: dict[ClusterName, list[NodeName]] = {}
        for key in nodes:
            cluster, _, name = key.partition("/")
            names.setdefault(ClusterName(cluster), []).append(NodeName(name))
        for each, dropped in names.items():
            if each in self.capacity:
                self.capacity[each].drop(dropped)

    def add_job(self, job: Job) -> None:
        """Add a queued or prefetched job, unless it is set aside."""
        self.enter(job)
        if job.due is None and job.id not in self.aside and is_ahead(self.state, job):
            self.waits.add(job)

    def enter(self, job: Job) -> None:
        """Add a job that is queued, or whose place in the queue has changed."""
        if type(job.phase) is not Queued or job.id in self.aside:
            return
        lane = self.lane_of(job)
        entry = (self._key(job), job.number, job.id)
        if not lane.weighed:
            self.least.add(lane, self.queue.heaps)
        if job.extra.deadline is not None:
            lane.timed = True
        self.queue.push(lane, entry)
        if job.due is not None:
            self.due.push(lane, entry)
        self.turns.enter(job)
        if job.latest is None or self.state.latest(job) is None:
            self.fresh.add(job)
            if entry < self._last:
                self.reordered = True
            else:
                self._last = entry
        else:
            self.reordered = True
            if job.due is None or job.partly_due:
                self.waits.add(job)
        if self.wait_queue is not None:
            self.wait_queue.keep(job)

    def change_lane(self, job: Job, before: Kind) -> None:
        """Move a job to its new lane after its kind has changed."""
        if type(job.phase) is not Queued:
            return
        if (lane := self.known_lane(before, job.user)) is not None:
            self.queue.settle(lane)
            self.due.settle(lane)
        self.enter(job)
        self.gained = True

    def limit(self) -> None:
        """Look up which clusters have limits, after they have changed."""
        self.limited = [cluster.limits for cluster in self.capacity.values() if cluster.limits is not None]
        self.counts = bool(self.limited) or self.queue_use is not None

    def move_in(self, job: Job) -> None:
        """Count a placed job against the limits of its cluster and of its queue, if those have any."""
        phase = job.phase
        if not isinstance(phase, Placed | Running):
            return
        if self.queue_use is not None:
            self.queue_use.take(job.id, job.kind.queue, job.user, job.shape.total)
        cluster = self.capacity.get(phase.cluster) if self.limited else None
        if cluster is not None and cluster.limits is not None:
            cluster.limits.take(job.id, job.shape.total)

    def move_out(self, job: JobId) -> None:
        """Stop counting a job against limits."""
        for limits in self.limited:
            if limits.leave(job):
                self.gained = True
        if self.queue_use is not None and self.queue_use.leave(job):
            self.gained = True

    def leave(self, job: Job) -> None:
        """Update the queue after a job, or a part of it, has left it."""
        if type(job.phase) is not Queued:
            self.fresh.pop(job.id, None)
            self.waits.patient.pop(job.id, None)
            if self.wait_queue is not None:
                self.wait_queue.drop(job.id)
        # As `known_lane`, without a call for every job where no queue has limits.
        lane = self.lanes.get(job.kind) if self.queue_use is None else self.known_lane(job.kind, job.user)
        if lane is not None:
            self.queue.settle(lane)
            if self.due.heaps:
                self.due.settle(lane)
            if self.passed:
                self.gained = True

    def forget(self, job: Job) -> None:
        """Forget the place of a job in the queue after it has changed, also in a lane that it is no longer in."""
        self.fresh.pop(job.id, None)
        self.waits.patient.pop(job.id, None)
        if self.wait_queue is not None:
            self.wait_queue.drop(job.id)
        for queue in (self.queue, self.due):
            for lane in [lane for lane, entry in queue.first.items() if entry[2] == job.id]:
                queue.settle(lane)

    # --- the two queues

    def new_queue(self, valid: Callable[[Lane, Entry], bool]) -> JobQueue:
        """Return an empty queue in the order of the policies."""
        return JobQueue(valid) if self.ranking is None else RankedJobQueue(valid, self.ranking)

    def is_queued(self, lane: Lane, entry: Entry) -> bool:
        """Return whether an entry is valid: its job is queued in this lane with this key."""
        job = self.state.jobs.get(entry[2])
        if job is None or type(job.phase) is not Queued or entry[0] != self._key(job):
            return False
        return job.kind is lane.kind or job.kind == lane.kind  # it may back off from other clusters by now

    def is_due(self, lane: Lane, entry: Entry) -> bool:
        """Return whether an entry is valid and its job may be rented."""
        return self.is_queued(lane, entry) and self.state.jobs[entry[2]].due is not None
