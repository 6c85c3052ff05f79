"""The emptiest machine, so that every job has room around it."""

from spillover.model.job import Shape
from spillover.model.resources import Resources


class WorstFit:
    """Most free GPUs first, or most free CPUs for a job without GPUs."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape, total: Resources) -> int:
        """What is free of the resource that is asked for, turned round."""
        del memory, total
        return -gpu if shape.resources.gpu else -cpu
