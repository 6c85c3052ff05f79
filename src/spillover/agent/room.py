"""What of an agent is free, and which tasks have the rest: CPUs and memory, GPUs by name, and room that short tasks share."""

from spillover.agent.chains import Chains
from spillover.agent.devices import Devices
from spillover.agent.values import Task
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.resources import Resources


class Room:
    """The room of one agent."""

    def __init__(self, capacity: Resources, devices: tuple[str, ...] = ()) -> None:
        self.capacity = capacity
        self.free = capacity
        self.chains = Chains()
        self._devices = Devices(devices)
        self._by_task: dict[tuple[JobId, int], Lease] = {}

    def holder(self, lease: Lease) -> Lease | None:
        """The lease under which the same task runs here, whatever its attempt; None if it does not."""
        return self._by_task.get((lease.job, lease.task))

    def enter(self, lease: Lease, task: Task, now: int) -> tuple[Task, int] | None:
        """Give a task room of its own or behind others; the task, told what it has, and its slot. None if there is no room."""
        if task.need.fits(self.free):
            slot = self.chains.begin(lease, task, now)
            self.free -= task.need
        elif (behind := self.chains.join(lease, task)) is not None:
            slot = behind
        else:
            return None
        self._by_task[lease.job, lease.task] = lease
        return self._devices.assign(lease, task, slot), slot

    def leave(self, lease: Lease, task: Task, now: int) -> None:
        """A task is over, or is had back."""
        self._devices.release(lease)
        self.free += self.chains.leave(lease, task, now)
        self._by_task.pop((lease.job, lease.task), None)
