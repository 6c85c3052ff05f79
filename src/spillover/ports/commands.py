"""The commands of users, as the HTTP API calls them.

A command returns only after the revision behind its answer is durable.
"""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Final, Protocol, Self

from msgspec import Struct

from spillover.core.events import JobState
from spillover.core.proposals import Refusal, RefusalKind
from spillover.forms.jobs.reading import JobForm
from spillover.model.budget import CostBy, MachinesBy, UsageBy
from spillover.model.job import Range
from spillover.ports.audit import AuditQuery
from spillover.ports.callers import Caller
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentView,
    AuditPage,
    BudgetView,
    ChangesView,
    CheckRequest,
    CheckView,
    ClockView,
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    CostReport,
    EventView,
    FieldProblem,
    FilesView,
    Forecasts,
    FrontierRequest,
    FrontierView,
    Ids,
    JobDetail,
    JobPage,
    JobView,
    MachineCosts,
    Me,
    NewToken,
    NodeView,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    Overview,
    PastJob,
    Patch,
    PlannedView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    PoolPause,
    PoolView,
    QueueView,
    ReasonView,
    RekeyOutcome,
    Rerun,
    ReservationRequest,
    ReservationView,
    ResultPage,
    ResultsAsked,
    ResultsOfJobs,
    SecretRef,
    SecretRequest,
    SecretView,
    Series,
    ServerView,
    SessionInput,
    SessionRequest,
    SessionTaken,
    SessionView,
    SignInMethods,
    SignInOutcome,
    SignInRequest,
    SignInView,
    SweepRequest,
    SweepView,
    TokenRequest,
    TokenView,
    UsageReport,
    WhatIf,
    WhatIfView,
    WhyView,
)


class ErrorKind(StrEnum):
    """Why a command failed, and so what the caller should do."""

    INVALID = "invalid"
    """Never valid: correct the request."""
    UNKNOWN = "unknown"
    """The object does not exist."""
    AMBIGUOUS = "ambiguous"
    """Several jobs match: name one."""
    CONFLICT = "conflict"
    """Not possible in the current state."""
    UNAVAILABLE = "unavailable"
    """Not possible now: retry, with the same key for a submission."""
    NOT_LEADER = "not_leader"
    """Another server leads: ask that one."""
    FORBIDDEN = "forbidden"
    """The token does not allow it."""
    LIMITED = "limited"
    """A limit is reached, and nothing was done: retry later."""
    TOO_LARGE = "too_large"
    """The request is too large: split it."""
    INTERNAL = "internal"
    """The server failed, and nothing was done: report it. The server's log has details."""


class CommandError(Exception):
    """A command that changed nothing, or whose outcome is unknown (UNAVAILABLE only)."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        problems: Sequence[FieldProblem] = (),
        retry_after: float | None = None,
        *,
        untouched: bool = False,
    ) -> None:
        super().__init__(message)
        self.untouched = untouched
        """Whether it certainly changed nothing, though it is UNAVAILABLE."""
        self.kind = kind
        self.message = message
        """One line for users."""
        self.problems = tuple(problems)
        """All problems, if there are several."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; None if unknown."""


class Sender(Struct, frozen=True):
    """Where a request came from."""

    peer: str = ""
    """Its network address; empty if unknown."""
    program: str = ""
    """What the program called itself (User-Agent)."""


class NewSignIn(Struct, frozen=True):
    """A sign-in that was just made."""

    text: str
    """Its token."""
    shown: SignInOutcome
    lasts: int
    """Seconds."""
    secure: bool = False
    """Whether browsers reach this server by TLS, as the configuration says."""


class OidcStart(Struct, frozen=True):
    """The first step of signing in at a provider."""

    location: str
    """Where to send the browser."""
    kept: str
    """What the browser has to keep for the second step, and to show to nobody else."""


class OidcReturn(Struct, frozen=True):
    """The second step: a browser came back."""

    kept: str
    """As in OidcStart; empty if the browser does not have it any more."""
    state: str = ""
    code: str = ""
    error: str = ""
    """Why the provider did not sign the person in; empty if it did."""
    issuer: str = ""
    """The provider; empty if it does not say."""


class JobQuery(Struct, frozen=True):
    """Selects jobs to list; newest submission first."""

    states: frozenset[str] = frozenset()
    """Upper case; empty for all."""
    project: str | None = None
    user: str | None = None
    name: str | None = None
    since: int | None = None
    """Submitted at or after, nanoseconds UTC; None for any time."""
    limit: int = 100
    cursor: str | None = None
    """`next` of the previous page; None for the first."""
    members: bool = False
    """Whether to list members of arrays too."""
    starts: bool = False
    """Whether to compute when waiting jobs are expected to start."""
    queue: str | None = None


