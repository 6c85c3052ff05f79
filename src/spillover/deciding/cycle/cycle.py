"""Runs one scheduling cycle: looks at waiting jobs and free capacity, and returns a plan.

`run` has these steps: let jobs be rented whose wait is over, place jobs on owned capacity in order, admit new jobs that
did not fit, and rent jobs that may be rented and found no place. Capacity of ended jobs was freed when their events
were applied. `explain` derives on request why a job is not placed. `placing` finds places, and `draft` holds the
decisions made so far.

A cycle is pure. It undoes its trial placements before it returns, unless the caller carries out the plan at once.
"""

import heapq
from operator import attrgetter
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.records.jobs import NO_EXTRA, Job
from spillover.core.state import State
from spillover.deciding.backfill.reservation import Reservation
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.capacity.future import Group
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.windows import NO_ACCESS
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.cycle.placing import Placer
from spillover.deciding.cycle.plan import RULES, Expiry, Placement, Plan
from spillover.deciding.forecast.starts import Asked, Barred, Outlook, Reviewing, Waiter
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.heaps import in_order
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.turns import Turn
from spillover.deciding.queue.waiting import WaitQueue
from spillover.deciding.renting.plan import rent
from spillover.deciding.renting.rentals import Rentals
from spillover.model.ids import JobId
from spillover.model.job import ALWAYS, NEVER, Shape
from spillover.model.reasons import AlwaysRented, NotInTime, OnlyRented, QueueFull, RoomPaid, WaitOver
from spillover.model.units import FOREVER

REVOKES: Final = 2
"""The first version of the rules in which plans revoke leases."""
RESERVES_FOR_SEVERAL: Final = 3
"""The first version of the rules in which several jobs may have reservations."""
EARMARKS: Final = 4
"""The first version of the rules in which machines that were ordered for a gang are kept for it, and clock jumps are no
time in which a machine could join."""
COMPARES: Final = 5
"""The first version of the rules in which plans compare what jobs add to the bills of rented machines."""
SEES_WHOLE: Final = 6
"""The first version of the rules in which wait policies see what nodes of whole clusters mean."""
REUSES: Final = 7
"""The first version of the rules in which gangs get machines that are there, besides new ones, and jobs do not wait again and
again for a task that runs longer than expected."""
MEMORY_INSIDE: Final = 7
"""The first version of the rules in which the memory of NUMA nodes counts; the index must be made for it."""
MOST_WAITS = 1000
"""The most jobs that one cycle admits, and the most whose wait it ends. The next cycle continues."""
QUEUE_FULL = QueueFull()
_NUMBER = attrgetter("number", "id")


class CycleOutcome(Struct, frozen=True):
    """A plan, and what the next cycle needs to know."""

    plan: Plan
    passed: bool
    """Whether some jobs waited for others: for the head of the queue, for `depth`, or for a check of their caps."""
    again: int
    """When time alone could let another job start, nanoseconds UTC; FOREVER if never."""
    settled: bool
    """Whether machines in the index already reflect the plan, so that carrying it out need not refresh them."""
    turn: Turn | None = None
    """The turn that the cycle used, if it left out jobs of other turns; None if it tried all jobs."""
    spent: bool = False
    """Whether bounded looks met jobs that cannot start."""
    final: bool = False
    """Whether another cycle at this time would decide nothing, even if jobs of this one moved and others waited for them."""
    rents_at: int = FOREVER
    """When machines of pools must be planned again although nothing happened, nanoseconds UTC."""
    looked_at: int = 0
    """How many machines and jobs a plan of machines looked at that changed nothing; 0 if it changed something."""
    kept_off: bool = False
    """Whether jobs were kept off spot machines with room."""


