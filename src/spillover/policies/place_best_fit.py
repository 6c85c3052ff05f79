"""The fullest machine with room, so that large jobs find empty ones."""

from spillover.model.job import Shape
from spillover.model.resources import Resources


class BestFit:
    """Fewest free GPUs first, or fewest free CPUs for a job without GPUs."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape, total: Resources) -> int:
        """What is free of the resource that is asked for."""
        del memory, total
        return gpu if shape.resources.gpu else cpu
