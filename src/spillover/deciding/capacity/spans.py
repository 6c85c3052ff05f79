"""What a timeline is told and asked, and what it answers: releases, requests of jobs, and bookings of spans of time."""

from collections.abc import Iterable
from itertools import groupby
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


class Block(NamedTuple):
    """Some tasks of a job on each of several machines, the same on all. Most gangs are one or two blocks."""

    machines: tuple[Machine, ...]
    """Only one if the job has it for itself, or takes some of what is inside of it."""
    wants: Wants
    """The resources of one task."""
    tasks: int
    """On each machine."""
    number: int = 0
    """Which part of the job they are of, as a position in `Shape.parts`."""
    whole: bool = False
    """Whether the job has the machine for itself."""
    inside: Wants = ()
    """What these tasks take together of what is inside of the machine."""

    @property
    def held(self) -> Wants:
        """What these tasks hold together on one of the machines."""
        if self.whole:
            return self.machines[0].whole
        held = times(self.wants, self.tasks)
        return (*held, *self.inside) if self.inside else held


class Booking(NamedTuple):
    """A span of time on machines of one cluster."""

    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    cluster: Capacity
    blocks: tuple[Block, ...]

    @property
    def shares(self) -> list[Share]:
        """The same by machine, in the order of ranks."""
        return [
            Share(machine, wants, tasks, number, whole, inside)
            for machines, wants, tasks, number, whole, inside in self.blocks
            for machine in machines
        ]


def blocks_of(shares: Iterable[Share]) -> tuple[Block, ...]:
    """Put shares that follow each other and are alike into one block."""
    blocks: list[Block] = []
    for _, alike in groupby(shares, _likeness):
        same = list(alike)
        blocks.append(Block(tuple([share.machine for share in same]), *same[0][1:]))
    return tuple(blocks)


def _likeness(share: Share) -> tuple[object, ...]:
    return share if share.whole or share.inside else share[1:]


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
