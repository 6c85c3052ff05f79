"""Parameters of the HTTP API: the variable parts of paths, and the query.

The server decodes and documents them with these classes, and the client fills them in. A field whose name occurs in the
path of its endpoint is a path parameter. All others are query parameters and have a default. A path parameter holds no
slash: values that may hold one, such as CLUSTER/NAME of an agent, go into the query or the body.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from spillover.model.budget import USAGE_BY, CostBy, MachinesBy
from spillover.model.files import DIGEST_RULE, is_digest
from spillover.model.ids import is_name
from spillover.model.units import FOREVER

NAME_PATTERN: Final = "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
"""The rule of `is_name`, for the schema."""


class PathRule(Struct, frozen=True):
    """The rule of a path parameter, and the error for other values. Without a rule, they get the error of a query."""

    fits: Callable[[str], bool]
    status: HTTPStatus
    kind: str
    """Kind of the problem."""
    told: str


class TextRule(Struct, frozen=True):
    """The rule of a query parameter that a schema cannot say well."""

    problem: Callable[[str], str | None]
    """Returns what is wrong with a text; None if nothing is."""


STATES: Final = ("HELD", "QUEUED", "PLACED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


def _states_problem(text: str) -> str | None:
    """Return what is wrong with states that are separated by commas."""
    wrong = next((word for word in text.split(",") if word not in STATES), None)
    if wrong is None:
        return None
    return f"{wrong[:100]!r} is not a state; write one or several of {', '.join(STATES)}, separated by commas"


_STATE: Final = f"({'|'.join(STATES)})"
States = Annotated[
    str,
    Meta(max_length=100, extra_json_schema={"pattern": f"^{_STATE}(,{_STATE})*$"}),
    TextRule(_states_problem),
]


def _keys_problem(text: str) -> str | None:
    """Return what is wrong with keys of usage that are separated by commas."""
    words = text.split(",")
    wrong = next((word for word in words if word not in USAGE_BY), None)
    if wrong is not None:
        return f"{wrong[:100]!r} is not a key; write one or several of {', '.join(USAGE_BY)}, separated by commas"
    return f"{text!r} names a key twice" if len(set(words)) < len(words) else None


_KEY: Final = f"({'|'.join(USAGE_BY)})"
UsageKeys = Annotated[
    str,
    Meta(max_length=100, extra_json_schema={"pattern": f"^{_KEY}(,{_KEY})*$"}),
    TextRule(_keys_problem),
]
JobName = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, max_length=63, description="An id, a unique prefix of one, or a unique name"),
    PathRule(is_name, HTTPStatus.NOT_FOUND, "unknown", "no job has such an id or name"),
]
Digest = Annotated[
    str,
    Meta(pattern="^[0-9a-f]{64}$", description=f"Name of a blob: {DIGEST_RULE}"),
    PathRule(is_digest, HTTPStatus.BAD_REQUEST, "invalid", f"the name of a blob is {DIGEST_RULE}"),
]
SessionName = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, max_length=63, description="Id of a session"),
    PathRule(is_name, HTTPStatus.NOT_FOUND, "unknown", "there is no such session, or it has ended"),
]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Moment = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]
Revision = Annotated[int, Meta(ge=0, le=FOREVER)]


class NoParameters(Struct, frozen=True):
    """No parameters."""


class OfJob(Struct, frozen=True):
    """Selects a job."""

    job: JobName


class OfBlob(Struct, frozen=True):
    """Selects a blob."""

    digest: Digest


class SecretsQuery(Struct, frozen=True):
    """Selects secrets."""

    project: Text | None = None


class OfSession(Struct, frozen=True):
    """Selects a session."""

    session: SessionName


class ListQuery(Struct, frozen=True):
    """Selects the jobs to list."""

    state: States | None = None
    """One state or several, separated by commas."""
    project: Text | None = None
    user: Text | None = None
    name: Text | None = None
    since: Moment | None = None
    """Submitted at or after this time, RFC 3339 with a zone."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """`next` of the previous page."""
    members: bool = False
    """Whether to list members of arrays too."""
    starts: bool = False
    """Whether to compute when waiting jobs are expected to start."""
    queue: Text | None = None


class AgentQuery(Struct, frozen=True):
    """Selects an agent."""

    agent: Text = "-"
    """Its name, or CLUSTER/NAME where clusters have agents of the same name."""


class NodesQuery(Struct, frozen=True):
    """Selects nodes of external clusters."""

    cluster: Text = ""
    """Only nodes of this cluster."""


class OverviewQuery(Struct, frozen=True):
    """How many entries of each kind to show."""

    running: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Most placed and running jobs."""
    queued: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Most jobs from the head of the queue."""
    agents: Annotated[int, Meta(ge=0, le=10_000)] = 1000


class CostQuery(Struct, frozen=True):
    """How to group costs, and since when."""

    by: CostBy = "project"
    since: Moment | None = None
    """Attempts that ended at or after this time, RFC 3339 with a zone."""


class SeriesQuery(Struct, frozen=True):
    """Since when."""

    since: Moment | None = None
    """The first time, RFC 3339 with a zone; the last hour if it is left out."""


class UsageQuery(Struct, frozen=True):
    """How to group usage, and since when."""

    by: UsageKeys = "project"
    """One key or several, separated by commas."""
    since: Moment | None = None
    """Attempts that run, or ended at or after this time, RFC 3339 with a zone."""


class MachineCostQuery(Struct, frozen=True):
    """How to group costs of machines, and since when."""

    by: MachinesBy = "pool"
    since: Moment | None = None
    """Machines that exist, or were gone on the day of this time or later, RFC 3339 with a zone."""


class PastQuery(Struct, frozen=True):
    """Selects finished jobs."""

    since: Moment | None = None
    """Submitted at or after this time, RFC 3339 with a zone."""
    until: Moment | None = None
    """Submitted before this time, RFC 3339 with a zone."""
    ended_since: Moment | None = None
    """Ended at or after this time, RFC 3339 with a zone."""


class WaitQuery(OfJob, frozen=True):
    """How long to wait for a job to end."""

    timeout: Annotated[float, Meta(ge=0, le=60)] = 30.0
    """Seconds. Then the answer is the job in its current state."""


class LogsQuery(OfJob, frozen=True):
    """Selects output, and where to start."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Default: the accepted attempt, else the newest."""
    task: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    offset: Revision = 0
    """Bytes to skip."""
    follow: bool = False
    """Whether to continue until the attempt has ended."""


