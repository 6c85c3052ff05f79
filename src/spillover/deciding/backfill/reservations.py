"""Reserves capacity for several jobs that do not fit, each no earlier than those ahead of it in the queue.

A cycle makes no more reservations than it needs, because most jobs are blocked by the first few. Jobs that do not fit
are parked: a lane from its first such job on, or one job that only reservations block. Before a job behind them starts,
the parked jobs ahead of it are booked, in order, until one of them blocks it.
"""

import heapq
from collections.abc import Callable, Collection, Iterator

from spillover.core.records.jobs import Job, Queued
from spillover.deciding.backfill.booking import Booker
from spillover.deciding.backfill.reservation import Reservation, Span
from spillover.deciding.capacity.amounts import count
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.gangs import GangCandidates, Part
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Booking
from spillover.deciding.capacity.windows import NO_ACCESS, Requester
from spillover.deciding.forecast.ends import Ends
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Entry, Lane
from spillover.model.ids import JobId
from spillover.model.units import FOREVER


class Reservations(Reservation):
    """The reservations of one cycle, for policies that make more than one."""

    def __init__(
        self,
        index: SchedulingIndex,
        ends: Ends,
        policies: Policies,
        now: int,
        due: Callable[[Job], int],
    ) -> None:
        super().__init__(index, ends, policies, now)
        self._left = policies.backfill.reservations
        """How many more reservations the cycle makes."""
        self._due = due
        """Returns how many reservations a job needs: one for each member of an array that waits, 0 if it may have none."""
        self._parked: list[tuple[Entry, int, Lane, Iterator[Entry] | None]] = []
        """Heap of jobs that do not fit, each with a unique number, its lane, and the following jobs that do not either.

        None instead of those if the cycle tries each of them.
        """
        self._booked: dict[JobId, None] = {}
        """Jobs with reservations."""
        self._bookings: list[tuple[JobId, Booking]] = []
        """All reservations, in the order in which they were made."""
        self._too_late: dict[Candidates, int] = {}
        """By candidates, an end for which reservations leave no room. They only take more, so later ends need no look."""
        self._serial = 0
        self._booker: Booker | None = None
        """None until a job behind a job that does not fit could start."""

    @property
    def is_full(self) -> bool:
        """Whether no more jobs get a reservation."""
        return self._left <= 0

    def keep_for(self, job: Job, lane: Lane, *, kept: bool) -> None:
        """Make a reservation for a job that does not fit."""
        del kept  # jobs behind it in the lane may have one even if it may not
        self.keeps = True
        spot = self._index.spot(job)
        self._serial += 1
        following = None if self.blocked else self._behind(lane, spot)
        heapq.heappush(self._parked, (spot, self._serial, lane, following))

    def _behind(self, lane: Lane, spot: Entry) -> Iterator[Entry]:
        """Yield the jobs of a lane behind one of them. The lane must not change meanwhile."""
        return (entry for entry in self._index.queue.jobs(lane) if entry > spot)

    @property
    def reserved(self) -> dict[JobId, None]:
        """The jobs for which capacity is booked."""
        return dict.fromkeys([job for job, _ in self._bookings])

    def resume(self, now: int, due: Callable[[Job], int]) -> None:
        """Continue in a later cycle, before which only new jobs came. See `KeptReservations`."""
        self._now, self._due = now, due
        self._parked = [
            (spot, serial, lane, None if following is None else self._behind(lane, spot))
            for spot, serial, lane, following in self._parked
        ]
        if self._booker is not None:
            self._booker.timeline.now = now

    def best(
        self, job: Job, candidates: Candidates, first: Machine, closed: Collection[int] = ()
    ) -> Machine | None:
        """Return the best machine where a job delays no job with a reservation; None if there is none."""
        until = self._until(job)
        if until >= self._too_late.get(candidates, FOREVER):
            self.blocked = True
            return None
        timeline = self._open().timeline
        timeline.requester = requester = self._requester(job)
        spot = self._index.spot(job)
        barred: set[int] = set(closed)
        passed: list[tuple[int, int]] = []
        machine: Machine | None = first
        while machine is not None:
            if not timeline.fits(machine, candidates.held(machine), self._now, until):
                if candidates.plain and machine.inside is None and not machine.windows:
                    # Nor does it fit where the same is free at all times. One look is enough for most idle machines.
                    timeline.profiles.of_all(candidates.fitting(self._place))
                    barred.update([each.index for each in timeline.profiles.of(machine).machines])
                else:
                    barred.add(machine.index)
                # Reservations keep all machines from most jobs. Then none need be passed over one by one.
                nowhere = candidates.fits_only_on(barred)
                machine = None if nowhere else candidates.best(self._place, barred, passed)
            elif not self._book_next(spot):
                break
            timeline.requester = requester
        candidates.put_back(passed)
        if machine is None:
            self.blocked = True
            if not closed:
                self._too_late[candidates] = until
        return machine

    def take_gang(
        self, job: Job, lane: Lane, gang: GangCandidates, closed: Collection[int] = (), tasks: int = 0
    ) -> list[Part]:
        """Take capacity for all tasks of a gang where it delays no job with a reservation; take nothing otherwise."""
        cluster = gang.cluster
        if not self.keeps or not cluster.may_hold(gang.total):
            return super().take_gang(job, lane, gang, closed, tasks)
        ask = next(each for each in self._index.finder.asks(lane) if each.candidates.cluster is cluster)
        candidates = ask.candidates
        candidates.read_all(self._place)
        needed = tasks or candidates.shape.tasks
        if needed > len(candidates.scores):  # otherwise one on each machine would do
            for each in candidates.scores:
                needed -= count(candidates.wants, cluster.slots[each].free)
                if needed <= 0:
                    break
            else:
                return []
        until = self._until(job)
        plain = not (closed or tasks or self._index.windowed)
        if plain and until >= self._too_late.get(candidates, FOREVER):
            self.blocked = True
            return []
        booker, runtime, spot = self._open(), self._runtime(job), self._index.spot(job)
        requester = self._requester(job)
        booking = booker.now_on(ask, runtime, requester, tasks)
        if booking is not None and self._book_next(spot):
            while self._book_next(spot):
                pass
            booking = booker.now_on(ask, runtime, requester, tasks)
        elsewhere = booking is not None and any(share.machine.index in closed for share in booking.shares)
        parts = [] if booking is None or elsewhere else gang.occupy(booking.shares)
        if not parts and (gang.named or elsewhere):
            parts = self._take_exactly(job, gang, closed, tasks)
        elif not parts and plain:
            self._too_late[candidates] = until
        self.blocked = self.blocked or not parts
        return parts

    def _take_exactly(
        self, job: Job, gang: GangCandidates, closed: Collection[int], tasks: int
    ) -> list[Part]:
        """Take capacity for a gang where it fits now, if it delays no job with a reservation there.

        It is for gangs that a search on the timeline places elsewhere than on the machines and cores that they get.
        """
        while self._book_next(self._index.spot(job)):
            pass
        cluster, timeline, span = gang.cluster, self._open().timeline, (self._now, self._until(job))
        timeline.requester = self._requester(job)
        timeline.profiles.of_all(cluster.machines)  # with what is free before
        parts = gang.take(self._place, closed, tasks)
        held = [part.held_on(cluster) for part in parts]
        for _, machine, wants in held:
            timeline.try_out(machine, span, wants, -1)
        delays = any(
            timeline.seen(machine).least(*span)[at] < 0 for _, machine, wants in held for at, _ in wants
        )
        for _, machine, wants in held:
            timeline.try_out(machine, span, wants, 1)
        return gang.undo(parts) if delays else parts

    def is_blocked(self, job: Job, lane: Lane) -> bool:
        """Return False: a job may start where others of its lane may not."""
        del job, lane
        return False

    def block(self, lane: Lane) -> bool:
        """Note a job that would have fitted without reservations; return whether to try the next one of its lane."""
        super().block(lane)
        self.looks -= 1
        return self.looks > 0

    def took(self, job: Job, held: tuple[HeldCapacity, ...]) -> None:
        """Record the expected end of a job that was just placed."""
        super().took(job, held)
        if self._booker is not None:
            self._begin(self._booker.timeline, held, self._until(job))

    def made(self) -> list[tuple[JobId, Span]]:
        """Make the reservations that are left, and return all of them, in the order of the queue."""
        while self._book_next(None):
            pass
        return [
            (
                job,
                Span(
                    each.start,
                    each.end,
                    each.cluster.name,
                    tuple(share.machine.name for share in each.shares),
                ),
            )
            for job, each in self._bookings
        ]

    def _book_next(self, spot: Entry | None) -> bool:
        """Make the reservations of the next parked job, if it is ahead of `spot`; return whether there was one."""
        parked = self._parked
        if not parked or (spot is not None and parked[0][0] >= spot) or self.is_full:
            return False
        entry, serial, lane, following = parked[0]
        succeeding = None if following is None else next(following, None)
        if succeeding is None:
            heapq.heappop(parked)
        else:
            heapq.heapreplace(parked, (succeeding, serial, lane, following))
        job = self._index.state.jobs.get(entry[2])
        if job is None or type(job.phase) is not Queued:
            return True  # it has left since a cycle before this one
        booker, runtime = self._open(), self._runtime(job)
        needed = 0 if job.id in self._booked else min(self._due(job), self._left)
        self._booked[job.id] = None
        for _ in range(needed):
            booking = booker.book(lane, runtime, self._now + 1, self._requester(job))
            if booking is None:
                break
            self._bookings.append((job.id, booking))
            self._left -= 1
        return True

    def _open(self) -> Booker:
        """Return the booker, and open its timeline when it is first needed."""
        if self._booker is None:
            self._booker = self._new_booker()
        return self._booker

    def _requester(self, job: Job) -> Requester:
        """Return for whom the timeline looks at machines with windows."""
        return self._index.requester(job) if self._index.windowed else NO_ACCESS
