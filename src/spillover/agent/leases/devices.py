"""Assigns GPUs to tasks.

A task sees its own GPUs through CUDA_VISIBLE_DEVICES and similar variables, which the vendors' libraries respect.
Nothing else keeps it from using the others.
"""

from msgspec.structs import replace

from spillover.agent.leases.values import Task
from spillover.core.events import Lease


class Devices:
    """The GPUs of one agent, and the tasks that hold them."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._names = names
        self._free = list(names)
        self._held: dict[Lease | int, list[str]] = {}
        """GPUs by lease, or by slot for tasks that run one after the other."""
        self._holders: dict[Lease, Lease | int] = {}

    def assign(self, lease: Lease, task: Task, slot: int) -> Task:
        """Return the task with variables that name its GPUs; its capacity must be free."""
        if not self._names:
            return task
        holder = lease if slot < 0 else slot
        if holder not in self._held:
            own = list(task.gpus) or self._free[: task.need.gpu]
            self._held[holder], self._free = own, [each for each in self._free if each not in own]
        self._holders[lease] = holder
        named = ",".join(self._held[holder])
        shown = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that ids mean what nvidia-smi shows
            "CUDA_VISIBLE_DEVICES": named,
            "NVIDIA_VISIBLE_DEVICES": named or "void",
            "ROCR_VISIBLE_DEVICES": named,
        }
        return replace(task, env=task.env | shown)

    def of(self, lease: Lease) -> tuple[str, ...]:
        """Return the GPUs that a task holds."""
        holder = self._holders.get(lease)
        return () if holder is None else tuple(self._held[holder])

    def release(self, lease: Lease) -> None:
        """Free the GPUs of a task, unless another task of its slot still holds them."""
        holder = self._holders.pop(lease, None)
        if holder is not None and holder not in self._holders.values():
            self._free += [each for each in self._held.pop(holder) if each in self._names]
            self._free.sort(key=self._names.index)  # the lowest first, so that assignments are predictable
