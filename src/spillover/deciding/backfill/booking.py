"""Books capacity for waiting jobs on a timeline: each gets the first span that jobs booked before leave."""

from spillover.deciding.capacity.finding import Finder
from spillover.deciding.capacity.spans import Ask, Booking
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.capacity.windows import NO_ACCESS, Requester
from spillover.deciding.protocols import Place
from spillover.deciding.queue.lanes import Lane


class Booker:
    """Books jobs one after the other, in the order of the queue."""

    def __init__(self, timeline: Timeline, finder: Finder, place: Place) -> None:
        self.timeline = timeline
        self._finder = finder
        self._place = place

    def book(self, lane: Lane, runtime: int, since: int, requester: Requester = NO_ACCESS) -> Booking | None:
        """Book the first span for a job of a lane that does not fit before `since`; None if it never fits."""
        self.timeline.requester = requester
        booking = self.timeline.earliest(self._finder.asks(lane), runtime, self._place, since)
        if booking is not None:
            self.timeline.take(booking)
        return booking

    def now_on(
        self, ask: Ask, runtime: int, requester: Requester = NO_ACCESS, tasks: int = 0
    ) -> Booking | None:
        """Return the span for a gang on one cluster, if it can start now and delays no booked job."""
        self.timeline.requester = requester
        return self.timeline.now_on(ask, runtime, self._place, tasks)