class Span(Struct, frozen=True):
    """Selects ended jobs by time; nanoseconds UTC, None for any time."""

    since: int | None = None
    """Submitted at or after."""
    until: int | None = None
    """Submitted before."""
    ended_since: int | None = None
    """Ended at or after."""


class JobChange(Struct, frozen=True):
    """A job reached a state, or changed within it."""

    revision: int
    at: int
    """Nanoseconds UTC."""
    job: str
    state: JobState
    attempt: int
    """Attempt number; 0 if it did not change."""
    cluster: str | None = None
    """None if the job is not placed, or did not move."""
    node: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: ReasonView | None = None
    members: tuple[Range, ...] = ()
    """Members of an array that reached the state without being placed; empty if the job itself did."""


class LiveMessage(Struct, frozen=True):
    """What an open page is told."""

    event: str
    """`overview`, `machines`, `jobs`, `pools` or `problem`."""
    data: bytes
    """JSON, encoded once for all pages."""


class JobChanges(Struct, frozen=True):
    """Changes up to a revision; there are no others."""

    revision: int
    changes: list[JobChange]


_KINDS: Final = {
    RefusalKind.INVALID: ErrorKind.INVALID,
    RefusalKind.UNKNOWN: ErrorKind.UNKNOWN,
    RefusalKind.CONFLICT: ErrorKind.CONFLICT,
    RefusalKind.STALE: ErrorKind.UNAVAILABLE,
    RefusalKind.FULL: ErrorKind.LIMITED,
    RefusalKind.PROJECT_FULL: ErrorKind.LIMITED,
    RefusalKind.QUEUE_FULL: ErrorKind.LIMITED,
    RefusalKind.INTERNAL: ErrorKind.INTERNAL,
}


def refused(refusal: Refusal) -> CommandError:
    """Return a refusal as an error for the caller."""
    return CommandError(_KINDS[refusal.kind], refusal.message)