def run(  # noqa: C901, PLR0912 - the steps in order, without a call for what most cycles have no need of
    state: State,
    index: SchedulingIndex,
    policies: Policies,
    now: int,
    seed: int,
    *,
    keep: bool = False,
    rules: int = RULES,
    machines: bool = True,
) -> CycleOutcome:
    """Make a plan. With `keep`, trial placements stay, for a plan carried out at once. A replay passes old `rules`.

    Without `machines`, those of pools are left to the next plan.
    """
    if index.ranking is not None:
        index.ranking.rank(now)
    if state.groups or state.earmarked or index.earmarks.gangs:
        index.earmark(now if rules >= EARMARKS else None)
    most = MOST_WAITS if rules else FOREVER
    draft = Draft(state, now, seed)
    placer = Placer(
        index,
        policies,
        draft,
        keep,
        rules > 0,
        rules < RESERVES_FOR_SEVERAL,
        rules >= COMPARES,
    )
    if index.waits.heap and index.waits.heap[0][0] <= draft.steady:
        expire(draft, index, most)
    due = len(draft.expired)
    if index.queue.first:
        placer.place()
    if not placer.cut:  # otherwise jobs that still have a place could be rented or told to wait
        if index.fresh:
            rentals = _rentals(draft, index, policies, rules) if index.pooled and rules >= COMPARES else None
            admit(draft, index, policies, most, rentals)
            if index.wait_queue is not None and placer.reservation is not None:
                review(draft, index, index.wait_queue, policies, placer.reservation, rules, rentals)
        if policies.max_queue is not None and cap_queue(draft, index, policies.max_queue, most):
            placer.passed = True
        if draft.expired or index.due.first:
            placer.rent()
    if rules >= REVOKES and (index.prefetched.due or index.prefetched.rentable):
        revoke(draft, index, most)
    rents_at, looked_at = index.rents_at, 0
    if index.pooled and not placer.cut and (draft.expired or index.plans_machines(now)):
        rents_at, looked_at = (
            _plan_machines(draft, index, policies, rules) if machines else _later(draft, index)
        )
    if not keep:
        placer.undo()
    passed, final = placer.passed, False
    again = spot_again = FOREVER  # as after most cycles
    if passed or placer.budgets is not None or placer.reservation is not None:
        final = passed and len(draft.expired) == due and _is_final(draft, index, placer)
        again = placer.again(final=final)
    if index.pooled and (spot_again := placer.spot_again()) < again:
        again = spot_again
    if placer.reservation is not None:
        placer.keep()
        # The two refer to each other. Without this, each cycle's timeline stays until the next garbage collection.
        placer.reservation = None
    return CycleOutcome(
        draft.plan(placer.holds),
        passed,
        again,
        keep and not draft.ahead and not draft.machines,
        placer.turn,
        placer.spent,
        final,
        rents_at,
        looked_at,
        spot_again < FOREVER,
    )


def _plan_machines(draft: Draft, index: SchedulingIndex, policies: Policies, rules: int) -> tuple[int, int]:
    """Plan machines of pools; return when to plan them again, and how many the plan looked at if it changed none."""
    draft.machines, again, looked_at = rent(
        draft, index, policies, steady=rules >= EARMARKS, reuses=rules >= REUSES
    )
    return again, 0 if draft.machines else looked_at


def _later(draft: Draft, index: SchedulingIndex) -> tuple[int, int]:
    """Leave machines of pools to the next plan."""
    draft.plans_machines = False
    return index.rents_at, 0


def _is_final(draft: Draft, index: SchedulingIndex, placer: Placer) -> bool:
    """Return whether a cycle need not be repeated: the next one would make the same reservations, so nothing could start.

    Under reservations nearly all cycles that start or rent a job are such, and the next one costs as much as the first.
    The rest are those where the answer is less simple.
    """
    reservation = placer.reservation
    if reservation is None or not placer.complete or reservation.looks <= 0 or placer.budgets is not None:
        return False
    if (
        placer.spent
        or placer.turn is not None
        or index.ranking is not None
        or index.windowed
        or index.counts
        or index.pooled
    ):
        return False
    if draft.ahead or draft.revoked or index.finder.eager() or index.due.first:
        return False
    # Where only one job has a reservation, the next one of the lane of a rented job may get it.
    if draft.expired and not isinstance(reservation, Reservations):
        return False
    if any(each not in draft.taken for each in draft.expired):
        return False
    return all(
        type(each) is not Placement or each.index is None for each in draft.placements
    ) and _leave_reservations(draft, index)


def _leave_reservations(draft: Draft, index: SchedulingIndex) -> bool:
    """Return whether what a plan places leaves every reservation when and where it is.

    What is rented does: nothing was reserved for it, because its wait was over. So does what starts on a cluster of one
    machine, where there is no choice: it delays no reservation, and none can be sooner than without it.
    """
    owned = [each for each in index.capacity.values() if each.owned]
    names = {each.name for each in owned}
    starting = [each.job for each in draft.placements if each.cluster in names]
    if not starting:
        return True
    if len(owned) > 1 or len(owned[0].machines) != 1 or owned[0].layout.localities:
        return False
    # A job that is expected to end at once is overdue in the next cycle.
    return all(index.runs(draft.state.jobs[each]) > 0 for each in starting)


def expire(draft: Draft, index: SchedulingIndex, most: int) -> None:
    """Let jobs be rented whose wait is over, also those that hold a prefetched lease and have not started."""
    for wait in in_order(index.waits.heap):
        if wait[0] > draft.steady or len(draft.expired) >= most:
            break
        job = index.waits.job_of(wait)
        if job is not None:
            draft.expired[job.id] = Expiry(job.id, WaitOver(draft.steady - job.arrived))


