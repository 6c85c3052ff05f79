"""The fullest machine with room, so that large jobs find empty ones."""

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class BestFit:
    """Fewest free GPUs first, or fewest free CPUs for a job without GPUs."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """What is free of the resource that is asked for."""
        return machine.gpu if shape.resources.gpu else machine.cpu
