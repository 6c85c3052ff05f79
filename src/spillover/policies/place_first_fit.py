"""The first machine with room."""

from spillover.deciding.protocols import MachineView
from spillover.model.job import Shape


class FirstFit:
    """Machines in the order in which they joined."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """All the same: the order decides."""
        del machine, shape
        return 0
