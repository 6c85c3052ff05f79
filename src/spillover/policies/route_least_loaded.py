"""The agent that takes the most more."""

from collections.abc import Sequence

from spillover.deciding.protocols import Queue


class LeastLoaded:
    """Whoever takes the most more leases before its prefetched work fills the horizon; among equals, whoever joined first."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """The one with the most room in its queue."""
        del agents, seed
        best = queues[0]
        for queue in queues:
            if queue.ahead > best.ahead:
                best = queue
        return best
