"""What a policy is: one small Protocol for each axis of the cycle. An instance is made once, from its options."""

from typing import Any, Protocol

from msgspec import Struct

from spillover.core.state import Job
from spillover.model.job import Shape
from spillover.model.policy import PolicySet


class Order(Protocol):
    """Which job is tried first."""

    def key(self, job: Job) -> Any:
        """Sorts before the key of jobs that come later; must not change while nothing of the job does.

        Equal keys are tried in the order of submission.
        """
        ...


class Backfill(Protocol):
    """What happens behind a job that does not fit."""

    strict: bool
    """Whether nothing behind it is tried."""


class Wait(Protocol):
    """How long a job waits for owned capacity before it is rented."""

    def wait(self, shape: Shape, expected: int) -> int:
        """Nanoseconds for a job that is expected to run so long; FOREVER never rents."""
        ...


class Place(Protocol):
    """Which of several machines with room is taken."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape) -> int:
        """Lowest wins, for what is free on a machine; equal scores go to the machine that was there first."""
        ...


class Policies(Struct, frozen=True):
    """One policy for each axis, ready to be asked."""

    chosen: PolicySet
    order: Order
    backfill: Backfill
    wait: Wait
    place: Place
    min_wait: int = 0
    """Nanoseconds that every job waits at the least."""
    max_wait: int | None = None
    """Nanoseconds that no job waits longer; None is no limit."""
    max_queue: int | None = None
    """Jobs past this place in the queue are rented at once; None is no limit."""

    def wait_of(self, shape: Shape, expected: int) -> int:
        """How long a job waits, with floor and cap."""
        wait = max(self.min_wait, self.wait.wait(shape, expected))
        return wait if self.max_wait is None else min(wait, self.max_wait)
