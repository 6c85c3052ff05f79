"""Copies the scheduling index for a snapshot of the state. Each part is copied on first use."""

from collections.abc import Callable
from typing import Any, Final

from spillover.core.state import State
from spillover.deciding.capacity.finding import Finder
from spillover.deciding.forecast.ends import Ends
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane, LightestLanes
from spillover.deciding.queue.limits import NO_LIMITS
from spillover.deciding.queue.waiting import WaitQueue


class IndexSnapshot(SchedulingIndex):
    """A copy of a live index on its own state. Changes to one do not affect the other."""

    def __init__(self, live: SchedulingIndex, state: State) -> None:
        # Skip SchedulingIndex.__init__, which would build the index from all jobs.
        for name, value in vars(live).items():
            if name not in _PARTS:
                setattr(self, name, value)
        self.state = state
        self.kept = None  # it is about the machines of the live index
        self.rents_after = 0  # who asks what would be planned wants to know it now
        self.imagined = {}  # another thread may use the snapshot
        # After the others, because `live` may be a snapshot too and has these as well.
        self._live = live
        self._own_lanes: dict[Lane, Lane] = {}
        self._scrap = None

    def __getattr__(self, name: str) -> Any:
        """Copy a part on first use."""
        part = _PARTS.get(name)
        if part is None:
            raise AttributeError(name)
        value = part(self, self._live)
        setattr(self, name, value)
        return value

    def copy_all(self) -> None:
        """Copy every part, so that the live index is no longer needed."""
        for name in _PARTS:
            getattr(self, name)

    def own_lane(self, lane: Lane) -> Lane:
        """Return the copy of a lane."""
        own = self._own_lanes.get(lane)
        if own is None:
            use = self.queue_use
            limits = NO_LIMITS if use is None else use.of(lane.kind.queue, lane.user)
            own = self._own_lanes[lane] = lane.copy(limits)
        return own


def _ends(own: IndexSnapshot, live: SchedulingIndex) -> Ends | None:
    if live.ends is None:
        return None
    ends = Ends(own.state, own.capacity, own.runs)
    ends.copy_from(live.ends)
    return ends


def _wait_queue(own: IndexSnapshot, live: SchedulingIndex) -> WaitQueue | None:
    waiting = live.wait_queue
    return None if waiting is None else waiting.copy(own.state, own.entry, own.runs, own.ranking)


def _queue(own: IndexSnapshot, live: SchedulingIndex) -> Any:
    queue = own.new_queue(own.is_queued)
    queue.copy_from(live.queue, own.own_lane)
    return queue


def _due(own: IndexSnapshot, live: SchedulingIndex) -> Any:
    queue = own.new_queue(own.is_due)
    queue.copy_from(live.due, own.own_lane)
    return queue


_PARTS: Final[dict[str, Callable[[IndexSnapshot, SchedulingIndex], Any]]] = {
    "aside": lambda _, live: live.aside.copy(),
    "lanes": lambda own, live: {kind: own.own_lane(lane) for kind, lane in live.lanes.items()},
    "least": lambda own, live: LightestLanes([(cpu, own.own_lane(lane)) for cpu, lane in live.least.heap]),
    "ranking": lambda own, live: None if live.ranking is None else live.ranking.copy(own.state),
    "queue": _queue,
    "due": _due,
    "capacity": lambda _, live: {name: cluster.copy() for name, cluster in live.capacity.items()},
    "finder": lambda own, live: Finder(own.capacity, near=live.policies.keeps_near),
    "limited": lambda own, _: [each.limits for each in own.capacity.values() if each.limits is not None],
    "grown": lambda own, live: [
        (cluster, cluster.slots[machine.index])
        for cluster, machine in ((own.capacity[each.name], machine) for each, machine in live.grown)
    ],
    "queue_use": lambda _, live: None if live.queue_use is None else live.queue_use.copy(),
    "waits": lambda own, live: live.waits.copy(own.state),
    "fresh": lambda own, live: live.fresh.copy_for(own.state),
    "turns": lambda own, live: live.turns.copy(own.state),
    "alarms": lambda own, live: live.alarms.copy(own.state),
    "ends": _ends,
    "wait_queue": _wait_queue,
    "prefetched": lambda own, live: live.prefetched.copy(own.state),
    "holders": lambda own, live: live.holders.copy(own.state),
    "rest": lambda own, live: [
        own.state.jobs[job.id] for job in live.rest if live.state.jobs.get(job.id) is job
    ],
}
"""The mutable parts of an index, and how each is copied."""
