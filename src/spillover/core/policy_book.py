"""How the policies became what they are."""

from msgspec import Struct, field

from spillover.model.policy import PolicySet


class PolicyNote(Struct, frozen=True, array_like=True):
    """One change of the policies."""

    at: int
    """Nanoseconds UTC."""
    who: str
    how: str
    """`set` or `reset` by a person, `configured` in spill.yaml, or `disabled` by the server."""
    before: PolicySet
    after: PolicySet
    axis: str = ""
    """Of the policy that was disabled."""
    took: int = 0
    """Nanoseconds that it took in one step; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded."""
    settled: tuple[str, ...] = ()
    """Axes that had been disabled and that somebody set to what the fallback is."""


class PolicyBook(Struct, array_like=True):
    """How the policies became what they are; checkpointed as one record, so that it outlives old events."""

    configured: PolicySet = PolicySet()
    """As spill.yaml last said."""
    notes: tuple[PolicyNote, ...] = ()
    """The last changes, oldest first."""
    disabled: dict[str, PolicyNote] = field(default_factory=dict)
    """By axis, for as long as the fallback decides it."""
