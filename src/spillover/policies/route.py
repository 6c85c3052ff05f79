"""Route policies: which agent gets a prefetched lease."""

from collections.abc import Sequence

from spillover.deciding.cycle.draws import two_of
from spillover.deciding.protocols import Queue


class LeastLoaded:
    """Picks the agent with room for the most prefetched leases; among equals, the one that joined first."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Return the agent with the most room in its queue."""
        del agents, seed
        best = queues[0]
        for queue in queues:
            if queue.ahead > best.ahead:
                best = queue
        return best


class RoundRobin:
    """Picks the agent that has gone longest without a prefetched lease."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Return the agent whose last prefetched lease is the oldest."""
        del agents, seed
        return min(queues, key=lambda queue: queue.turn)


class PowerOfTwo:
    """Picks the less loaded of two random agents, which is nearly as even as comparing all of them."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Return the one of two agents that has less prefetched work."""
        del agents
        first, second = two_of(len(queues), seed)
        return queues[first] if queues[first].load <= queues[second].load else queues[second]


WHOLE = 10**6


class Biased:
    """Prefers a share of the agents, those that joined first, while they take leases; then uses the others."""

    def __init__(self, share: float = 0.25) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share is {share}; write a number above 0, up to 1")
        self._share = round(share * WHOLE)

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Return the agent with the least prefetched work among the preferred ones, or else among all."""
        del seed
        preferred = -(-agents * self._share // WHOLE)  # rounded up: at least one
        return min(queues, key=lambda queue: (queue.index >= preferred, queue.load))
