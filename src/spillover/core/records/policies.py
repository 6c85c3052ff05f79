"""Records of the changes of policies."""

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
    """Axis of the disabled policy."""
    took: int = 0
    """Nanoseconds that it took in one step; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded."""
    settled: tuple[str, ...] = ()
    """Axes whose policy was disabled and that a person has now set to the fallback."""


class PolicyHistory(Struct, array_like=True):
    """The history of the policies. Checkpoints store it as one record, so that it outlives old events."""

    configured: PolicySet = PolicySet()
    """The policies of spill.yaml, as last read."""
    notes: tuple[PolicyNote, ...] = ()
    """The latest changes, oldest first."""
    disabled: dict[str, PolicyNote] = field(default_factory=dict)
    """By axis, the note of its disabled policy, while the fallback decides."""
