"""Place policies: which candidate machine gets a task."""

import re
from functools import lru_cache
from typing import Final

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class FirstFit:
    """Takes machines in the order in which they joined."""

    by_free = True
    """Whether machines with the same free amounts have the same score."""
    by_state = True
    """Whether machines of the same capacity with the same amounts free, but for memory, have the same score."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the same score for all machines, so that their order decides."""
        del machine, shape
        return 0


class BestFit:
    """Takes the machine with the fewest free GPUs, or the fewest free CPUs for a job without GPUs."""

    by_free = True
    """Whether machines with the same free amounts have the same score."""
    by_state = True
    """Whether machines of the same capacity with the same amounts free, but for memory, have the same score."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return what is free of the requested resource."""
        return machine.gpu if shape.resources.gpu else machine.cpu


class WorstFit:
    """Takes the machine with the most free GPUs, or the most free CPUs for a job without GPUs."""

    by_free = True
    """Whether machines with the same free amounts have the same score."""
    by_state = True
    """Whether machines of the same capacity with the same amounts free, but for memory, have the same score."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the negative amount that is free of the requested resource."""
        return -machine.gpu if shape.resources.gpu else -machine.cpu


WHOLE = 10**6
"""The unit of shares: millionths."""


class SpreadOut:
    """Takes the machine with the smallest used share of GPUs, or of CPUs for a job without GPUs.

    A half-used machine with 8 GPUs comes after an unused one with 2, while worst fit takes the one with 4 free.
    """

    by_state = True
    """Whether machines of the same capacity with the same amounts free, but for memory, have the same score."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the used share of the requested resource, in millionths."""
        total = machine.total
        free, whole = (machine.gpu, total.gpu) if shape.resources.gpu else (machine.cpu, total.cpu)
        return WHOLE - free * WHOLE // whole if whole else WHOLE


class Pack(SpreadOut):
    """Takes the machine with the largest used share of GPUs, or of CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the free share of the requested resource, in millionths."""
        return WHOLE - super().score(machine, shape)


class Locality(BestFit):
    """Puts the tasks of a gang on one machine, in one rack or in one zone, whichever is first to have room for all.

    Where none has, it uses as few racks as possible. Single tasks go where they fit best.
    """

    near = True


class Low:
    """Takes the machine whose name comes first, with numbers in names in their own order: n2 before n10."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the position of its name among all names."""
        del shape
        return position_of(machine.name)


class High:
    """Takes the machine whose name comes last, with numbers in names in their own order: n10 before n2."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the negative position of its name among all names."""
        del shape
        return -position_of(machine.name)


_WIDTH: Final = 512
"""Bytes of a position. Names are shorter, also those of racks with their zones before them."""
_NUMBERS: Final = re.compile(rb"[0-9]+")


@lru_cache(maxsize=65_536)
def position_of(name: str) -> int:
    """Return a number that sorts names as people do: numbers in them by their value, all else by its bytes."""
    # The length before a number makes longer ones sort later; the "0" keeps numbers where digits are among other bytes.
    text = _NUMBERS.sub(_weighed, name.encode())
    return int.from_bytes(text[:_WIDTH].ljust(_WIDTH, b"\0"))


def _weighed(number: re.Match[bytes]) -> bytes:
    """Return a number with its length before it, without leading zeros."""
    digits = number.group().lstrip(b"0")
    return b"0" + len(digits).to_bytes(2) + digits
