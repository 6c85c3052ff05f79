"""Amounts of resources: what a task asks for, and what a machine has."""

from typing import Final, Self, TypeAlias

from msgspec import Struct

from spillover.model.units import format_cpu, format_memory

Others: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted; no amount is 0."""
IN_BYTES: Final = ("hugepages-", "ephemeral-storage")
"""Prefixes of names of resources that are counted in bytes."""


class Resources(Struct, frozen=True, array_like=True, gc=False):
    """An amount of each resource; in a job, that of one task."""

    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes."""
    gpu: int = 0
    """Whole GPUs."""
    other: Others = ()
    """Other resources, sorted by name, such as `hugepages-2Mi` in bytes or `example.com/fpga` as a count."""

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
        """Return the resources of several tasks together."""
        other = tuple([(name, amount * count) for name, amount in self.other]) if self.other else ()
        return Resources(self.cpu * count, self.memory * count, self.gpu * count, other)

    def fits(self, room: Self) -> bool:
        """Return whether this fits into `room`."""
        return (
            self.cpu <= room.cpu
            and self.memory <= room.memory
            and self.gpu <= room.gpu
            and (not self.other or covers(room.other, self.other))
        )

    def exceeding(self, room: Self) -> list[tuple[str, int, int]]:
        """Return each resource of which this has more than `room`: its name, and the amounts of both."""
        has = dict(room.other)
        pairs = [
            ("cpu", self.cpu, room.cpu),
            ("memory", self.memory, room.memory),
            ("gpu", self.gpu, room.gpu),
            *[(name, amount, has.get(name, 0)) for name, amount in self.other],
        ]
        return [pair for pair in pairs if pair[1] > pair[2]]

    def within(self, most: int) -> "Resources":
        """Clamp every amount to 0 and `most`, because sums of reported amounts must fit into the store."""
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
        parts += [format_amount(name, amount) for name, amount in self.other]
        return ", ".join(parts)


def summed(one: Others, more: Others, sign: int = 1) -> Others:
    """Return the sum, or with sign -1 the difference, without zero amounts."""
    total = dict(one)
    for name, amount in more:
        total[name] = total.get(name, 0) + sign * amount
    return tuple(sorted((name, amount) for name, amount in total.items() if amount))


def covers(room: Others, asked: Others) -> bool:
    """Return whether there is enough of each requested resource."""
    have = dict(room)
    return all(amount <= have.get(name, 0) for name, amount in asked)


def format_amount(name: str, amount: int) -> str:
    """Format an amount of a resource with its name; resources that are counted in bytes get a unit."""
    match name:
        case "cpu":
            return f"{format_cpu(amount)} CPU"
        case "memory":
            return format_memory(amount)
        case "gpu":
            return f"{amount} GPU"
    return f"{format_memory(amount) if name.startswith(IN_BYTES) else amount} {name}"
