"""The emptiest machine, so that every job has room around it."""

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class WorstFit:
    """Most free GPUs first, or most free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """What is free of the resource that is asked for, turned round."""
        return -machine.gpu if shape.resources.gpu else -machine.cpu
