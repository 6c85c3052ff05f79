"""On which of the machines where it fits a task runs."""

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class FirstFit:
    """Machines in the order in which they joined."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """All the same: the order decides."""
        del machine, shape
        return 0


class BestFit:
    """Fewest free GPUs first, or fewest free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """What is free of the resource that is asked for."""
        return machine.gpu if shape.resources.gpu else machine.cpu


class WorstFit:
    """Most free GPUs first, or most free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """What is free of the resource that is asked for, turned round."""
        return -machine.gpu if shape.resources.gpu else -machine.cpu


WHOLE = 10**6
"""What the share of a machine is counted in."""


class Spread:
    """The smallest used share of GPUs first, or of CPUs for a job without GPUs.

    A half-used machine of 8 GPUs comes after an unused one of 2, where worst fit takes the one with 4 free.
    """

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Used millionths of what the machine has of the resource that is asked for."""
        total = machine.total
        free, whole = (machine.gpu, total.gpu) if shape.resources.gpu else (machine.cpu, total.cpu)
        return WHOLE - free * WHOLE // whole if whole else WHOLE
