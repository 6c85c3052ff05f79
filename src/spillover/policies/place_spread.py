"""Load that is even over machines, whatever their sizes."""

from spillover.model.job import Shape
from spillover.model.resources import Resources

WHOLE = 10**6
"""What the share of a machine is counted in."""


class Spread:
    """The smallest used share of GPUs first, or of CPUs for a job without GPUs.

    A half-used machine of 8 GPUs comes after an unused one of 2, where worst fit takes the one with 4 free.
    """

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape, total: Resources) -> int:
        """Used millionths of what the machine has of the resource that is asked for."""
        del memory
        free, whole = (gpu, total.gpu) if shape.resources.gpu else (cpu, total.cpu)
        return WHOLE - free * WHOLE // whole if whole else WHOLE