class ClusterAdministration(Protocol):
    """Changes clusters and configuration at runtime; implemented by the server."""

    async def add(self, request: ClusterRequest, who: str) -> None:
        """Add a cluster."""
        ...

    async def act(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        ...

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again."""
        ...

    def problem(self, cluster: str) -> str | None:
        """Return why a cluster cannot be opened; None if it is open or was not tried."""
        ...


class PolicyFrontier(Protocol):
    """Simulates the last jobs under other wait policies; implemented by the server."""

    def view(self) -> FrontierView:
        """Return the last frontier."""
        ...

    def start(self, request: FrontierRequest) -> FrontierView:
        """Begin to make another one."""
        ...


class EventFilter(Struct, frozen=True):
    """Selects events by what they say."""

    user: str | None = None
    """The person who caused it."""
    since: int | None = None
    """At or after, nanoseconds UTC; None for any time."""
    until: int | None = None
    """Before, nanoseconds UTC; None for any time. Not for readers who follow."""
    cycles: bool = True
    """Whether to show that a cycle decided something."""


ALL_EVENTS: Final = EventFilter()


class Commands(Protocol):
    """All commands of the API. A job is given by its id, a unique prefix, or a unique name."""

    def of(self, caller: Caller) -> Self:
        """Return the commands for a caller; a project token can only see, submit and change jobs of its project."""
        ...

    async def submit(self, jobs: Sequence[JobForm], user: str, traceparent: str = "") -> tuple[str, ...]:
        """Submit all of these jobs or none, as parts of a trace if it is given; return their ids in the same order."""
        ...

    def without_effect(self, jobs: Sequence[JobForm]) -> list[str]:
        """Return a line for each thing that these jobs ask for and that has no effect on this server."""
        ...

    async def check(self, request: CheckRequest, user: str) -> CheckView:
        """Return what is wrong with the text of a job file, or the jobs in it."""
        ...

    async def forecast(self, jobs: Sequence[JobForm], user: str) -> Forecasts:
        """Return where and when these jobs would start, without submitting them."""
        ...

    async def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs."""
        ...

    async def job(self, ref: str) -> JobDetail:
        """Return one job with its details."""
        ...

    async def why(self, ref: str) -> WhyView:
        """Return why a job is in its state."""
        ...

    async def what_if(self, ref: str, asked: WhatIf) -> WhatIfView:
        """Return what would happen to a job under an assumption."""
        ...

    async def act(self, action: Action, who: str) -> Ids:
        """Cancel, hold, release or requeue jobs, all or none."""
        ...

    async def rerun(self, asked: Rerun, user: str, traceparent: str = "") -> Ids:
        """Submit jobs again, all or none; return the new ids in the order of the request."""
        ...

    async def change(self, ref: str, patch: Patch, who: str) -> Ids:
        """Change a job that waits, or the walltime of one that runs."""
        ...

    async def changes(self, ref: str) -> ChangesView:
        """Return the smallest changes that would let a waiting job start now, and what is ahead of it."""
        ...

    async def wait(self, ref: str, timeout: float) -> JobView:  # noqa: ASYNC109 - a timeout is an answer here
        """Return a job once it has ended, or as it is after `timeout` seconds."""
        ...

    async def results(self, ref: str, asked: ResultsAsked) -> ResultPage:
        """Return how jobs ended and what they returned, once one has ended; empty after the timeout."""
        ...

    async def results_of_jobs(self, asked: ResultsOfJobs) -> ResultPage:
        """Return how some of these jobs ended, once one has ended; empty after the timeout."""
        ...

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """Stream what a task wrote in one attempt, from an offset; `attempt` None means the last that was placed.

        With `follow`, the stream continues until that attempt ends. If `attempt` is None, it continues through all
        later attempts until the job ends. The stream does not mark where an attempt begins, so a caller who wants to
        resume must give the attempt.
        """
        ...

    async def open_session(self, ref: str, request: SessionRequest, who: str) -> SessionView:
        """Connect to a task that runs: to a command beside it, its terminal, or a port of its machine."""
        ...

    async def session_output(self, session: str, who: str) -> AsyncIterator[bytes]:
        """Stream what comes from the task of a session, as frames; the session ends with the stream."""
        ...

    async def session_input(self, session: str, given: SessionInput, who: str) -> SessionTaken:
        """Pass input on to the task of a session once there is room."""
        ...

    async def files(self, ref: str, attempt: int | None) -> FilesView:
        """Return the output files of an attempt; None means the last attempt that has any."""
        ...

    def events(
        self, after: int | None, follow: bool, job: str | None, only: EventFilter = ALL_EVENTS
    ) -> AsyncIterator[EventView]:
        """Stream events after a revision; `after` None means from now on with `follow`, else from the oldest kept."""
        ...

    async def audit(self, query: AuditQuery) -> AuditPage:
        """Return what people did, newest first."""
        ...

    def watch(self, after: int | None, jobs: Sequence[str], project: str | None) -> AsyncIterator[JobChanges]:
        """Stream state changes of jobs after a revision, or from now on if it is None.

        They can be limited to given jobs and to a project. The first message comes at once. The stream ends when all
        given jobs have ended.
        """
        ...

    def past(self, span: Span) -> AsyncIterator[PastJob]:
        """Stream ended jobs, newest submission first; members of arrays are separate jobs here."""
        ...

    async def clusters(self) -> list[ClusterView]:
        """Return all clusters."""
        ...

    async def agent(self, name: str) -> AgentDetail:
        """Return one agent, by its name or as CLUSTER/NAME, with what runs there."""
        ...

    async def agents(self) -> list[AgentView]:
        """Return all agents."""
        ...

    async def nodes(self, cluster: str) -> list[NodeView]:
        """Return the nodes of an external cluster, or of all of them."""
        ...

    async def add_cluster(self, request: ClusterRequest, who: str) -> ClusterView:
        """Add a cluster."""
        ...

    async def act_on_clusters(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        ...

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again and apply it, or tell what that would change."""
        ...

    async def act_on_agents(self, action: AgentAction, who: str) -> AgentNames:
        """Drain, resume or forget agents."""
        ...

    async def server(self) -> ServerView:
        """Return the server's own state."""
        ...

    async def overview(self, running: int, queued: int, agents: int) -> Overview:
        """Return a summary with at most this many running jobs, queued jobs and agents."""
        ...

    def live(self) -> AsyncIterator[LiveMessage]:
        """Stream what an open page shows: everything first, then changes."""
        ...

    async def series(self, since: int | None) -> Series:
        """Return the last hours as lines, from a time on, or of the last hour."""
        ...

    async def reservations(self) -> list[ReservationView]:
        """Return the capacity that is reserved, in the order of its start."""
        ...

    async def reserve(self, request: ReservationRequest, who: str) -> ReservationView:
        """Reserve nodes for a project or for maintenance, or tell which would be reserved."""
        ...

    async def unreserve(self, name: str, who: str) -> None:
        """Cancel an advance reservation."""
        ...

    async def pools(self) -> list[PoolView]:
        """Return all pools with their machines and offers."""
        ...

    async def pool_plan(self) -> list[PlannedView]:
        """Return what pools would order, drain and end now."""
        ...

    async def pause_pool(self, request: PoolPause, who: str) -> PoolView:
        """Order no more machines in a pool, or end all of them; return the pool."""
        ...

    async def resume_pool(self, cluster: str, who: str) -> PoolView:
        """Order machines in a pool again; return the pool."""
        ...

    async def sweep_pools(self, request: SweepRequest) -> list[SweepView]:
        """Return what providers have that is ours and not wanted, and end it unless it is a dry run."""
        ...

    async def clock(self) -> ClockView:
        """Return whether the server follows the machine's clock."""
        ...

    async def accept_clock(self, who: str) -> ClockView:
        """Follow the machine's clock although it jumped too far to be trusted."""
        ...

    async def costs(self, by: CostBy, since: int | None) -> CostReport:
        """Return costs of running attempts, and of those that ended at or after a time (nanoseconds UTC; None: all)."""
        ...

    async def usage(self, by: Sequence[UsageBy], since: int | None) -> UsageReport:
        """Return what running attempts used, and those that ended at or after a time (nanoseconds UTC; None: all)."""
        ...

    async def machine_costs(self, by: MachinesBy, since: int | None) -> MachineCosts:
        """Return costs of machines that exist, or were gone on the day of a time or later (nanoseconds UTC; None: all)."""
        ...

    async def budgets(self) -> list[BudgetView]:
        """Return all budgets in their current period."""
        ...

    async def queues(self) -> list[QueueView]:
        """Return the named queues that the caller may use, in their order."""
        ...

    async def policy(self) -> PolicyView:
        """Return the policies in use."""
        ...

    async def set_policy(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Change the policies, or tell what that would change."""
        ...

    async def frontier(self) -> FrontierView:
        """Return what other waits would have cost and saved."""
        ...

    async def compute_frontier(self, request: FrontierRequest) -> FrontierView:
        """Begin to compute that again."""
        ...

    async def policy_history(self) -> list[PolicyRecord]:
        """Return the last policy changes, newest first."""
        ...

    async def create_token(self, request: TokenRequest, who: str) -> NewToken:
        """Create a token; return its secret, which cannot be read later."""
        ...

    async def tokens(self) -> list[TokenView]:
        """Return all tokens, newest first."""
        ...

    async def revoke_token(self, token: str, who: str) -> None:
        """Revoke a token."""
        ...

    async def sign_in(self, request: SignInRequest, sender: Sender, who: str) -> NewSignIn:
        """Sign a person in; raise Stranger if its proof is not valid."""
        ...

    async def begin_oidc(self, url: str) -> OidcStart:
        """Begin to sign in at the provider; `url` is this server as the browser knows it."""
        ...

    async def finish_oidc(self, back: OidcReturn, url: str, sender: Sender) -> NewSignIn:
        """Sign in a person who comes back from the provider; raise Stranger if that proves nothing."""
        ...

    async def sign_out(self, who: str) -> str:
        """End the sign-in of the caller; return its id."""
        ...

    async def sign_in_methods(self) -> SignInMethods:
        """Return how people can sign in."""
        ...

    async def sign_in_link(self, who: str) -> tuple[str, int]:
        """Return a code that signs its reader in as the caller, once, and when it ends in nanoseconds UTC."""
        ...

    async def me(self, who: str) -> Me:
        """Return who the caller is."""
        ...

    async def sign_ins(self) -> list[SignInView]:
        """Return the valid sign-ins of the caller, or for admins all, newest first."""
        ...

    async def revoke_sign_in(self, sign_in: str, who: str) -> None:
        """End a sign-in."""
        ...

    async def set_secret(self, request: SecretRequest, who: str) -> SecretView:
        """Set a secret."""
        ...

    async def secrets(self, project: str | None) -> list[SecretView]:
        """Return secrets without their values, by project and name; None for all projects."""
        ...

    async def remove_secret(self, ref: SecretRef, who: str) -> SecretRef:
        """Remove a secret."""
        ...

    async def rekey_secrets(self) -> RekeyOutcome:
        """Encrypt all secrets with the first key."""
        ...

    async def notifications(self, failed: bool | None, limit: int, cursor: str | None) -> NotificationPage:
        """Return a page of notifications that were not sent, newest first; `failed` None for all."""
        ...

    async def act_on_notifications(self, action: NotificationAction) -> NotificationIds:
        """Send notifications again or drop them."""
        ...

    async def test_notification(self, request: NotificationTest, who: str) -> NotificationIds:
        """Send a notification to try whether it arrives."""
        ...

    def ready(self) -> str | None:
        """Return None if the server accepts work, else why it does not."""
        ...
