"""Declares every endpoint of the HTTP API, once.

The server's routes, its OpenAPI document and the client's requests follow from these declarations. To add an endpoint,
declare it here; CONTRIBUTING.md lists the other steps.
"""

import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from spillover.model.tokens import PEOPLE, SUBMITTERS, TokenRole
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentsAddress,
    AgentView,
    AuditPage,
    BlobKept,
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
    Digests,
    EventView,
    FilesView,
    Forecasts,
    FrontierRequest,
    FrontierView,
    Health,
    Ids,
    JobDetail,
    JobPage,
    Jobs,
    JobView,
    LiveJobs,
    LiveMachines,
    LiveOverview,
    LivePools,
    LiveProblem,
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
    PoolRef,
    PoolView,
    QueueView,
    RekeyOutcome,
    Rerun,
    ReservationRef,
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
    SignInLink,
    SignInMethods,
    SignInOutcome,
    SignInRef,
    SignInRequest,
    SignInView,
    SweepRequest,
    SweepView,
    TokenRef,
    TokenRequest,
    TokenView,
    UsageReport,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.jobfile import JobDoc
from spillover.wire.parameters import (
    AgentQuery,
    AuditQuery,
    BlobQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    MachineCostQuery,
    NodesQuery,
    NoParameters,
    NotificationsQuery,
    OfBlob,
    OfJob,
    OfSession,
    OverviewQuery,
    PastQuery,
    SecretsQuery,
    SeriesQuery,
    UsageQuery,
    WaitQuery,
)

T = TypeVar("T")
P = TypeVar("P", bound=Struct)
B = TypeVar("B")
A = TypeVar("A")
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
SSE: Final = "text/event-stream"
FOR_ADMINS: Final = frozenset({TokenRole.ADMIN})
FOR_AGENTS: Final = frozenset({TokenRole.AGENT, TokenRole.ADMIN})


class Content(Struct, Generic[T], frozen=True):
    """The content of a body or an answer, which its reader sees as a T."""

    media: str
    types: tuple[Any, ...] = ()
    """Possible types of the JSON, or of each of its lines; empty for bytes."""


NO_BODY: Final[Content[None]] = Content("")
BYTES: Final[Content[bytes]] = Content(OCTETS)
UPLOAD: Final[Content[AsyncIterator[bytes]]] = Content(OCTETS)
"""Bytes that the server processes as they arrive."""
FIGURES: Final[Content[bytes]] = Content("text/plain")


def json_of(form: type[T], *others: type[Any]) -> Content[T]:
    """Return content that is JSON of one type, or of one of several."""
    return Content(JSON, (form, *others))


def lines_of(form: type[Any]) -> Content[bytes]:
    """Return content that is lines of JSON of one type, which the reader processes as they arrive."""
    return Content(NDJSON, (form,))


def messages_of(*forms: type[Any]) -> Content[bytes]:
    """Return content that is server-sent events, whose data is JSON of one of these types."""
    return Content(SSE, forms)


_BODY_ERRORS: Final = {
    JSON: (
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ),
    OCTETS: (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
}
"""Statuses with which the server may refuse a body, by media type."""
_BUSY: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_LOOKUP: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *_BUSY)
"""The named thing does not exist, is ambiguous, or is in another state."""
_LIMITED: Final = (*_LOOKUP, HTTPStatus.TOO_MANY_REQUESTS)


