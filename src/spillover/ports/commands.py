"""What people can ask of a server, as the HTTP API calls it.

An answer rests on what is durable: a command returns only after the revision behind its answer is.
"""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Final, Protocol, Self

from msgspec import Struct

from spillover.core.events import JobState
from spillover.core.proposals import Refusal, RefusalKind
from spillover.forms.jobs import JobForm
from spillover.model.budget import CostBy
from spillover.model.job import Range
from spillover.ports.callers import Caller
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentNames,
    AgentView,
    BudgetView,
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
    Ids,
    JobDetail,
    JobPage,
    JobView,
    NewToken,
    Overview,
    PastJob,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    ReasonView,
    ResultPage,
    ResultsAsked,
    ServerView,
    TokenRequest,
    TokenView,
    WhatIf,
    WhatIfView,
    WhyView,
)


class ErrorKind(StrEnum):
    """Why a command was not carried out, and so what the one who asked does next."""

    INVALID = "invalid"
    """Never valid: mend it."""
    UNKNOWN = "unknown"
    """There is no such thing."""
    AMBIGUOUS = "ambiguous"
    """Several jobs are meant: say which."""
    CONFLICT = "conflict"
    """Not possible in the state that things are in."""
    UNAVAILABLE = "unavailable"
    """Not now: retry, with a key if it was a submission."""
    NOT_LEADER = "not_leader"
    """Another server leads: ask that one."""
    FORBIDDEN = "forbidden"
    """Not with this token."""
    LIMITED = "limited"
    """More than the server takes now: nothing was done; ask again later."""
    TOO_LARGE = "too_large"
    """More than one request may carry: split it."""
    INTERNAL = "internal"
    """The server failed on it, and nothing was done: report it; the log of the server says more."""


class CommandError(Exception):
    """A command that changed nothing, or whose outcome is unknown (UNAVAILABLE only)."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        problems: Sequence[FieldProblem] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        """One line for a person."""
        self.problems = tuple(problems)
        """Each thing that is wrong, when several can be named."""
        self.retry_after = retry_after
        """Seconds after which a retry may help; None when nobody knows."""


class JobQuery(Struct, frozen=True):
    """Which jobs to list; newest submission first."""

    state: str | None = None
    """Upper case; None for all."""
    project: str | None = None
    user: str | None = None
    name: str | None = None
    since: int | None = None
    """Submitted at or after, nanoseconds UTC."""
    limit: int = 100
    cursor: str | None = None
    """`next` of the page before; None for the first."""
    members: bool = False
    """Whether members of arrays are listed too."""


class Span(Struct, frozen=True):
    """Which jobs that have ended, by when; nanoseconds UTC, None for all."""

    since: int | None = None
    """Submitted at or after."""
    until: int | None = None
    """Submitted before."""
    ended_since: int | None = None
    """Ended at or after."""


class JobChange(Struct, frozen=True):
    """A job came to a state."""

    revision: int
    at: int
    """Nanoseconds UTC."""
    job: str
    state: JobState
    attempt: int
    """0 if it is the same as before."""
    cluster: str | None = None
    """None if it has no place, or keeps the one it has."""
    node: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: ReasonView | None = None
    members: tuple[Range, ...] = ()
    """Of an array, members that came to the state without ever having been placed; none if the job itself did."""


class JobChanges(Struct, frozen=True):
    """Some changes, and the revision up to which there are no others."""

    revision: int
    changes: list[JobChange]


_KINDS: Final = {
    RefusalKind.INVALID: ErrorKind.INVALID,
    RefusalKind.UNKNOWN: ErrorKind.UNKNOWN,
    RefusalKind.CONFLICT: ErrorKind.CONFLICT,
    RefusalKind.STALE: ErrorKind.UNAVAILABLE,
    RefusalKind.FULL: ErrorKind.LIMITED,
    RefusalKind.PROJECT_FULL: ErrorKind.LIMITED,
    RefusalKind.INTERNAL: ErrorKind.INTERNAL,
}


def refused(refusal: Refusal) -> CommandError:
    """A refusal, as the one who asked is told."""
    return CommandError(_KINDS[refusal.kind], refusal.message)


class ClusterDesk(Protocol):
    """Whoever can read configurations and knows which clusters are open: the server itself."""

    async def add(self, request: ClusterRequest, who: str) -> None:
        """Use one more cluster."""
        ...

    async def act(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        ...

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again."""
        ...

    def problem(self, cluster: str) -> str | None:
        """Why a cluster cannot be opened; None if it is, or was not tried."""
        ...