class FilesQuery(OfJob, frozen=True):
    """Selects the attempt whose files to list."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Default: the last attempt that returned files."""


class BlobQuery(OfBlob, frozen=True):
    """Selects a part of a blob."""

    offset: Revision = 0
    """Bytes to skip."""


class EventsQuery(Struct, frozen=True):
    """Selects a part of the history."""

    after: Revision | None = None
    """Only events after this revision. Default: all stored events or, with `follow`, only new ones."""
    follow: bool = False
    """Whether to continue with new events."""
    job: Text | None = None
    """Only events of this job."""
    user: Text | None = None
    """Only events that this person caused."""
    since: Moment | None = None
    """Only events at or after this time, RFC 3339 with a zone."""
    until: Moment | None = None
    """Only events before this time, RFC 3339 with a zone; not with `follow`."""
    cycles: bool = True
    """Whether to return `decided`, one event for each cycle of the scheduler."""


class NotificationsQuery(Struct, frozen=True):
    """Selects notifications that were not sent."""

    failed: bool | None = None
    """Only those that failed, or only those that wait."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,19}-[0-9a-z]{1,64}$")] | None = None
    """`next` of the previous page."""


class AuditQuery(Struct, frozen=True):
    """Selects what people did."""

    user: Text | None = None
    since: Moment | None = None
    """At or after this time, RFC 3339 with a zone."""
    until: Moment | None = None
    """Before this time, RFC 3339 with a zone."""
    type: Text | None = None
    """Only events of this type, such as `job_stopping`."""
    job: JobName | None = None
    """Only this job; of an array, also its members. A job that is gone from the archive needs its full id."""
    project: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] | None = None
    """`next` of the previous page."""
