"""Reasons why a job runs where it runs."""

from spillover.model.reasons.base import NotNow
from spillover.model.units import (
    format_duration,
)


class RoomOwned(NotNow, frozen=True, tag="room_owned"):
    """It was placed on owned capacity because there was room."""

    def __str__(self) -> str:
        return "owned capacity had room"


class RoomSoon(NotNow, frozen=True, tag="room_soon"):
    """An agent prefetched it, whose tasks are so short that it has room by the time the message arrives."""

    def __str__(self) -> str:
        return "owned capacity was about to have room"


class WaitOver(NotNow, frozen=True, tag="wait_over"):
    """It was rented because its wait was over."""

    waited: int
    """Nanoseconds."""

    def __str__(self) -> str:
        return f"its wait ended after {format_duration(self.waited)}"


class NotInTime(NotNow, frozen=True, tag="not_in_time"):
    """It was rented because it was not expected to start on owned capacity while waiting was worth it."""

    within: int
    """Nanoseconds within which it should have started."""

    def __str__(self) -> str:
        return f"owned capacity was not expected to have room within {format_duration(self.within)}, the longest worthwhile wait"


class RoomPaid(NotNow, frozen=True, tag="room_paid"):
    """It was rented because a rented machine that is paid for anyway had room, and owned capacity was not expected to have any soon."""

    within: int
    """Nanoseconds within which it should have started on owned capacity."""

    def __str__(self) -> str:
        return f"a rented machine that is paid for anyway had room, and owned capacity was not expected to have any within {format_duration(self.within)}"


class QueueFull(NotNow, frozen=True, tag="queue_full"):
    """It was rented because its position in the queue was beyond `max_queue`."""

    def __str__(self) -> str:
        return "the queue was longer than max_queue"


class AlwaysRented(NotNow, frozen=True, tag="always_rented"):
    """It was rented because it has `burst: always`."""

    def __str__(self) -> str:
        return "it has `burst: always`"


class OnlyRented(NotNow, frozen=True, tag="only_rented"):
    """It was rented at once because its `where` rules out all owned clusters."""

    def __str__(self) -> str:
        return "its `where` rules out all owned clusters"
