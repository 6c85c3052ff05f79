"""Tasks of an agent that have not started: they wait for room, are being fetched, or wait for the rest of their gang."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spillover.agent.leases.preparing import GangTasks
from spillover.agent.leases.room import Room
from spillover.agent.leases.values import Grant, Instruction, Prefetch, Source, Task
from spillover.core.events import Lease


class UnstartedTasks:
    """The leases of such tasks, and how they are given back."""

    def __init__(self, room: Room, gangs: GangTasks, released: dict[Lease, None]) -> None:
        self._room = room
        self._gangs = gangs
        self._released = released
        """Leases to give back with the next report."""
        self.waiting: dict[Lease, Task] = {}
        """In order of arrival."""
        self.fetching: dict[Lease, Source] = {}
        """Leases taken over from other agents, whose task has not arrived yet."""

    def __iter__(self) -> Iterator[Lease]:
        """Yield all leases, which may be dropped meanwhile."""
        return iter((*self.waiting, *self.fetching, *self._gangs.preparing))

    def __contains__(self, lease: Lease) -> bool:
        return lease in self.waiting or lease in self.fetching or lease in self._gangs.preparing

    def __bool__(self) -> bool:
        return bool(self.waiting or self.fetching or self._gangs.preparing)

    def put_first(self, tasks: Mapping[Lease, Task]) -> None:
        """Put tasks in front of those that wait."""
        others = self.waiting.copy()
        self.waiting.clear()
        self.waiting.update(tasks)
        self.waiting.update(others)

    def drop(self, now: int, lease: Lease) -> bool:
        """Remove a lease; return False if there is none."""
        if (task := self._gangs.drop(lease)) is not None:
            self._room.leave(lease, task, now)
            return True
        waited = self.waiting.pop(lease, None) is not None
        return self.fetching.pop(lease, None) is not None or waited

    def hand_back(self, now: int, leases: Iterable[Lease]) -> None:
        """Give back those of these leases that have not started."""
        for lease in leases:
            if self.drop(now, lease):
                self._released[lease] = None

    def prefetched(self, grants: Sequence[Grant]) -> list[Instruction]:
        """Prefetch the inputs of tasks that must wait."""
        return [
            Prefetch(grant.task)
            for grant in grants
            if grant.task is not None and grant.task.files and grant.lease in self.waiting
        ]
