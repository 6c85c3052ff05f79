"""One agent after the other."""

from collections.abc import Sequence

from spillover.deciding.protocols import Queue


class RoundRobin:
    """Whoever has gone the longest without a lease ahead of room."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """The one whose last turn is the oldest."""
        del agents, seed
        return min(queues, key=lambda queue: queue.turn)
