"""What an address may carry, as types: the parts of a path that vary, and what stands behind the `?`.

The server decodes and describes them by these classes, and the client fills them in. A field whose name is in the path of its
endpoint is a part of that path; all others are of the query, and have a default. A part of a path holds no slash: what may, such as
CLUSTER/NAME of an agent, goes into the query or the body.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from spillover.model.budget import CostBy
from spillover.model.files import DIGEST_RULE, is_digest
from spillover.model.ids import is_name
from spillover.model.units import FOREVER

NAME_PATTERN: Final = "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
"""What `is_name` takes, for a schema."""


class PathRule(Struct, frozen=True):
    """What may stand in a path, and what somebody is told who asks for something else. Without one, a misfit is answered as in a query."""

    fits: Callable[[str], bool]
    status: HTTPStatus
    kind: str
    """The word of the problem."""
    told: str


JobName = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, max_length=63, description="An id, a unique prefix of one, or a unique name"),
    PathRule(is_name, HTTPStatus.NOT_FOUND, "unknown", "no job has such an id or name"),
]
Digest = Annotated[
    str,
    Meta(pattern="^[0-9a-f]{64}$", description=f"What a blob is named by: {DIGEST_RULE}"),
    PathRule(is_digest, HTTPStatus.BAD_REQUEST, "invalid", f"a blob is named by {DIGEST_RULE}"),
]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Moment = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]
Revision = Annotated[int, Meta(ge=0, le=FOREVER)]


class NoParameters(Struct, frozen=True):
    """Nothing."""


class OfJob(Struct, frozen=True):
    """Which job."""

    job: JobName


class OfBlob(Struct, frozen=True):
    """Which blob."""

    digest: Digest


class ListQuery(Struct, frozen=True):
    """Which jobs to list."""

    state: (
        Literal["HELD", "QUEUED", "PLACED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"] | None
    ) = None
    project: Text | None = None
    user: Text | None = None
    name: Text | None = None
    since: Moment | None = None
    """Submitted at or after, RFC 3339 with a zone."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """`next` of the page before."""
    members: bool = False
    """Whether members of arrays are listed too."""


class OverviewQuery(Struct, frozen=True):
    """How much to show of each."""

    running: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Jobs that run or have a place."""
    queued: Annotated[int, Meta(ge=0, le=1000)] = 50
    """Jobs at the head of the queue."""
    agents: Annotated[int, Meta(ge=0, le=10_000)] = 1000


class CostQuery(Struct, frozen=True):
    """What costs are summed by, and since when."""

    by: CostBy = "project"
    since: Moment | None = None
    """Attempts that were over at or after it, RFC 3339 with a zone."""


class PastQuery(Struct, frozen=True):
    """Which jobs that have ended."""

    since: Moment | None = None
    """Submitted at or after, RFC 3339 with a zone."""
    until: Moment | None = None
    """Submitted before, likewise."""
    ended_since: Moment | None = None
    """Ended at or after, likewise."""


class WaitQuery(OfJob, frozen=True):
    """How long to wait for a job to end."""

    timeout: Annotated[float, Meta(ge=0, le=60)] = 30.0
    """Seconds; the job is answered as it is when they are over."""


class LogsQuery(OfJob, frozen=True):
    """Which output, and from where on."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Left out: the accepted one, else the newest."""
    task: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    offset: Revision = 0
    """Bytes to skip."""
    follow: bool = False
    """Whether to go on until the attempt has ended."""


class FilesQuery(OfJob, frozen=True):
    """Files of which attempt."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Left out: the last that brought any back."""


class BlobQuery(OfBlob, frozen=True):
    """Which part of a blob."""

    offset: Revision = 0
    """Bytes to skip."""


class EventsQuery(Struct, frozen=True):
    """Which part of history."""

    after: Revision | None = None
    """Only what is newer than this revision. Left out: all that is kept or, when following, only what is to come."""
    follow: bool = False
    """Whether to go on with what is to come."""
    job: Text | None = None
    """Only events of this job."""
