"""Where a job may run: what it asks of clusters and of their nodes."""

from typing import Final

from msgspec import Struct

NODE_NAME: Final = "metadata.name"
"""The field of a node that is its name."""
PROPERTY: Final = "property"
"""The field of a node that has all words that it offers, and the names of its labels."""


class Where(Struct, frozen=True, array_like=True, gc=False):
    """What a job asks of a cluster. All parts must hold; an empty part asks for nothing."""

    role: str = ""
    """`owned` or `rented`; empty is either."""
    kinds: tuple[str, ...] = ()
    """Allowed kinds of clusters."""
    clusters: tuple[str, ...] = ()
    """Allowed names of clusters."""
    regions: tuple[str, ...] = ()
    """Allowed regions."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that the cluster must have, all of them, sorted."""
    avoid: tuple[str, ...] = ()
    """Names of clusters that are not allowed."""


class Requirement(Struct, frozen=True, array_like=True, gc=False):
    """A requirement on one label of a node, as in Kubernetes."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`."""
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True, array_like=True, gc=False):
    """Requirements that must all hold. A term without requirements matches no node."""

    labels: tuple[Requirement, ...] = ()
    """On labels of the node."""
    fields: tuple[Requirement, ...] = ()
    """On fields of the node: `metadata.name`, or `property` for a word that it offers or a label that it has."""


class Toleration(Struct, frozen=True, array_like=True, gc=False):
    """Taints that a task tolerates."""

    key: str = ""
    """Empty is every key."""
    operator: str = "Equal"
    """`Equal`, or `Exists` for any value."""
    value: str = ""
    effect: str = ""
    """Empty is every effect."""


class Rules(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a job asks of the nodes of its tasks, as in a pod."""

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that the node must have, all of them, sorted."""
    affinity: tuple[NodeTerm, ...] | None = None
    """Terms of which one must hold; None asks for nothing."""
    tolerations: tuple[Toleration, ...] = ()
