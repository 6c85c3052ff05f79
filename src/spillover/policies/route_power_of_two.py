"""The less loaded of two drawn."""

from collections.abc import Sequence

from spillover.deciding.cycle.draws import two_of
from spillover.deciding.protocols import Queue


class PowerOfTwo:
    """Nearly as even as looking at all of them, and servers that decide at one time do not all choose the same."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Of two, the one that has less prefetched work."""
        del agents
        first, second = two_of(len(queues), seed)
        return queues[first] if queues[first].load <= queues[second].load else queues[second]
