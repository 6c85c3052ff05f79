"""What a task asks for and what a machine has."""

from typing import Self

from msgspec import Struct

from spillover.model.units import format_cpu, format_memory


class Resources(Struct, frozen=True, array_like=True, gc=False):
    """An amount of each resource; of a job file it is that of one task."""

    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes."""
    gpu: int = 0
    """Whole GPUs."""

    def __add__(self, other: Self) -> "Resources":
        return Resources(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)

    def __sub__(self, other: Self) -> "Resources":
        return Resources(self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu)

    def fits(self, room: Self) -> bool:
        """Whether a machine with this much room can take it."""
        return self.cpu <= room.cpu and self.memory <= room.memory and self.gpu <= room.gpu

    def __str__(self) -> str:
        parts = [f"{format_cpu(self.cpu)} CPU"]
        if self.memory:
            parts.append(format_memory(self.memory))
        if self.gpu:
            parts.append(f"{self.gpu} GPU")
        return ", ".join(parts)