class Commands(Protocol):
    """Everything the API does. A job is named by its id, a unique prefix of it, or a unique name."""

    def of(self, caller: Caller) -> Self:
        """The same for a caller: one of a project sees, submits and changes jobs of that project, and knows of no others."""
        ...

    async def submit(self, jobs: Sequence[JobForm], user: str) -> tuple[str, ...]:
        """Take all of these jobs, or none; their ids in the same order."""
        ...

    async def forecast(self, jobs: Sequence[JobForm], user: str) -> Forecasts:
        """Where and when these jobs would start, without submitting them."""
        ...

    async def jobs(self, query: JobQuery) -> JobPage:
        """Some jobs."""
        ...

    async def job(self, ref: str) -> JobDetail:
        """One job."""
        ...

    async def why(self, ref: str) -> WhyView:
        """Why a job is where it is."""
        ...

    async def what_if(self, ref: str, asked: WhatIf) -> WhatIfView:
        """What would become of a job under an assumption."""
        ...

    async def act(self, action: Action, who: str) -> Ids:
        """Cancel, hold, release or requeue jobs, all or none."""
        ...

    async def set_priority(self, ref: str, priority: int, who: str) -> Ids:
        """Change the priority of a job that has not been placed."""
        ...

    async def wait(self, ref: str, timeout: float) -> JobView:  # noqa: ASYNC109 - running out of it is an answer here
        """The job once it ended, or as it is after `timeout` seconds."""
        ...

    async def results(self, ref: str, asked: ResultsAsked) -> ResultPage:
        """How jobs ended and what they returned, as soon as one of them has ended; none after the time that was given."""
        ...

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """What a task wrote in one attempt, from a byte of it on; `attempt` None is the newest that was given to an agent.

        Following goes on until that attempt is over, and with `attempt` None through all that come after it until the job has
        ended: nothing tells where one attempt ends and the next begins, so whoever wants to resume names the attempt.
        """
        ...

    async def files(self, ref: str, attempt: int | None) -> FilesView:
        """The files that an attempt of a job brought back; None is the last attempt that brought any."""
        ...

    def events(self, after: int | None, follow: bool, job: str | None) -> AsyncIterator[EventView]:
        """History after a revision. `after` None is from the newest on when following, else from the oldest kept."""
        ...

    def watch(self, after: int | None, jobs: Sequence[str], project: str | None) -> AsyncIterator[JobChanges]:
        """How jobs change: after a revision, or from now on.

        All that there are, or those that are named and of a project. The first answer comes at once; ends when all jobs that are
        named have ended.
        """
        ...

    def past(self, span: Span) -> AsyncIterator[PastJob]:
        """Jobs that have ended, newest submission first.

        Members of arrays are jobs of their own here.
        """
        ...

    async def clusters(self) -> list[ClusterView]:
        """All clusters."""
        ...

    async def agents(self) -> list[AgentView]:
        """All agents."""
        ...

    async def add_cluster(self, request: ClusterRequest, who: str) -> ClusterView:
        """Use one more cluster from now on."""
        ...

    async def act_on_clusters(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        ...

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again and do as it says, or say what that would change."""
        ...

    async def act_on_agents(self, action: AgentAction, who: str) -> AgentNames:
        """Drain, resume or forget agents."""
        ...

    async def server(self) -> ServerView:
        """The server itself."""
        ...

    async def overview(self, running: int, queued: int, agents: int) -> Overview:
        """All of it at a glance: at most so many jobs that run, so many that wait, and so many agents."""
        ...

    async def clock(self) -> ClockView:
        """What is believed of the machine's clock."""
        ...

    async def accept_clock(self, who: str) -> ClockView:
        """Follow the machine's clock although it jumped too far to be believed."""
        ...

    async def costs(self, by: CostBy, since: int | None) -> CostReport:
        """What was spent by attempts that were over at or after a time (nanoseconds UTC; None: all), and on those under way."""
        ...

    async def budgets(self) -> list[BudgetView]:
        """All budgets, in the period that is now."""
        ...

    async def policy(self) -> PolicyView:
        """What decides now."""
        ...

    async def set_policy(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Decide by other policies."""
        ...

    async def policy_history(self) -> list[PolicyRecord]:
        """The last changes of the policies, newest first."""
        ...

    async def create_token(self, request: TokenRequest, who: str) -> NewToken:
        """Make a token; its secret is told once."""
        ...

    async def tokens(self) -> list[TokenView]:
        """All tokens, the newest first."""
        ...

    async def revoke_token(self, token: str, who: str) -> None:
        """Let nobody in with a token any more."""
        ...

    def ready(self) -> str | None:
        """None when it accepts work, else what is missing."""
        ...