def admit(
    draft: Draft, index: SchedulingIndex, policies: Policies, most: int, rentals: Rentals | None = None
) -> None:
    """Set how long new jobs that did not fit wait for owned capacity, in the order of submission.

    A job whose wait is over at once may be rented in this cycle, because owned capacity was already tried.
    """
    jobs, taken, ahead, steady = draft.state.jobs, draft.taken, draft.ahead, draft.steady
    fresh: list[Job] = []
    for each in index.fresh if len(index.fresh) <= most else index.fresh.first():
        job = jobs[each]
        if each not in taken or each in ahead or (job.extra is not NO_EXTRA and draft.left(job) > 0):
            fresh.append(job)
            if len(fresh) >= most:
                break
    if len(fresh) > 1:
        fresh.sort(key=_NUMBER)
    for job in fresh:
        index.looking_at = job.id
        latest = draft.admitted[job.id] = _latest(job, steady, index, policies, rentals)
        if latest <= steady and job.id not in draft.expired and job.due is None:
            draft.expired[job.id] = Expiry(job.id, _why_at_once(job.kind.shape, steady - job.arrived, index))
            if rentals is not None:
                rentals.take(job)  # the next one does not get the same room


def _rentals(draft: Draft, index: SchedulingIndex, policies: Policies, rules: int) -> Rentals | None:
    """Return what renting jobs now would mean, if the wait policy may use that."""
    return Rentals(draft, index, policies, whole=rules >= SEES_WHOLE) if policies.compares else None


def _why_at_once(shape: Shape, waited: int, index: SchedulingIndex) -> AlwaysRented | OnlyRented | WaitOver:
    """Return why a new job may be rented at once."""
    if shape.burst is ALWAYS:
        return AlwaysRented()
    return OnlyRented() if index.finder.only_rented(shape) else WaitOver(waited)


def _latest(
    job: Job, steady: int, index: SchedulingIndex, policies: Policies, rentals: Rentals | None
) -> int:
    """Return until when a job waits for owned capacity, in steady time."""
    shape = job.kind.shape
    if job.due is not None or shape.burst is ALWAYS:
        return steady
    if shape.burst is NEVER or not index.can_rent or shape.reservation:
        return FOREVER
    if shape.where is not None and index.finder.only_rented(shape):
        return steady
    rental = None if rentals is None else rentals.of(job, index.runs(job))
    case = policies.case_of(job, index.state.facts.tally, rental)
    return min(FOREVER, job.arrived + policies.wait_of(case))


def review(
    draft: Draft,
    index: SchedulingIndex,
    wait_queue: WaitQueue,
    policies: Policies,
    reservation: Reservation,
    rules: int,
    rentals: Rentals | None = None,
) -> None:
    """Let jobs be rented that will not start in time on owned capacity, as the wait policy forecasts."""
    if not draft.admitted:
        return  # as in most cycles, which place all new jobs
    newcomers = {each: latest for each, latest in draft.admitted.items() if each not in draft.expired}
    if not newcomers or min(newcomers.values()) >= FOREVER:
        return
    reviewer = cast("Reviewing", policies.wait)
    queue = _queue(draft, index, wait_queue.with_newcomers(newcomers, reviewer.most_jobs), rules)
    fresh = {
        each: latest
        for each, latest in draft.admitted.items()
        if (waiter := queue.get(each)) is not None and waiter.rentable
    }
    if not fresh:
        return
    openings, barred = _windows(draft, index) if index.windowed else ((), None)
    outlook = Outlook(
        draft.now,
        draft.steady,
        list(queue.values()),
        fresh,
        reservation.ends(),
        {name: cluster for name, cluster in index.capacity.items() if cluster.owned},
        policies.place,
        policies.backfill.strict,
        openings,
        barred,
        policies.backfill.reservations if rules >= RESERVES_FOR_SEVERAL else 0,
        lambda each: _asked(draft.state.jobs[each], index),
        rentals,
    )
    for late in reviewer.review(outlook):
        job = draft.state.jobs[late.job]
        patient, left = draft.patient(job), draft.left(job)
        members = left - patient + late.many if late.many < patient else 0
        within = max(0, late.limit - draft.now)
        why = RoomPaid(within) if late.paid else NotInTime(within)
        draft.expired[late.job] = Expiry(late.job, why, members)


