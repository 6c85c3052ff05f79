"""Which task may use which GPU.

A task sees its own through CUDA_VISIBLE_DEVICES and the like, which the libraries of the makers heed. Nothing else keeps it from the
others.
"""

from msgspec.structs import replace

from spillover.agent.values import Task
from spillover.core.events import Lease


class Devices:
    """Who has which GPU of one agent."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._names = names
        self._free = list(names)
        self._held: dict[Lease | int, list[str]] = {}
        """By lease, or by the slot that tasks share which run one after the other."""
        self._holders: dict[Lease, Lease | int] = {}

    def assign(self, lease: Lease, task: Task, slot: int) -> Task:
        """The task, told which GPUs are its own; it must have room."""
        if not self._names:
            return task
        holder = lease if slot < 0 else slot
        if holder not in self._held:
            count = task.need.gpu
            self._held[holder], self._free = self._free[:count], self._free[count:]
        self._holders[lease] = holder
        own = ",".join(self._held[holder])
        shown = {
            "CUDA_VISIBLE_DEVICES": own,
            "NVIDIA_VISIBLE_DEVICES": own or "void",
            "ROCR_VISIBLE_DEVICES": own,
        }
        return replace(task, env=task.env | shown)

    def release(self, lease: Lease) -> None:
        """A task is over; what it had is free unless another one of its slot has it too."""
        holder = self._holders.pop(lease, None)
        if holder is not None and holder not in self._holders.values():
            self._free += self._held.pop(holder)
            self._free.sort(key=self._names.index)  # the lowest first, so that it can be foreseen
