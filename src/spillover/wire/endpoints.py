"""Every endpoint of the HTTP API, declared once.

The server's routes and its OpenAPI document are made from these declarations, and so are the requests of the client. To add an
endpoint, declare it here; CONTRIBUTING.md says what else it takes.
"""

import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from spillover.model.tokens import TokenRole
from spillover.wire.api import (
    Action,
    AgentAction,
    AgentNames,
    AgentsAddress,
    AgentView,
    BlobKept,
    BudgetView,
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
    Health,
    Ids,
    JobDetail,
    JobPage,
    Jobs,
    JobView,
    NewToken,
    Overview,
    PastJob,
    Patch,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    ResultPage,
    ResultsAsked,
    ServerView,
    TokenRef,
    TokenRequest,
    TokenView,
    WhatIf,
    WhatIfView,
    WhyView,
)
from spillover.wire.jobfile import JobDoc
from spillover.wire.parameters import (
    BlobQuery,
    CostQuery,
    EventsQuery,
    FilesQuery,
    ListQuery,
    LogsQuery,
    NoParameters,
    OfBlob,
    OfJob,
    OverviewQuery,
    PastQuery,
    WaitQuery,
)

T = TypeVar("T")
P = TypeVar("P", bound=Struct)
B = TypeVar("B")
A = TypeVar("A")
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
FOR_PEOPLE: Final = frozenset({TokenRole.SUBMIT, TokenRole.ADMIN})
FOR_ADMINS: Final = frozenset({TokenRole.ADMIN})
FOR_AGENTS: Final = frozenset({TokenRole.AGENT, TokenRole.ADMIN})


class Content(Struct, Generic[T], frozen=True):
    """What a body or an answer is: a T, as its reader sees it."""

    media: str
    types: tuple[Any, ...] = ()
    """Of its JSON, or of each line of it: any of these. None for bytes."""


NO_BODY: Final[Content[None]] = Content("")
BYTES: Final[Content[bytes]] = Content(OCTETS)
UPLOAD: Final[Content[AsyncIterator[bytes]]] = Content(OCTETS)
"""Bytes that are taken as they come."""
FIGURES: Final[Content[bytes]] = Content("text/plain")


def json_of(form: type[T], *others: type[Any]) -> Content[T]:
    """JSON of one type, or of any of several."""
    return Content(JSON, (form, *others))


def lines_of(form: type[Any]) -> Content[bytes]:
    """Lines, each of them JSON of one type, which are read as they come."""
    return Content(NDJSON, (form,))


_BODY_ERRORS: Final = {
    JSON: (
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ),
    OCTETS: (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
}
"""How a body may be refused, by what it is."""
_BUSY: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_LOOKUP: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *_BUSY)
"""What is named is not there, may mean several, or is in another state."""
_LIMITED: Final = (*_LOOKUP, HTTPStatus.TOO_MANY_REQUESTS)


