"""What a timeline is told and asked, and what it answers: releases, requests of jobs, and bookings of spans of time."""

from typing import NamedTuple

from msgspec import Struct

from spillover.deciding.capacity.amounts import Wants, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Group
from spillover.deciding.capacity.machine import Machine
from spillover.model.job import Shape


class Release(Struct, frozen=True, gc=False):
    """Capacity that is expected to become free."""

    at: int
    """Nanoseconds UTC."""
    held: Group


class Share(NamedTuple):
    """Some tasks of a job on one machine."""

    machine: Machine
    wants: Wants
    """The resources of one task."""
    tasks: int
    number: int = 0
    """Which part of the job they are of, as a position in `Shape.parts`."""
    whole: bool = False
    """Whether the job has the machine for itself."""
    inside: Wants = ()
    """What these tasks take together of what is inside of the machine."""

    @property
    def held(self) -> Wants:
        """What these tasks hold together."""
        return self.machine.whole if self.whole else (*times(self.wants, self.tasks), *self.inside)


class Booking(NamedTuple):
    """A span of time on machines of one cluster."""

    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    cluster: Capacity
    shares: tuple[Share, ...]


class Ask(NamedTuple):
    """What a job asks of one cluster."""

    candidates: Candidates
    """Where a task of the first part of a gang fits now."""
    others: tuple[Candidates, ...] = ()
    """Where tasks of its other parts fit now; empty if all tasks are alike."""
    whole: Shape | None = None
    """The shape of all parts; None if all tasks are alike."""

    @property
    def shape(self) -> Shape:
        """The shape of the whole job."""
        return self.whole or self.candidates.shape
