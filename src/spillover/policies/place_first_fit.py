"""The first machine with room."""

from spillover.model.job import Shape
from spillover.model.resources import Resources


class FirstFit:
    """Machines in the order in which they joined."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape, total: Resources) -> int:
        """All the same: the order decides."""
        del cpu, memory, gpu, shape, total
        return 0
