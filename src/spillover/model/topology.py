"""Levels of a cluster, such as zones and racks, and what a job asks of them.

Labels of nodes say where a node is. The configuration of a cluster says which labels are levels, and in which order.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from spillover.model.where import NODE_NAME, NodeTerm, Requirement

NODE: Final = "node"
"""The lowest level, which every cluster has: each node is a vertex of its own."""


class Level(Struct, frozen=True, array_like=True, gc=False):
    """One level of a cluster above its nodes."""

    name: str
    label: str
    """The label of nodes whose value names the vertex of this level that a node is in."""


class Topology(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """Where the tasks of one job must be, relative to each other and to other jobs."""

    within: str = ""
    """The level of which one vertex holds all tasks; empty is any."""
    preferred: bool = False
    """Whether `within` is a wish, so that the tasks start elsewhere if no vertex has room for all."""
    spread: str = ""
    """The level over which tasks are spread; empty is none."""
    most: int = 1
    """The most tasks in one vertex of `spread`."""
    exact: bool = False
    """Whether each vertex of `spread` that is used gets exactly `most` tasks; only for nodes."""
    exclusive: bool = False
    """Whether no other job may use a node while a task of this one is there."""
    pin: str = ""
    """Whether each task has whole cores for itself: `core`, or all in one `numa` node or `socket`; empty is no."""
    link: str = ""
    """The kind of link between the GPUs of a task, or `any`; empty is none."""

    @property
    def asks_inside(self) -> bool:
        """Whether it asks for something inside of machines."""
        return bool(self.pin or self.link)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels above nodes that a cluster must have."""
        asked = (self.within if not self.preferred else "", self.spread)
        return tuple([level for level in asked if level not in {"", NODE}])


def vertex_of(
    within: str, levels: Sequence[Level], nodes: Mapping[str, Mapping[str, str]]
) -> NodeTerm | None:
    """Return what only the nodes of the vertex fulfil that has all of these; None if no vertex of a level has all.

    `nodes` are the labels of each, by name.
    """
    if within == NODE:
        return NodeTerm((), (Requirement(NODE_NAME, "In", tuple(nodes)),)) if len(nodes) == 1 else None
    names = [level.name for level in levels]
    if within not in names:
        return None
    # Racks of the same name in different zones are different racks, so all levels above count.
    path = [level.label for level in levels[: names.index(within) + 1]]
    keys = {tuple([labels.get(label, "") for label in path]) for labels in nodes.values()}
    key = keys.pop() if len(keys) == 1 else ()
    if not key or not key[-1]:
        return None
    parts = zip(path, key, strict=True)
    return NodeTerm(
        tuple(
            [
                Requirement(*((label, "In", (value,)) if value else (label, "DoesNotExist")))
                for label, value in parts
            ]
        )
    )