class Endpoint(Struct, Generic[P, B, A], frozen=True):
    """One operation: what is asked with it, what is sent and what is answered."""

    name: str
    """Its id in the OpenAPI document."""
    method: str
    path: str
    """With the names of its parameters in braces."""
    summary: str
    parameters: type[P]
    """Those of the path, and those of the query."""
    body: Content[B]
    answer: Content[A]
    status: HTTPStatus = HTTPStatus.OK
    """Of a good answer."""
    roles: frozenset[TokenRole] = FOR_PEOPLE
    """Whose tokens are good for it."""
    open: bool = False
    """Whether it needs no token at all."""
    errors: tuple[HTTPStatus, ...] = _BUSY
    """Statuses of problems that it may answer with, beyond those that any may and those that follow from its body."""
    unready: type | None = None
    """Type of its answer of status 503, where that is not a problem."""

    def __post_init__(self) -> None:
        # Not by `msgspec.structs.fields`, which resolves types: that would cost every start of the command line.
        names, defaults = self.parameters.__struct_fields__, self.parameters.__struct_defaults__
        required = names[: len(names) - len(defaults)]
        if set(required) != set(self.in_path):
            raise TypeError(
                f"{self.name}: {self.path} names {sorted(self.in_path)}, but {self.parameters.__name__} requires {sorted(required)}"
            )

    @property
    def in_path(self) -> tuple[str, ...]:
        """Names of the parameters that are parts of the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def in_query(self) -> tuple[str, ...]:
        """Names of the others."""
        in_path = self.in_path
        return tuple(name for name in self.parameters.__struct_fields__ if name not in in_path)

    @property
    def refusals(self) -> tuple[HTTPStatus, ...]:
        """Statuses of all problems that it may answer with, beyond those that any may."""
        return (*self.errors, *_BODY_ERRORS.get(self.body.media, ()))


# Two lines each: what it is; its parameters, its body, its answer, and what is not as usual.
# fmt: off
SUBMIT: Final = Endpoint(
    "submit", "POST", "/v1/jobs", "Submit one job or many, all or none",
    NoParameters, json_of(JobDoc, Jobs), json_of(Ids), status=HTTPStatus.CREATED, errors=_LIMITED,
)
LIST_JOBS: Final = Endpoint(
    "list_jobs", "GET", "/v1/jobs", "List jobs, newest first",
    ListQuery, NO_BODY, json_of(JobPage),
)
FORECAST: Final = Endpoint(
    "forecast", "POST", "/v1/forecast", "Say where jobs would start, without submitting them",
    NoParameters, json_of(JobDoc, Jobs), json_of(Forecasts), errors=_LIMITED,
)
SHOW: Final = Endpoint(
    "show", "GET", "/v1/jobs/{job}", "Show a job",
    OfJob, NO_BODY, json_of(JobDetail), errors=_LOOKUP,
)
PATCH: Final = Endpoint(
    "patch", "PATCH", "/v1/jobs/{job}", "Change a job that has not been placed",
    OfJob, json_of(Patch), json_of(Ids), errors=_LIMITED,
)
WHY: Final = Endpoint(
    "why", "GET", "/v1/jobs/{job}/why", "Say why a job is where it is",
    OfJob, NO_BODY, json_of(WhyView), errors=_LOOKUP,
)
WHAT_IF: Final = Endpoint(
    "what_if", "POST", "/v1/jobs/{job}/what-if", "Say what would become of a job under an assumption",
    OfJob, json_of(WhatIf), json_of(WhatIfView), errors=_LOOKUP,
)
WAIT: Final = Endpoint(
    "wait", "GET", "/v1/jobs/{job}/wait", "Wait for a job to end",
    WaitQuery, NO_BODY, json_of(JobView), errors=_LOOKUP,
)
RESULTS: Final = Endpoint(
    "results", "POST", "/v1/jobs/{job}/results", "Read what Python calls returned, of many members of an array at once",
    OfJob, json_of(ResultsAsked), json_of(ResultPage), errors=_LIMITED,
)
LOGS: Final = Endpoint(
    "logs", "GET", "/v1/jobs/{job}/logs", "Read what a job wrote",
    LogsQuery, NO_BODY, BYTES, errors=_LOOKUP,
)
FILES: Final = Endpoint(
    "files", "GET", "/v1/jobs/{job}/files", "List the files that a job brought back",
    FilesQuery, NO_BODY, json_of(FilesView), errors=_LOOKUP,
)
ACT: Final = Endpoint(
    "act", "POST", "/v1/actions", "Cancel, hold, release or requeue jobs, all or none",
    NoParameters, json_of(Action), json_of(Ids), errors=_LIMITED,
)
EVENTS: Final = Endpoint(
    "events", "GET", "/v1/events", "Read history as lines of JSON",
    EventsQuery, NO_BODY, lines_of(EventView), errors=_LOOKUP,
)
PAST: Final = Endpoint(
    "past", "GET", "/v1/past", "Read jobs that have ended as lines of JSON, with all that a simulation needs",
    PastQuery, NO_BODY, lines_of(PastJob),
)
CLUSTERS: Final = Endpoint(
    "clusters", "GET", "/v1/clusters", "List clusters",
    NoParameters, NO_BODY, json_of(list[ClusterView]),
)
ADD_CLUSTER: Final = Endpoint(
    "add_cluster", "POST", "/v1/clusters", "Add a cluster, to be used from now on",
    NoParameters, json_of(ClusterRequest), json_of(ClusterView), HTTPStatus.CREATED, FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
ACT_ON_CLUSTERS: Final = Endpoint(
    "act_on_clusters", "POST", "/v1/clusters/actions", "Drain, resume or remove clusters",
    NoParameters, json_of(ClusterAction), json_of(ClusterNames), roles=FOR_ADMINS, errors=_LOOKUP,
)
CONFIGURE: Final = Endpoint(
    "configure", "POST", "/v1/config",
    "Read the configuration again and do as it says, or say what that would change",
    NoParameters, json_of(ConfigRequest), json_of(ConfigOutcome), roles=FOR_ADMINS,
    errors=(HTTPStatus.CONFLICT, *_BUSY),
)
AGENTS: Final = Endpoint(
    "agents", "GET", "/v1/agents", "List agents",
    NoParameters, NO_BODY, json_of(list[AgentView]),
)
SERVER: Final = Endpoint(
    "server", "GET", "/v1/server", "Show the server",
    NoParameters, NO_BODY, json_of(ServerView),
)
CLOCK: Final = Endpoint(
    "clock", "GET", "/v1/clock", "Show what the server believes of the clock of its machine",
    NoParameters, NO_BODY, json_of(ClockView),
)
ACCEPT_CLOCK: Final = Endpoint(
    "accept_clock", "POST", "/v1/clock/accept", "Follow the clock of the machine although it jumped too far to be believed",
    NoParameters, NO_BODY, json_of(ClockView), roles=FOR_ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
OVERVIEW: Final = Endpoint(
    "overview", "GET", "/v1/overview", "Show clusters, agents, what runs and the head of the queue",
    OverviewQuery, NO_BODY, json_of(Overview),
)
COSTS: Final = Endpoint(
    "costs", "GET", "/v1/costs", "Say what was spent, by project, user, cluster, day, week or month",
    CostQuery, NO_BODY, json_of(CostReport),
)
BUDGETS: Final = Endpoint(
    "budgets", "GET", "/v1/budgets", "List budgets in the period that is now",
    NoParameters, NO_BODY, json_of(list[BudgetView]),
)
POLICY: Final = Endpoint(
    "policy", "GET", "/v1/policy", "Show which policies decide",
    NoParameters, NO_BODY, json_of(PolicyView),
)
SET_POLICY: Final = Endpoint(
    "set_policy", "PATCH", "/v1/policy", "Decide by other policies from now on",
    NoParameters, json_of(PolicyPatch), json_of(PolicyOutcome), roles=FOR_ADMINS,
)
POLICY_HISTORY: Final = Endpoint(
    "policy_history", "GET", "/v1/policy/history", "List changes of the policies, newest first",
    NoParameters, NO_BODY, json_of(list[PolicyRecord]),
)
PUT_BLOB: Final = Endpoint(
    "put_blob", "PUT", "/v1/blobs/{digest}", "Keep bytes under their SHA-256",
    OfBlob, UPLOAD, json_of(BlobKept), status=HTTPStatus.CREATED,
)
GET_BLOB: Final = Endpoint(
    "get_blob", "GET", "/v1/blobs/{digest}", "Read the bytes of a SHA-256",
    BlobQuery, NO_BODY, BYTES, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
MISSING_BLOBS: Final = Endpoint(
    "missing_blobs", "POST", "/v1/blobs/missing", "Say which blobs are not there",
    NoParameters, json_of(Digests), json_of(Digests),
)
AGENTS_ADDRESS: Final = Endpoint(
    "agents_address", "GET", "/v1/agents/address", "Say where agents find their service",
    NoParameters, NO_BODY, json_of(AgentsAddress), roles=FOR_AGENTS,
)
ACT_ON_AGENTS: Final = Endpoint(
    "act_on_agents", "POST", "/v1/agents/actions", "Drain, resume or forget agents",
    NoParameters, json_of(AgentAction), json_of(AgentNames), roles=FOR_ADMINS, errors=_LOOKUP,
)
CREATE_TOKEN: Final = Endpoint(
    "create_token", "POST", "/v1/tokens", "Make a token",
    NoParameters, json_of(TokenRequest), json_of(NewToken), status=HTTPStatus.CREATED, roles=FOR_ADMINS, errors=(HTTPStatus.CONFLICT, *_BUSY),
)
TOKENS: Final = Endpoint(
    "tokens", "GET", "/v1/tokens", "List tokens, newest first, without their secrets",
    NoParameters, NO_BODY, json_of(list[TokenView]), roles=FOR_ADMINS,
)
REVOKE_TOKEN: Final = Endpoint(
    "revoke_token", "POST", "/v1/tokens/revoke", "Let nobody in with a token any more",
    NoParameters, json_of(TokenRef), json_of(TokenRef), roles=FOR_ADMINS, errors=(HTTPStatus.NOT_FOUND, *_BUSY),
)
HEALTH: Final = Endpoint(
    "health", "GET", "/v1/health", "Whether the process lives",
    NoParameters, NO_BODY, json_of(Health), open=True, errors=(),
)
READY: Final = Endpoint(
    "ready", "GET", "/v1/ready", "Whether the server accepts work",
    NoParameters, NO_BODY, json_of(Health), open=True, errors=(), unready=Health,
)
METRICS: Final = Endpoint(
    "metrics", "GET", "/metrics", "Figures for Prometheus",
    NoParameters, NO_BODY, FIGURES, errors=(),
)
OPENAPI: Final = Endpoint(
    "openapi", "GET", "/v1/openapi.json", "This description",
    NoParameters, NO_BODY, json_of(dict[str, Any]), errors=(),
)
# fmt: on

ENDPOINTS: Final[tuple[Endpoint[Any, Any, Any], ...]] = tuple(
    declared for declared in globals().values() if isinstance(declared, Endpoint)
)
"""All that are declared above, in that order: none can be forgotten here."""
