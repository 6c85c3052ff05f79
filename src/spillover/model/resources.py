"""What a task asks for and what a machine has."""

from typing import Final, Self, TypeAlias

from msgspec import Struct

from spillover.model.units import format_cpu, format_memory

Others: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by the names of resources, sorted; none is 0."""
IN_BYTES: Final = ("hugepages-", "ephemeral-storage")
"""How names begin of what is counted in bytes."""


class Resources(Struct, frozen=True, array_like=True, gc=False):
    """An amount of each resource; of a job file it is that of one task."""

    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes."""
    gpu: int = 0
    """Whole GPUs."""
    other: Others = ()
    """What else there is, by name and sorted: as `hugepages-2Mi` in bytes or `example.com/fpga` in whole ones."""

    def __add__(self, more: Self) -> "Resources":
        other = self.other
        if more.other:
            other = summed(other, more.other)
        return Resources(self.cpu + more.cpu, self.memory + more.memory, self.gpu + more.gpu, other)

    def __sub__(self, less: Self) -> "Resources":
        other = self.other
        if less.other:
            other = summed(other, less.other, -1)
        return Resources(self.cpu - less.cpu, self.memory - less.memory, self.gpu - less.gpu, other)

    def times(self, count: int) -> "Resources":
        """What so many tasks ask for together."""
        other = tuple([(name, amount * count) for name, amount in self.other]) if self.other else ()
        return Resources(self.cpu * count, self.memory * count, self.gpu * count, other)

    def fits(self, room: Self) -> bool:
        """Whether a machine with this much room can take it."""
        return (
            self.cpu <= room.cpu
            and self.memory <= room.memory
            and self.gpu <= room.gpu
            and (not self.other or covers(room.other, self.other))
        )

    def within(self, most: int) -> "Resources":
        """The same, with no amount below 0 or above so many: sums of what others say must fit into what is stored."""
        amounts = (self.cpu, self.memory, self.gpu, *[amount for _, amount in self.other])
        if min(amounts) >= 0 and max(amounts) <= most:
            return self
        cpu, memory, gpu = [min(most, max(0, amount)) for amount in amounts[:3]]
        other = [(name, min(most, amount)) for name, amount in self.other if amount > 0]
        return Resources(cpu, memory, gpu, tuple(other))

    def __str__(self) -> str:
        parts = [f"{format_cpu(self.cpu)} CPU"]
        if self.memory:
            parts.append(format_memory(self.memory))
        if self.gpu:
            parts.append(f"{self.gpu} GPU")
        parts += [f"{_format_other(name, amount)} {name}" for name, amount in self.other]
        return ", ".join(parts)


def summed(one: Others, more: Others, sign: int = 1) -> Others:
    """The sum, or with -1 the difference; what comes to nothing is left out."""
    total = dict(one)
    for name, amount in more:
        total[name] = total.get(name, 0) + sign * amount
    return tuple(sorted((name, amount) for name, amount in total.items() if amount))


def covers(room: Others, asked: Others) -> bool:
    """Whether there is enough of everything that is asked for."""
    have = dict(room)
    return all(amount <= have.get(name, 0) for name, amount in asked)


def _format_other(name: str, amount: int) -> str:
    """An amount for people: bytes of what is counted in bytes."""
    return format_memory(amount) if name.startswith(IN_BYTES) else str(amount)