class Endpoint(Struct, Generic[P, B, A], frozen=True):
    """One operation of the API."""

    name: str
    """Its id in the OpenAPI document."""
    method: str
    path: str
    """With the names of its parameters in braces."""
    summary: str
    parameters: type[P]
    """Path and query parameters."""
    body: Content[B]
    answer: Content[A]
    status: HTTPStatus = HTTPStatus.OK
    """Status of a successful answer."""
    roles: frozenset[TokenRole] = PEOPLE
    """Roles of tokens that may use it."""
    open: bool = False
    """Whether it needs no token."""
    errors: tuple[HTTPStatus, ...] = _BUSY
    """Error statuses, besides those of every endpoint and those of its body."""
    unready: type | None = None
    """Type of its answer with status 503, if that is not a Problem."""

    def __post_init__(self) -> None:
        # `msgspec.structs.fields` would resolve types, which would slow down every start of the command line.
        names, defaults = self.parameters.__struct_fields__, self.parameters.__struct_defaults__
        required = names[: len(names) - len(defaults)]
        if set(required) != set(self.in_path):
            raise TypeError(
                f"{self.name}: {self.path} names {sorted(self.in_path)}, but {self.parameters.__name__} requires {sorted(required)}"
            )

    @property
    def in_path(self) -> tuple[str, ...]:
        """Names of its path parameters."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def in_query(self) -> tuple[str, ...]:
        """Names of its query parameters."""
        in_path = self.in_path
        return tuple(name for name in self.parameters.__struct_fields__ if name not in in_path)

    @property
    def refusals(self) -> tuple[HTTPStatus, ...]:
        """All error statuses, besides those of every endpoint."""
        return (*self.errors, *_BODY_ERRORS.get(self.body.media, ()))


# Each in two lines: name, method, path, summary; then parameters, body, answer and exceptions.
# fmt: off
SUBMIT: Final = Endpoint(
    "submit", "POST", "/v1/jobs", "Submit one or more jobs, all or none",
    NoParameters, json_of(JobDoc, Jobs), json_of(Ids), status=HTTPStatus.CREATED, roles=SUBMITTERS, errors=_LIMITED,
)
LIST_JOBS: Final = Endpoint(
    "list_jobs", "GET", "/v1/jobs", "List jobs, newest first",
    ListQuery, NO_BODY, json_of(JobPage),
)
FORECAST: Final = Endpoint(
    "forecast", "POST", "/v1/forecast", "Predict where and when jobs would start, without submitting them",
    NoParameters, json_of(JobDoc, Jobs), json_of(Forecasts), errors=_LIMITED,
)
CHECK: Final = Endpoint(
    "check", "POST", "/v1/check", "Check the text of a job file or script, without submitting it",
    NoParameters, json_of(CheckRequest), json_of(CheckView), errors=_LIMITED,
)
SHOW: Final = Endpoint(
    "show", "GET", "/v1/jobs/{job}", "Show a job",
    OfJob, NO_BODY, json_of(JobDetail), errors=_LOOKUP,
)
PATCH: Final = Endpoint(
    "patch", "PATCH", "/v1/jobs/{job}", "Change a job that waits, or the walltime of one that runs",
    OfJob, json_of(Patch), json_of(Ids), roles=SUBMITTERS, errors=_LIMITED,
)
WHY: Final = Endpoint(
    "why", "GET", "/v1/jobs/{job}/why", "Explain the state of a job",
    OfJob, NO_BODY, json_of(WhyView), errors=_LOOKUP,
)
WHAT_IF: Final = Endpoint(
    "what_if", "POST", "/v1/jobs/{job}/what-if", "Predict what would happen to a job under other conditions",
    OfJob, json_of(WhatIf), json_of(WhatIfView), errors=_LOOKUP,
)
CHANGES: Final = Endpoint(
    "changes", "GET", "/v1/jobs/{job}/changes", "Find the smallest changes that would let a waiting job start now",
    OfJob, NO_BODY, json_of(ChangesView), errors=_LOOKUP,
)
WAIT: Final = Endpoint(
    "wait", "GET", "/v1/jobs/{job}/wait", "Wait for a job to end",
    WaitQuery, NO_BODY, json_of(JobView), errors=_LOOKUP,
)
RESULTS: Final = Endpoint(
    "results", "POST", "/v1/jobs/{job}/results", "Read the return values of Python calls, for many members of an array at once",
    OfJob, json_of(ResultsAsked), json_of(ResultPage), errors=_LIMITED,
)
RESULTS_OF_JOBS: Final = Endpoint(
    "results_of_jobs", "POST", "/v1/results", "Read the return values of many Python calls, as soon as one has ended",
    NoParameters, json_of(ResultsOfJobs), json_of(ResultPage), errors=_LIMITED,
)
LOGS: Final = Endpoint(
    "logs", "GET", "/v1/jobs/{job}/logs", "Read the output of a job",
    LogsQuery, NO_BODY, BYTES, errors=_LOOKUP,
)
OPEN_SESSION: Final = Endpoint(
    "open_session", "POST", "/v1/jobs/{job}/sessions",
    "Connect to a task that runs: run a command beside it, attach to its terminal, or open a port of its machine",
    OfJob, json_of(SessionRequest), json_of(SessionView), HTTPStatus.CREATED, SUBMITTERS, errors=_LOOKUP,
)
SESSION_OUTPUT: Final = Endpoint(
    "session_output", "GET", "/v1/sessions/{session}/output", "Read frames from the task of a session, which ends with this stream",
    OfSession, NO_BODY, BYTES, roles=SUBMITTERS, errors=_LOOKUP,
)
SESSION_INPUT: Final = Endpoint(
    "session_input", "POST", "/v1/sessions/{session}/input", "Send frames to the task of a session, once there is room for them",
    OfSession, json_of(SessionInput), json_of(SessionTaken), roles=SUBMITTERS, errors=_LOOKUP,
)
FILES: Final = Endpoint(
    "files", "GET", "/v1/jobs/{job}/files", "List the output files of a job",
    FilesQuery, NO_BODY, json_of(FilesView), errors=_LOOKUP,
)
ACT: Final = Endpoint(
    "act", "POST", "/v1/actions", "Cancel, hold, release or requeue jobs, all or none",
    NoParameters, json_of(Action), json_of(Ids), roles=SUBMITTERS, errors=_LIMITED,
)
RERUN: Final = Endpoint(
    "rerun", "POST", "/v1/rerun", "Submit jobs again with the same specs, or only the failed members of arrays, all or none",
    NoParameters, json_of(Rerun), json_of(Ids), status=HTTPStatus.CREATED, roles=SUBMITTERS, errors=_LIMITED,
)
EVENTS: Final = Endpoint(
    "events", "GET", "/v1/events", "Read events as lines of JSON",
    EventsQuery, NO_BODY, lines_of(EventView), errors=_LOOKUP,
)
AUDIT: Final = Endpoint(
    "audit", "GET", "/v1/audit", "List what people did, newest first",
    AuditQuery, NO_BODY, json_of(AuditPage), errors=_LOOKUP,
)
PAST: Final = Endpoint(
    "past", "GET", "/v1/past", "Read ended jobs as lines of JSON, with everything that a simulation needs",
    PastQuery, NO_BODY, lines_of(PastJob),
)
CLUSTERS: Final = Endpoint(
    "clusters", "GET", "/v1/clusters", "List clusters",
    NoParameters, NO_BODY, json_of(list[ClusterView]),
)
ADD_CLUSTER: Final = Endpoint(
    "add_cluster", "POST", "/v1/clusters", "Add a cluster",
    NoParameters, json_of(ClusterRequest), json_of(ClusterView), HTTPStatus.CREATED, FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
ACT_ON_CLUSTERS: Final = Endpoint(
    "act_on_clusters", "POST", "/v1/clusters/actions", "Drain, resume or remove clusters",
    NoParameters, json_of(ClusterAction), json_of(ClusterNames), roles=FOR_ADMINS, errors=_LOOKUP,
)
CONFIGURE: Final = Endpoint(
    "configure", "POST", "/v1/config",
    "Reload the configuration file and apply it, or show what that would change",
    NoParameters, json_of(ConfigRequest), json_of(ConfigOutcome), roles=FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
AGENTS: Final = Endpoint(
    "agents", "GET", "/v1/agents", "List agents",
    NoParameters, NO_BODY, json_of(list[AgentView]),
)
SHOW_AGENT: Final = Endpoint(
    "show_agent", "GET", "/v1/agents/show", "Show an agent and what runs there",
    AgentQuery, NO_BODY, json_of(AgentDetail), errors=_LOOKUP,
)
NODES: Final = Endpoint(
    "nodes", "GET", "/v1/nodes", "List the nodes of external clusters, as last seen",
    NodesQuery, NO_BODY, json_of(list[NodeView]), errors=_LOOKUP,
)
SERVER: Final = Endpoint(
    "server", "GET", "/v1/server", "Show the state of the server",
    NoParameters, NO_BODY, json_of(ServerView),
)
CLOCK: Final = Endpoint(
    "clock", "GET", "/v1/clock", "Show whether the server follows the clock of its machine",
    NoParameters, NO_BODY, json_of(ClockView),
)
ACCEPT_CLOCK: Final = Endpoint(
    "accept_clock", "POST", "/v1/clock/accept", "Accept the machine's clock after a jump that the server ignored",
    NoParameters, NO_BODY, json_of(ClockView), roles=FOR_ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
RESERVATIONS: Final = Endpoint(
    "reservations", "GET", "/v1/reservations", "List the capacity that is reserved, in the order of its start",
    NoParameters, NO_BODY, json_of(list[ReservationView]),
)
RESERVE: Final = Endpoint(
    "reserve", "POST", "/v1/reservations", "Reserve nodes for a project or for maintenance, or show which would be reserved",
    NoParameters, json_of(ReservationRequest), json_of(ReservationView), roles=FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
UNRESERVE: Final = Endpoint(
    "unreserve", "POST", "/v1/reservations/cancel", "Cancel an advance reservation",
    NoParameters, json_of(ReservationRef), json_of(ReservationRef), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
POOLS: Final = Endpoint(
    "pools", "GET", "/v1/pools", "List pools with their machines and offers",
    NoParameters, NO_BODY, json_of(list[PoolView]),
)
POOL_PLAN: Final = Endpoint(
    "pool_plan", "GET", "/v1/pools/plan", "Show what pools would order, drain and end now",
    NoParameters, NO_BODY, json_of(list[PlannedView]), roles=FOR_ADMINS,
)
PAUSE_POOL: Final = Endpoint(
    "pause_pool", "POST", "/v1/pools/pause", "Order no more machines in a pool, or end all of them",
    NoParameters, json_of(PoolPause), json_of(PoolView), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
RESUME_POOL: Final = Endpoint(
    "resume_pool", "POST", "/v1/pools/resume", "Order machines in a pool again",
    NoParameters, json_of(PoolRef), json_of(PoolView), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
SWEEP_POOLS: Final = Endpoint(
    "sweep_pools", "POST", "/v1/pools/sweep", "List machines at providers that are ours and not wanted, and end them",
    NoParameters, json_of(SweepRequest), json_of(list[SweepView]), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
OVERVIEW: Final = Endpoint(
    "overview", "GET", "/v1/overview", "Show clusters, agents, running jobs and the head of the queue",
    OverviewQuery, NO_BODY, json_of(Overview),
)
LIVE: Final = Endpoint(
    "live", "GET", "/v1/live", "Follow clusters, machines and jobs as server-sent events, as an open page does",
    NoParameters, NO_BODY, messages_of(LiveOverview, LiveMachines, LiveJobs, LivePools, LiveProblem),
)
SERIES: Final = Endpoint(
    "series", "GET", "/v1/series", "Show the last hours as lines: capacity, use, queue and rent",
    SeriesQuery, NO_BODY, json_of(Series),
)
COSTS: Final = Endpoint(
    "costs", "GET", "/v1/costs", "Show the cost by project, user, cluster, day, week or month",
    CostQuery, NO_BODY, json_of(CostReport),
)
MACHINE_COSTS: Final = Endpoint(
    "machine_costs", "GET", "/v1/costs/machines", "Show what rented machines cost, and how much of it was useful, by pool, day, week or month",
    MachineCostQuery, NO_BODY, json_of(MachineCosts),
)
USAGE: Final = Endpoint(
    "usage", "GET", "/v1/usage", "Show CPU, GPU and memory hours of jobs, what was unused, and the cost, in groups",
    UsageQuery, NO_BODY, json_of(UsageReport),
)
BUDGETS: Final = Endpoint(
    "budgets", "GET", "/v1/budgets", "List budgets in their current period",
    NoParameters, NO_BODY, json_of(list[BudgetView]),
)
QUEUES: Final = Endpoint(
    "queues", "GET", "/v1/queues", "List the named queues, with their limits and what is in them",
    NoParameters, NO_BODY, json_of(list[QueueView]),
)
POLICY: Final = Endpoint(
    "policy", "GET", "/v1/policy", "Show the policies in effect",
    NoParameters, NO_BODY, json_of(PolicyView),
)
SET_POLICY: Final = Endpoint(
    "set_policy", "PATCH", "/v1/policy", "Change policies",
    NoParameters, json_of(PolicyPatch), json_of(PolicyOutcome), roles=FOR_ADMINS,
)
POLICY_HISTORY: Final = Endpoint(
    "policy_history", "GET", "/v1/policy/history", "List changes of policies, newest first",
    NoParameters, NO_BODY, json_of(list[PolicyRecord]),
)
FRONTIER: Final = Endpoint(
    "frontier", "GET", "/v1/policy/frontier", "Show what other waits would have cost and saved for the last jobs",
    NoParameters, NO_BODY, json_of(FrontierView),
)
COMPUTE_FRONTIER: Final = Endpoint(
    "compute_frontier", "POST", "/v1/policy/frontier", "Begin to compute that frontier",
    NoParameters, json_of(FrontierRequest), json_of(FrontierView), status=HTTPStatus.ACCEPTED, roles=FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
PUT_BLOB: Final = Endpoint(
    "put_blob", "PUT", "/v1/blobs/{digest}", "Store a blob under its SHA-256",
    OfBlob, UPLOAD, json_of(BlobKept), status=HTTPStatus.CREATED, roles=SUBMITTERS,
)
GET_BLOB: Final = Endpoint(
    "get_blob", "GET", "/v1/blobs/{digest}", "Read a blob",
    BlobQuery, NO_BODY, BYTES, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
MISSING_BLOBS: Final = Endpoint(
    "missing_blobs", "POST", "/v1/blobs/missing", "List which of some blobs are missing",
    NoParameters, json_of(Digests), json_of(Digests), roles=SUBMITTERS,
)
AGENTS_ADDRESS: Final = Endpoint(
    "agents_address", "GET", "/v1/agents/address", "Show the address that agents connect to",
    NoParameters, NO_BODY, json_of(AgentsAddress), roles=FOR_AGENTS,
)
ACT_ON_AGENTS: Final = Endpoint(
    "act_on_agents", "POST", "/v1/agents/actions", "Drain, resume or forget agents",
    NoParameters, json_of(AgentAction), json_of(AgentNames), roles=FOR_ADMINS, errors=_LOOKUP,
)
CREATE_TOKEN: Final = Endpoint(
    "create_token", "POST", "/v1/tokens", "Create a token",
    NoParameters, json_of(TokenRequest), json_of(NewToken), status=HTTPStatus.CREATED, roles=FOR_ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
TOKENS: Final = Endpoint(
    "tokens", "GET", "/v1/tokens", "List tokens, newest first, without their secrets",
    NoParameters, NO_BODY, json_of(list[TokenView]), roles=FOR_ADMINS,
)
REVOKE_TOKEN: Final = Endpoint(
    "revoke_token", "POST", "/v1/tokens/revoke", "Revoke a token",
    NoParameters, json_of(TokenRef), json_of(TokenRef), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
SIGN_IN: Final = Endpoint(
    "sign_in", "POST", "/v1/sign-in", "Sign in with a token, a one-time code or an id_token",
    NoParameters, json_of(SignInRequest), json_of(SignInOutcome), status=HTTPStatus.CREATED, open=True, errors=(HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, *_BUSY),
)
SIGN_OUT: Final = Endpoint(
    "sign_out", "POST", "/v1/sign-out", "End the sign-in of the caller",
    NoParameters, NO_BODY, json_of(SignInRef), errors=(HTTPStatus.CONFLICT, *_BUSY),
)
SIGN_IN_METHODS: Final = Endpoint(
    "sign_in_methods", "GET", "/v1/sign-in/methods", "Show how people can sign in",
    NoParameters, NO_BODY, json_of(SignInMethods), open=True,
)
SIGN_IN_LINK: Final = Endpoint(
    "sign_in_link", "POST", "/v1/sign-in/links", "Make a link that signs its reader in as the caller, once, within a minute",
    NoParameters, NO_BODY, json_of(SignInLink), status=HTTPStatus.CREATED, errors=(HTTPStatus.TOO_MANY_REQUESTS, *_BUSY),
)
ME: Final = Endpoint(
    "me", "GET", "/v1/me", "Show who the caller is",
    NoParameters, NO_BODY, json_of(Me),
)
SIGN_INS: Final = Endpoint(
    "sign_ins", "GET", "/v1/sign-ins", "List the sign-ins of the caller, or for admins all, newest first",
    NoParameters, NO_BODY, json_of(list[SignInView]),
)
REVOKE_SIGN_IN: Final = Endpoint(
    "revoke_sign_in", "POST", "/v1/sign-ins/revoke", "End a sign-in",
    NoParameters, json_of(SignInRef), json_of(SignInRef), errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
SET_SECRET: Final = Endpoint(
    "set_secret", "PUT", "/v1/secrets", "Set a secret of a project",
    NoParameters, json_of(SecretRequest), json_of(SecretView), roles=SUBMITTERS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
SECRETS: Final = Endpoint(
    "secrets", "GET", "/v1/secrets", "List secrets by project and name, without their values",
    SecretsQuery, NO_BODY, json_of(list[SecretView]),
)
REMOVE_SECRET: Final = Endpoint(
    "remove_secret", "POST", "/v1/secrets/remove", "Remove a secret",
    NoParameters, json_of(SecretRef), json_of(SecretRef), roles=SUBMITTERS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
REKEY_SECRETS: Final = Endpoint(
    "rekey_secrets", "POST", "/v1/secrets/rekey", "Encrypt all secrets with the first key of the key file",
    NoParameters, NO_BODY, json_of(RekeyOutcome), roles=FOR_ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
NOTIFICATIONS: Final = Endpoint(
    "notifications", "GET", "/v1/notifications", "List notifications that wait or failed, newest first",
    NotificationsQuery, NO_BODY, json_of(NotificationPage), roles=FOR_ADMINS,
)
ACT_ON_NOTIFICATIONS: Final = Endpoint(
    "act_on_notifications", "POST", "/v1/notifications/actions", "Send notifications again, or drop them",
    NoParameters, json_of(NotificationAction), json_of(NotificationIds), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
TEST_NOTIFICATION: Final = Endpoint(
    "test_notification", "POST", "/v1/notifications/test", "Send a notification to try whether it arrives",
    NoParameters, json_of(NotificationTest), json_of(NotificationIds), roles=FOR_ADMINS, errors=_BUSY,
)
HEALTH: Final = Endpoint(
    "health", "GET", "/v1/health", "Check that the process runs",
    NoParameters, NO_BODY, json_of(Health), open=True, errors=(),
)
READY: Final = Endpoint(
    "ready", "GET", "/v1/ready", "Check that the server accepts work",
    NoParameters, NO_BODY, json_of(Health), open=True, errors=(), unready=Health,
)
METRICS: Final = Endpoint(
    "metrics", "GET", "/metrics", "Metrics for Prometheus",
    NoParameters, NO_BODY, FIGURES, errors=(),
)
OPENAPI: Final = Endpoint(
    "openapi", "GET", "/v1/openapi.json", "The OpenAPI document of this API",
    NoParameters, NO_BODY, json_of(dict[str, Any]), errors=(),
)
# fmt: on

ENDPOINTS: Final[tuple[Endpoint[Any, Any, Any], ...]] = tuple(
    declared for declared in globals().values() if isinstance(declared, Endpoint)
)
"""All endpoints declared above, in that order."""
