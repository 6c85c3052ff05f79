"""Bodies that explain jobs: why they are in their state, what would change that, forecasts, and checks of their text."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from spillover.wire.api.jobs import ExpectedStart, ReasonView, Time
from spillover.wire.jobfile import Quantity


class ClusterVerdict(Struct, frozen=True):
    """Why a queued job does not start on one cluster."""

    cluster: str
    role: str
    reason: ReasonView | None
    """Null if the job could start there now."""


class WhyView(Struct, frozen=True):
    """Why a job is in its state, and what would change that."""

    id: str
    state: str
    reason: ReasonView | None
    sentence: str
    """The whole explanation in one sentence."""
    waiting_since: Time | None
    """When it came to the queue the last time; null if it does not wait."""
    waited_s: float | None
    """How long it waited before all attempts together, without the time of attempts; null if it does not wait."""
    spills_at: Time | None
    """When it may be rented; null if never, or already."""
    spills_in_s: float | None
    ahead: int | None
    """Number of queued jobs before it."""
    estimate_s: float | None
    estimate_from: str | None
    """`estimate`, `walltime`, `history` or `default`."""
    clusters: list[ClusterVerdict]
    estimated_cost: float | None = None
    """As in the job."""
    cost_at_walltime: float | None = None
    """As in the job."""
    ends_at: Time | None = None
    """Expected end; null unless it is placed. A minute from now if it has run longer than expected."""
    more_ahead: bool = False
    """Whether more jobs than `ahead` may come before it: in a long queue, the server counts only the first 5,000."""
    expected_start: ExpectedStart | None = None
    """Null unless it waits, and if the server does not know: then `expected_start_note` says why."""
    expected_start_note: str | None = None
    """Why the server does not know when a waiting job will start; else null."""
    estimate_because: str | None = None
    """As in the job."""


class AmountsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Amounts of resources; a missing amount stays as it is."""

    cpu: Quantity | None = None
    """CPUs: 2, 1.5 or 500m."""
    memory: Quantity | None = None
    """Bytes: 512Mi, 2Gi, 2G."""
    gpu: Annotated[int, Meta(ge=0, le=100_000)] | None = None


class MachinesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Hypothetical machines of a cluster."""

    cluster: str
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    resources: AmountsDoc = AmountsDoc()
    """Of each machine; a missing amount is that of the cluster's largest machine."""


class OtherJob(Struct, frozen=True):
    """Another job, in an explanation."""

    id: str | None
    """Null for a job of another project, for a token of one project."""
    name: str
    user: str
    ends_at: Time | None = None
    """When it is expected to end, if it runs."""


class SmallChange(Struct, frozen=True):
    """A change with which a waiting job would start now, as the scheduler decided on a snapshot."""

    what: str
    """`cpu`, `memory`, `gpu`, `size` (all three), `tasks`, `walltime`, `where`, `burst`, `priority`, `hold`, `max_cost`, `budget`, `queue` or `machines`."""
    sentence: str
    """For example: with 6Gi of memory instead of 8Gi, it would start on onprem."""
    cluster: str
    """Where it would start."""
    why: str
    """Why there, in words."""
    changes: dict[str, Any] | None
    """What `PATCH /v1/jobs/{job}` takes to make this change; null if the job cannot be changed that way."""


class ChangesView(Struct, frozen=True):
    """What keeps a waiting job from starting, and the smallest changes that would let it start now."""

    id: str
    state: str
    sentence: str
    """Why it waits."""
    ahead: list[OtherJob]
    """The first few jobs that are tried before it."""
    ahead_in_all: int
    more_ahead: bool
    """Whether there may be more than these."""
    ends: list[OtherJob]
    """Jobs that end before it starts, on the machines where it then starts, if each runs as long as expected."""
    expected_start: ExpectedStart | None
    changes: list[SmallChange]
    tried: int
    """How many changes the scheduler tried."""
    complete: bool
    """False if the search was ended because it took too long."""


class WhatIf(Struct, frozen=True, forbid_unknown_fields=True):
    """Assumptions to test. The server changes nothing."""

    resources: AmountsDoc | None = None
    """Resources of each task of the job; null changes nothing."""
    policy: Annotated[str, Meta(max_length=10_000)] | None = None
    """Such as `wait=compute(0.1),order=priority`; other axes stay as they are. Null changes nothing."""
    machines: Annotated[list[MachinesDoc], Meta(max_length=100)] = field(default_factory=list)


class WhatIfView(Struct, frozen=True):
    """What would happen to a job under the assumptions."""

    sentence: str
    """The answer in one sentence."""
    starts: bool
    """Whether it would start at once."""
    cluster: str | None
    """Where it would start; null if it would not."""
    now: WhyView
    """The explanation without the assumptions."""
    then: WhyView
    """The explanation under the assumptions."""


class Forecast(Struct, frozen=True):
    """Where and when a job would start, computed by the scheduler on its current state."""

    name: str
    cluster: str | None
    """Where it would start now, or spill over to; null if unknown."""
    node: str | None
    """Null if it would not start now."""
    starts_at: Time | None
    """Now if there is room, else when it would spill over; null if unknown."""
    reason: ReasonView
    cost: float | None
    """Estimated cost; null if its cluster is unknown."""
    spills_at: Time | None
    estimate_s: float | None
    estimated_cost: float | None = None
    """Expected cost where it would start, else on the cheapest rented cluster; null if it cannot be rented."""
    cost_at_walltime: float | None = None
    """Highest possible cost: walltime, grace and 30 s to end. Caps hold this amount. Null without a walltime."""
    given_walltime_s: float | None = None
    """Walltime that its cap would allow; null if it has a walltime of its own, or no cap."""
    note: str | None = None
    """A warning that it would hold the rest of a budget because it has no walltime; usually null."""
    expected_start: ExpectedStart | None = None
    """When it would start; null if the server does not know."""
    nodes: int = 0
    """The number of nodes on which the tasks of a gang would start now; `node` is that of the first. 0 for other jobs."""


class Forecasts(Struct, frozen=True, omit_defaults=True):
    """One forecast for each job, in the order of the request."""

    jobs: list[Forecast]
    warnings: list[str] = []
    """As for submitted jobs."""


class CheckRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a job file or script to check."""

    text: Annotated[str, Meta(max_length=262_144)]
    name: Annotated[str, Meta(max_length=200)] = "job.yaml"
    """Name of the file; its ending says which language a script is in."""
    forecast: bool = False
    """Whether to ask the scheduler too where and when the jobs would start."""


class TextProblem(Struct, frozen=True):
    """One problem of a text."""

    line: int | None
    """Counted from 1; null if it concerns the whole."""
    path: str
    """The field, such as `spec.resources.cpu`; empty for the whole."""
    message: str


class CheckView(Struct, frozen=True):
    """What is wrong with a text, or the jobs in it."""

    problems: list[TextProblem]
    """By line. Empty if the jobs can be submitted."""
    more: int
    """Problems beyond these."""
    jobs: list[dict[str, Any]]
    """The jobs as documents that `POST /v1/jobs` takes; empty if there are problems."""
    warnings: list[TextProblem]
    """What is ignored, and the jobs run without it."""
    forecasts: list[Forecast] | None = None
    """One for each job; null if there are problems, or if none was asked for."""
