"""Some agents before the others."""

from collections.abc import Sequence

from spillover.deciding.protocols import Queue

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
