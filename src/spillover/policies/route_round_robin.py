"""One agent after the other."""

from collections.abc import Sequence

from spillover.deciding.protocols import Queue


class RoundRobin:
    """Whoever has gone the longest without a prefetched lease."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """The one whose last turn is the oldest."""
        del agents, seed
        return min(queues, key=lambda queue: queue.turn)