def _windows(draft: Draft, index: SchedulingIndex) -> tuple[list[tuple[int, Group]], Barred]:
    """Return when advance reservations end, and what tells which machines they close to a job."""
    openings = [
        (each.end, Group(cluster, machines, ()))
        for each in draft.state.reservations.values()
        if (cluster := index.capacity.get(each.cluster)) is not None and cluster.owned
        if (machines := tuple([cluster.by_name[name] for name in each.nodes if name in cluster.by_name]))
    ]

    def barred(job_id: JobId, machine: Machine, at: int) -> bool:
        job = draft.state.jobs[job_id]
        requester, until = index.requester(job), at + index.length(job)
        return any(window.bars(requester, at, until) for window in machine.windows)

    return openings, barred


def _asked(job: Job, index: SchedulingIndex) -> Asked:
    """Return what a waiting job asks for. With advance reservations, its walltime counts."""
    asks = index.finder.asks(index.lane_of(job))
    if index.windowed:
        return Asked(asks, max(1, index.length(job)), index.requester(job))
    return Asked(asks, max(1, index.runs(job)), NO_ACCESS)


def _queue(draft: Draft, index: SchedulingIndex, waiting: list[Waiter], rules: int) -> dict[JobId, Waiter]:
    """Return the first jobs, in order, that still wait for owned capacity after this plan."""
    jobs, expired, taken = draft.state.jobs, draft.expired, draft.taken
    queue: dict[JobId, Waiter] = {}
    limited = index.queue_use is not None
    for waiter in waiting:
        each, shape = waiter.job, waiter.shape
        if each in expired or shape.reservation:
            continue  # a job that names an advance reservation starts there and then
        job = jobs[each]
        if limited and index.is_held_back(job):
            continue  # it takes no room from others
        if job.extra.members is not None:
            count = draft.patient(job) if waiter.rentable else draft.left(job)
            if count > 0:
                queue[each] = replace(waiter, many=count)
        elif each not in taken:
            queue[each] = waiter
        # As `is_gang`, without a call for every job that waits.
        if (shape.tasks > 1 or shape.most) and each in queue and rules >= RESERVES_FOR_SEVERAL:
            queue[each] = _unless_nobody_rents_it_out(queue[each], job, index)
    return queue


def _unless_nobody_rents_it_out(waiter: Waiter, job: Job, index: SchedulingIndex) -> Waiter:
    """Let a gang that no rented cluster can hold wait: renting it would only lose it its place."""
    if not waiter.rentable or index.finder.could_rent(index.lane_of(job)):
        return waiter
    return replace(waiter, rentable=False)


def revoke(draft: Draft, index: SchedulingIndex, most: int) -> None:
    """Ask back prefetched leases that waited too long for their agent, or whose jobs can be rented now.

    Another machine may have room by now. A lease stays with its agent until the agent answers, because the task may
    have started.
    """
    state, now, prefetched = draft.state, draft.now, index.prefetched
    sooner = [job for each in prefetched.rentable if (job := state.jobs.get(each)) is not None]
    rented = [job for job in sooner if prefetched.rents_sooner(job) and index.rentable_now(job, now)]
    revoked = sorted([*prefetched.stuck(now), *rented], key=_NUMBER)[:most]
    draft.revoked = dict.fromkeys([job.id for job in revoked])  # a job may be in both lists


def cap_queue(draft: Draft, index: SchedulingIndex, limit: int, most: int) -> bool:
    """Let jobs beyond `max_queue` be rented, last of the queue first; return whether the next cycle must continue."""
    jobs = draft.state.jobs
    if draft.state.queued <= limit:
        return False
    waiting = [
        job
        for job in (jobs[each] for each in dict.fromkeys([*index.waits.patient, *draft.admitted]))
        if index.waits.counts(job) and not draft.may_be_rented(job) and draft.patient(job) > 0
    ]
    # Jobs that wait for others of their queue take no room from the rest, and the rest takes none from them.
    held_back = [job for job in waiting if index.is_held_back(job)]
    others = [job for job in waiting if not index.is_held_back(job)] if held_back else waiting
    more = _cap(draft, index, others, limit, most)
    return _cap(draft, index, held_back, limit, most) or more


def _cap(draft: Draft, index: SchedulingIndex, waiting: list[Job], limit: int, most: int) -> bool:
    """Let the last ones of these jobs be rented, beyond a limit; return whether the next cycle must continue."""
    jobs = draft.state.jobs
    excess = sum(draft.patient(job) for job in waiting) - limit
    if excess <= 0:
        return False
    last = heapq.nlargest(min(excess, most), (index.spot(job) for job in waiting))
    for _, _, each in last:
        patient, left = draft.patient(jobs[each]), draft.left(jobs[each])
        count = min(patient, excess)
        draft.expired[each] = Expiry(each, QUEUE_FULL, left - patient + count if count < patient else 0)
        excess -= count
        if excess <= 0:
            break
    return excess > 0
