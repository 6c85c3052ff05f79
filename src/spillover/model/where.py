"""Where a job may run: what it asks of clusters, and what it asks of their nodes."""

from msgspec import Struct


class Where(Struct, frozen=True, array_like=True, gc=False):
    """What a job asks of a cluster. All that is named must hold; what is empty asks for nothing."""

    role: str = ""
    """`owned` or `rented`; empty is either."""
    kinds: tuple[str, ...] = ()
    """Kinds of clusters of which it must be one."""
    clusters: tuple[str, ...] = ()
    """Names of which it must be one."""
    regions: tuple[str, ...] = ()
    """Regions of which it must be in one."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that it must have, all of them, sorted."""
    avoid: tuple[str, ...] = ()
    """Names of which it must be none."""


class Requirement(Struct, frozen=True, array_like=True, gc=False):
    """What is asked of one label of a node, as Kubernetes writes it."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`."""
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True, array_like=True, gc=False):
    """Requirements of which all must hold; a term without any holds for no node."""

    labels: tuple[Requirement, ...] = ()
    """Of the node's labels."""
    fields: tuple[Requirement, ...] = ()
    """Of its fields, of which there is one: `metadata.name`."""


class Toleration(Struct, frozen=True, array_like=True, gc=False):
    """Taints that keep a task off no node."""

    key: str = ""
    """Empty is every key."""
    operator: str = "Equal"
    """`Equal`, or `Exists` for any value."""
    value: str = ""
    effect: str = ""
    """Empty is every effect."""


class Rules(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a job asks of the node that a task runs on, as a pod does."""

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that the node must have, all of them, sorted."""
    affinity: tuple[NodeTerm, ...] | None = None
    """Terms of which one must hold; None asks for nothing."""
    tolerations: tuple[Toleration, ...] = ()
