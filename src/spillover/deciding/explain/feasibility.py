"""Tells requests that no cluster can ever hold from those that only have to wait.

It counts every known node, whatever its state and the release of its agent, and as if nothing ran there. A cluster of which no node is known yet may
still hold anything.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.matching import most_ever
from spillover.deciding.explain.refusals import (
    gang_too_big,
    largest_of,
    never_rented,
    never_suits,
    too_big_inside,
    without_inside,
)
from spillover.deciding.renting.offers import offers_for
from spillover.model.cluster import ClusterSpec
from spillover.model.job import Shape
from spillover.model.reasons import GangTooBig, NoSuchLevel, Reason, TooBig, TooBigInside

TooLarge: TypeAlias = TooBig | TooBigInside | GangTooBig | NoSuchLevel
"""Why a request can never be held."""
MOST_HELD: Final = 4096
"""Shapes to remember."""


class Feasibility:
    """Remembers shapes that some cluster can hold, until a node changes. Most submissions are of such shapes."""

    def __init__(self) -> None:
        self._held: dict[Shape, None] = {}
        self._seen: list[tuple[Capacity, ClusterSpec, int]] = []
        """The clusters, each with the count of changes of its nodes."""

    def too_large(self, clusters: Collection[Capacity], shape: Shape) -> TooLarge | None:
        """See `too_large`."""
        seen = [(each, each.spec, each.turns) for each in clusters]
        if seen != self._seen or len(self._held) >= MOST_HELD:
            self._seen, self._held = seen, {}
        if shape in self._held:
            return None
        reason = too_large(clusters, shape)
        if reason is None:
            self._held[shape] = None
        return reason


def too_large(clusters: Iterable[Capacity], shape: Shape) -> TooLarge | None:
    """Return why no cluster can ever hold jobs of a shape, from the one that comes closest; None if one may."""
    sizes: list[TooLarge] = []
    for cluster in clusters:
        reason = _why_never(cluster, shape)
        if reason is None:
            return None
        if isinstance(reason, TooBig | TooBigInside | GangTooBig | NoSuchLevel):
            sizes.append(reason)
    return _nearest(sizes)


def _why_never(cluster: Capacity, shape: Shape) -> Reason | None:  # noqa: PLR0911 - one for each answer
    """Return why a cluster can never hold a job; None if it may, or if it lacks something other than size."""
    if (never := never_suits(cluster, shape)) is not None:
        return never
    if cluster.spec.pool is not None and not offers_for(cluster.spec, shape):
        return never_rented(cluster, shape)
    if not cluster.machines or cluster.spec.pool is not None:
        return None
    # Most jobs fit on the first machine that is looked at.
    if shape.tasks == 1:
        if any(machine.could_fit(shape) for machine in cluster.machines):
            return None
    elif (most := most_ever(cluster, shape, upgraded=True)) >= shape.tasks:
        return None
    elif most and all(
        any(machine.could_fit(part) for machine in cluster.machines) for _, part in shape.parts
    ):
        return gang_too_big(cluster, shape, most)
    if (inside := too_big_inside(cluster.machines, shape)) is not None:
        return inside
    flat = without_inside(shape)
    wanted = [machine for machine in cluster.machines if machine.admits(flat, upgraded=True)]
    for _, part in flat.parts if wanted else ():
        if not any(machine.could_fit(part) for machine in wanted):
            return TooBig(part.resources, largest_of(wanted, part.resources))
    return None


def _nearest(reasons: list[TooLarge]) -> TooLarge | None:
    """Return the reason of the cluster that could hold the most of a request."""
    gangs = [reason for reason in reasons if isinstance(reason, GangTooBig)]
    if gangs:
        return max(gangs, key=lambda reason: reason.most)
    # A machine that is large enough as a whole comes closer than one that is too small.
    inside = [reason for reason in reasons if isinstance(reason, TooBigInside)]
    if inside:
        return max(inside, key=lambda reason: (reason.gpus, reason.cpus))
    single = [reason for reason in reasons if isinstance(reason, TooBig)]
    if single:
        return max(single, key=lambda reason: (reason.largest.gpu, reason.largest.cpu, reason.largest.memory))
    levels = [reason for reason in reasons if isinstance(reason, NoSuchLevel)]
    if not levels:
        return None
    known = dict.fromkeys(level for reason in levels for level in reason.known)
    return NoSuchLevel(levels[0].level, tuple(known))
