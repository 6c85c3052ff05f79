"""Place policies: which candidate machine gets a task."""

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class FirstFit:
    """Takes machines in the order in which they joined."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the same score for all machines, so that their order decides."""
        del machine, shape
        return 0


class BestFit:
    """Takes the machine with the fewest free GPUs, or the fewest free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return what is free of the requested resource."""
        return machine.gpu if shape.resources.gpu else machine.cpu


class WorstFit:
    """Takes the machine with the most free GPUs, or the most free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the negative amount that is free of the requested resource."""
        return -machine.gpu if shape.resources.gpu else -machine.cpu


WHOLE = 10**6
"""The unit of shares: millionths."""


class SpreadOut:
    """Takes the machine with the smallest used share of GPUs, or of CPUs for a job without GPUs.

    A half-used machine with 8 GPUs comes after an unused one with 2, while worst fit takes the one with 4 free.
    """

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return the used share of the requested resource, in millionths."""
        total = machine.total
        free, whole = (machine.gpu, total.gpu) if shape.resources.gpu else (machine.cpu, total.cpu)
        return WHOLE - free * WHOLE // whole if whole else WHOLE
