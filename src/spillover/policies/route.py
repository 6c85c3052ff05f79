"""Which agent prefetches a lease."""

from collections.abc import Sequence

from spillover.deciding.cycle.draws import two_of
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


class RoundRobin:
    """Whoever has gone the longest without a prefetched lease."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """The one whose last turn is the oldest."""
        del agents, seed
        return min(queues, key=lambda queue: queue.turn)


class PowerOfTwo:
    """Nearly as even as looking at all of them, and servers that decide at one time do not all choose the same."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Of two, the one that has less prefetched work."""
        del agents
        first, second = two_of(len(queues), seed)
        return queues[first] if queues[first].load <= queues[second].load else queues[second]


WHOLE = 10**6


class Biased:
    """The agents that joined first, a share of all, get leases for as long as they take any; then the others do."""

    def __init__(self, share: float = 0.25) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share is {share}; write a number above 0, up to 1")
        self._share = round(share * WHOLE)

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Of those that are preferred, or else of all, the one that has the least prefetched work."""
        del seed
        preferred = -(-agents * self._share // WHOLE)  # rounded up: at least one
        return min(queues, key=lambda queue: (queue.index >= preferred, queue.load))
