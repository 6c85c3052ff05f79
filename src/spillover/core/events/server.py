"""Events of the server itself: its budgets, tokens, epochs, clock and policies."""

from spillover.core.events.base import Counted, Event
from spillover.model.budget import Budget
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.tokens import TokenRole
from spillover.model.units import SECOND, format_duration


class BudgetsConfigured(Event, frozen=True, tag="budgets_configured"):
    """The budgets of this server."""

    budgets: tuple[Budget, ...]

    def __str__(self) -> str:
        return f"{len(self.budgets)} budget{'s' if len(self.budgets) != 1 else ''} from now on"


class TokenCreated(Event, frozen=True, tag="token_created"):
    """A token lets its holder in from now on."""

    token: str
    """Its id."""
    at: int
    who: str
    role: TokenRole
    """`agent`, `submit` or `admin`."""
    digest: bytes
    """SHA-256 of its secret; the secret itself is nowhere."""
    project: str | None = None
    """The only one whose jobs it may see and submit; null is all."""
    user: str | None = None
    """Who its holder is; null lets the holder say so."""
    cluster: str | None = None
    """The only one that agents may join with it; null is all."""
    expires: int | None = None
    """Nanoseconds UTC; null is never."""
    note: str = ""
    """What it is for, in the words of who made it."""

    hidden = ("digest",)  # of use to nobody but the one who checks it

    def __str__(self) -> str:
        limits = (("project", self.project), ("user", self.user), ("cluster", self.cluster))
        told = [f"{name} {value}" for name, value in limits if value is not None]
        return f"{self.who} created token {self.token} of role {', '.join([self.role, *told])}"


class TokenRevoked(Event, frozen=True, tag="token_revoked"):
    """A token lets nobody in any more."""

    token: str
    """Its id."""
    at: int
    who: str

    def __str__(self) -> str:
        return f"{self.who} revoked token {self.token}"


class EpochStarted(Event, frozen=True, tag="epoch_started"):
    """A server took the lead. Nothing is placed on an agent before it has registered anew."""

    epoch: int
    at: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} began"


class Identified(Event, frozen=True, tag="identified"):
    """What is made elsewhere for this book is known by a word from now on, for as long as the book is kept."""

    identity: str
    """That word."""

    def __str__(self) -> str:
        return f"what is made elsewhere is known by {self.identity}"


class ClockJumped(Event, frozen=True, tag="clock_jumped"):
    """Time went by in which nothing could be decided: waits are shifted by it."""

    by: int
    """Nanoseconds."""
    who: str = ""
    """Who had a clock followed that had jumped too far to be believed; empty as a rule."""

    def __str__(self) -> str:
        told = f"waits are shifted by {self.by / SECOND:.0f}s"
        return f"{told}: {self.who} had the clock followed" if self.who else told


class PolicyChanged(Event, frozen=True, tag="policy_changed"):
    """Another set of policies decides from now on."""

    at: int
    who: str
    policies: PolicySet
    configured: bool = False
    """Whether spill.yaml says so; what people set stays until that file says something else than it did."""
    named: tuple[str, ...] = ()
    """Axes that somebody named: what was disabled there is settled, also where the fallback is what they want."""
    reset: bool = False
    """Whether they went back to what spill.yaml says."""

    def __str__(self) -> str:
        how = "reset" if self.reset else "changed"
        return f"policies {how} by {self.who}: {write_policies(self.policies)}"


class PolicyDisabled(Event, frozen=True, tag="policy_disabled"):
    """A policy is too slow, or not there any more: its axis falls back to waiting in the order of submission."""

    at: int
    axis: str
    """`order`, `backfill`, `wait`, `place` or `route`."""
    name: str
    """Of the policy."""
    took: int
    """Nanoseconds that it took in one step of the live loop; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded; empty if it was slow."""

    def __str__(self) -> str:
        why = self.error or f"it took {format_duration(self.took)} in one step"
        return f"policy {self.axis}.{self.name} is disabled: {why}"

    def counted(self) -> Counted:
        """See Event."""
        return ("disabled", self.axis, self.name)


class Decided(Event, frozen=True, tag="decided"):
    """A cycle decided something; what follows up to the next such event is its plan."""

    now: int
    seed: int
    policy: bytes
    """Digest of the policies that decided."""
    plan: bytes
    """Digest of the plan."""
    rules: int = 0
    """By which rules the cycle was run: `RULES` of the release that wrote it; 0 up to release 0.4.0."""

    def __str__(self) -> str:
        return f"a cycle decided ({self.plan.hex()[:8]})"

    def counted(self) -> Counted:
        """See Event."""
        return ("cycles",)
