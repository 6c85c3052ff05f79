"""Events of the server itself: its budgets, tokens, epochs, clock and policies."""

from spillover.core.events.base import Counted, Event
from spillover.model.budget import Budget
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.queues import QueueSpec
from spillover.model.tokens import SignInMethod, TokenRole
from spillover.model.units import SECOND, format_duration, format_money


class BudgetsConfigured(Event, frozen=True, tag="budgets_configured"):
    """The budgets of this server."""

    budgets: tuple[Budget, ...]
    who: str = ""
    """The person who had the configuration read again; empty if the server read it at its start."""

    def __str__(self) -> str:
        return f"{len(self.budgets)} budget{'s' if len(self.budgets) != 1 else ''} configured"


class BudgetReached(Event, frozen=True, tag="budget_reached"):
    """80 or 100 % of a budget are used: spent, or held for what runs. Told once for each period and limit."""

    key: str
    """The budget and its period, such as `project/vision/month/2027-01`."""
    at: int
    percent: int
    """80 or 100. So little may be left at 100 that nothing can be rented with it."""
    spent: int
    """Millionths."""
    held: int
    """Millionths, for what runs."""
    limit: int
    """Millionths."""

    def of_project(self) -> str | None:
        """See Event."""
        of, name, *_ = self.key.split("/")
        return name if of == "project" else None

    def __str__(self) -> str:
        of, name, per, label = self.key.split("/")
        used = f"{format_money(self.spent)} spent and {format_money(self.held)} held of {format_money(self.limit)}"
        period = "" if per == "ever" else f" of {label}"
        return f"the budget of {of} {name}{period} is used to {self.percent} %: {used}"


class QueuesConfigured(Event, frozen=True, tag="queues_configured"):
    """The named queues of this server. Without any, queues are only labels."""

    queues: tuple[QueueSpec, ...]
    who: str = ""
    """As in `budgets_configured`."""

    def __str__(self) -> str:
        return f"{len(self.queues)} queue{'s' if len(self.queues) != 1 else ''} configured"


class TokenCreated(Event, frozen=True, tag="token_created"):
    """A token was created."""

    token: str
    """Its id."""
    at: int
    who: str
    role: TokenRole
    """`agent`, `submit` or `admin`."""
    digest: bytes
    """SHA-256 of its secret. The secret itself is not stored."""
    project: str | None = None
    """The only project whose jobs it may see and submit; null means all."""
    user: str | None = None
    """The user that its holder acts as; null lets the holder choose."""
    cluster: str | None = None
    """The only cluster that agents may join with it; null means all."""
    expires: int | None = None
    """Nanoseconds UTC; null is never."""
    note: str = ""
    """What it is for, as its creator wrote."""
    node: str | None = None
    """The only agent that may use it, that of a rented machine; null means all."""

    hidden = ("digest",)  # only the check of tokens needs it

    def __str__(self) -> str:
        limits = (
            ("project", self.project),
            ("user", self.user),
            ("cluster", self.cluster),
            ("machine", self.node),
        )
        parts = [f"{name} {value}" for name, value in limits if value is not None]
        return f"{self.who} created token {self.token} with role {', '.join([self.role, *parts])}"


class SignedIn(Event, frozen=True, tag="signed_in"):
    """A person signed in, which made a token."""

    token: str
    """Its id."""
    at: int
    who: str
    role: TokenRole
    """As in `token_created`."""
    digest: bytes
    """SHA-256 of its secret. The secret itself is not stored."""
    how: SignInMethod
    """`token`, `link` or `oidc`."""
    parent: str
    """Id of the token that the person signed in with, `own:MARK` for the server's own; empty with `oidc`."""
    expires: int
    """Nanoseconds UTC."""
    project: str | None = None
    """The only project whose jobs it may see and submit; null means all."""
    user: str | None = None
    """The user that its holder acts as; null lets the holder choose."""
    called: str = ""
    """The user name that the person stated; empty if `user` counts."""
    note: str = ""
    """The browser or program."""

    hidden = ("digest",)  # only the check of tokens needs it

    def __str__(self) -> str:
        limit = "" if self.project is None else f", project {self.project}"
        return f"{self.who} signed in ({self.how}) with role {self.role}{limit}: token {self.token}"


class TokenRevoked(Event, frozen=True, tag="token_revoked"):
    """A token was revoked."""

    token: str
    """Its id."""
    at: int
    who: str

    def __str__(self) -> str:
        return f"{self.who} revoked token {self.token}"


class EpochStarted(Event, frozen=True, tag="epoch_started"):
    """A server took the lead. Agents get no work before they have registered again."""

    epoch: int
    at: int
    restored: bool = False
    """Whether the data are a backup. The epoch is then above all that began after it, and so are the `seq` of each
    new lease and the number of each new machine: nobody mistakes one for one from then.
    """

    def __str__(self) -> str:
        return f"epoch {self.epoch} started" + (" from a backup" if self.restored else "")


class Identified(Event, frozen=True, tag="identified"):
    """Objects that the server creates on external clusters carry this label, for as long as the journal exists."""

    identity: str
    """The label."""

    def __str__(self) -> str:
        return f"external objects are labelled {self.identity}"


class ClockJumped(Event, frozen=True, tag="clock_jumped"):
    """The server could not schedule for a while. Waits are shifted by that time."""

    by: int
    """Nanoseconds."""
    who: str = ""
    """The person who made the server accept a clock that had jumped too far to be trusted; usually empty."""

    def __str__(self) -> str:
        shifted = f"waits are shifted by {self.by / SECOND:.0f}s"
        return f"{shifted}; {self.who} accepted the machine's clock" if self.who else shifted


class PolicyChanged(Event, frozen=True, tag="policy_changed"):
    """Another set of policies decides from now on."""

    at: int
    who: str
    policies: PolicySet
    configured: bool = False
    """Whether it comes from spill.yaml. Policies that people set stay until that file changes."""
    named: tuple[str, ...] = ()
    """Axes that the person named. Disabled policies there are settled, even if the fallback stays."""
    reset: bool = False
    """Whether the policies of spill.yaml were restored."""

    also_of_server = True

    def __str__(self) -> str:
        how = "reset" if self.reset else "changed"
        return f"policies {how} by {self.who}: {write_policies(self.policies)}"


class PolicyDisabled(Event, frozen=True, tag="policy_disabled"):
    """A policy was too slow or is no longer installed. Its axis uses the fallback policy."""

    at: int
    axis: str
    """`order`, `backfill`, `wait`, `place` or `route`."""
    name: str
    """Name of the policy."""
    took: int
    """Nanoseconds in one step of the live server; 0 if it could not be loaded."""
    error: str = ""
    """Why it could not be loaded; empty if it was slow."""

    def __str__(self) -> str:
        why = self.error or f"it took {format_duration(self.took)} in one step"
        return f"policy {self.axis}.{self.name} was disabled: {why}"

    def counted(self) -> Counted:
        """See Event."""
        return ("disabled", self.axis, self.name)


class Decided(Event, frozen=True, tag="decided"):
    """A cycle decided something. The events of its plan follow."""

    now: int
    seed: int
    policy: bytes
    """Digest of the policies that decided."""
    plan: bytes
    """Digest of the plan."""
    rules: int = 0
    """Version of the planning rules: `RULES` of the release that wrote it; 0 up to release 0.4.0."""
    machines: bool = True
    """Whether it planned rented machines too. False if a plan shortly before looked at very many and changed none."""

    def __str__(self) -> str:
        return f"a cycle decided ({self.plan.hex()[:8]})"

    def counted(self) -> Counted:
        """See Event."""
        return ("cycles",)
