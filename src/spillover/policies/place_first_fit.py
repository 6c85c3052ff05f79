"""The first machine with room."""

from spillover.model.job import Shape


class FirstFit:
    """Machines in the order in which they joined."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape) -> int:
        """All the same: the order decides."""
        del cpu, memory, gpu, shape
        return 0
