"""Tracks the free capacity of an agent: CPUs and memory, GPUs by name, and slots that short tasks share."""

from spillover.agent.leases.chains import Chains
from spillover.agent.leases.devices import Devices
from spillover.agent.leases.values import Task
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.resources import Resources


class Room:
    """The capacity of one agent."""

    def __init__(self, capacity: Resources, devices: tuple[str, ...] = ()) -> None:
        self.capacity = capacity
        self.free = capacity
        self.chains = Chains()
        self._devices = Devices(devices)
        self._by_task: dict[tuple[JobId, int], Lease] = {}

    def holder(self, lease: Lease) -> Lease | None:
        """Return the lease under which this task runs here, in any attempt; None if it does not run."""
        return self._by_task.get((lease.job, lease.task))

    def enter(self, lease: Lease, task: Task, now: int) -> tuple[Task, int] | None:
        """Reserve capacity or a slot behind others; return the task with its GPUs, and the slot. None if full."""
        if task.need.fits(self.free):
            slot = self.chains.begin(lease, task, now)
            self.free -= task.need
        elif (behind := self.chains.join(lease, task)) is not None:
            slot = behind
        else:
            return None
        self._by_task[lease.job, lease.task] = lease
        return self._devices.assign(lease, task, slot), slot

    def gpus(self, lease: Lease) -> tuple[str, ...]:
        """Return the names of the GPUs that a task holds."""
        return self._devices.of(lease)

    def leave(self, lease: Lease, task: Task, now: int) -> None:
        """Free the capacity of a task that ended or was recalled."""
        self._devices.release(lease)
        self.free += self.chains.leave(lease, task, now)
        self._by_task.pop((lease.job, lease.task), None)
