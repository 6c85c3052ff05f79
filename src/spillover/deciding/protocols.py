"""Defines what a policy is: one small Protocol for each axis.

The loader creates each policy once, from its options.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, field

from spillover.core.learned.estimates import estimate, likely, reckoned
from spillover.core.learned.tally import Tally
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.model.job import Burst, Shape
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

FAILED: Final = -1
"""The answer for a wait policy that failed: the job is not rented, whatever limits its wait."""


class Order(Protocol):
    """Decides which job is tried first."""

    def key(self, job: Job) -> Any:
        """Return a sort key; lower is tried earlier. It must not change while the job does not change.

        Jobs with equal keys are tried in the order of submission.
        """
        ...


class Ranks(Order, Protocol):
    """An order that also ranks projects. Jobs sort by the rank of their project first, then by their keys."""

    def ranks(self, project: str, used: int) -> int:
        """Return the rank of a project from its recent usage; lower is earlier."""
        ...


class Backfill(Protocol):
    """Decides what may start behind a job that does not fit."""

    strict: bool
    """Whether the cycle stops at a job that does not fit."""
    reservations: int
    """How many jobs that do not fit get a reservation, so that jobs behind them do not delay them."""


class Rental(Struct, frozen=True, gc=False):
    """What renting a job now would mean on the machines of pools."""

    boot: int
    """Nanoseconds until it would start, in half of all cases; 0 if there is room on a machine that is ready."""
    boot_p90: int
    """The same, in nine of ten cases."""
    price: int
    """What it would add to the bill, in millionths: nothing for a slot that is paid anyway, else its share of the time
    that is not, else its share of another machine, with boot and whole billing steps."""
    usual: int
    """Its share of the cheapest machine for its runtime alone, in millionths, to compare the price with."""
    idle: bool = False
    """Whether it would run on a machine that is ready, has no tasks, and is paid until the job ends."""


class Case(Struct, frozen=True):
    """What a wait policy knows about a job."""

    shape: Shape
    expected: int
    """Expected runtime in nanoseconds."""
    returned: int
    """How many times the job was moved back from rented capacity."""
    tally: Tally
    """Counts over all jobs so far."""
    likely: int
    """Likely runtime in nanoseconds: the expected one, or that of similar jobs if the job only sets a limit."""
    known: bool
    """Whether anything is known about the runtime; otherwise `expected` is an assumption."""
    rental: Rental | None = None
    """What renting it now would mean; None if no pool could rent it, or if the question is not whether to rent it now."""
    reckoned: int = 0
    """Runtime with which to reckon what renting costs, in nanoseconds: likely, with a chance that the job takes its whole
    walltime; 0 is the likely one.
    """


class Wait(Protocol):
    """Decides how long a job waits for owned capacity before it may be rented."""

    def wait(self, case: Case) -> int:
        """Return the wait in nanoseconds; FOREVER means never rent."""
        ...


class MachineView(Protocol):
    """A candidate machine, as a place policy sees it. Read-only. Later releases may add properties."""

    @property
    def name(self) -> str:
        """The name of the node, unique within its cluster."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        ...

    @property
    def total(self) -> Resources:
        """Total capacity."""
        ...

    @property
    def cpu(self) -> int:
        """Free CPU in thousandths."""
        ...

    @property
    def memory(self) -> int:
        """Free memory in bytes."""
        ...

    @property
    def gpu(self) -> int:
        """Free GPUs."""
        ...

    @property
    def tasks(self) -> int:
        """The number of tasks that it can still take; FOREVER if unlimited."""
        ...

    def amount(self, name: str) -> int:
        """Return the free amount of a named resource, such as `example.com/fpga`."""
        ...


class Place(Protocol):
    """Decides which of several candidates gets a task."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Return a score; the lowest wins. Among equal scores the machine that joined first wins."""
        ...


class Queue(Protocol):
    """An agent that can take one more prefetched lease, as a route policy sees it. Read-only."""

    @property
    def index(self) -> int:
        """Its position among the agents of its cluster in the order of joining, from 0."""
        ...

    @property
    def ahead(self) -> int:
        """How many more leases it prefetches; at least 1."""
        ...

    @property
    def load(self) -> int:
        """Nanoseconds of prefetched work, estimated from its recent tasks."""
        ...

    @property
    def turn(self) -> int:
        """The number of its last prefetched lease, counted over all agents; 0 if it had none."""
        ...


class Route(Protocol):
    """Decides which agent gets a prefetched lease."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """Return one of `queues`: the agents with room for the lease, at least one, in the order of joining.

        `agents` is the number of all agents of the cluster, with room or without. `seed` differs for each lease.
        """
        ...


class SizeCase(Struct, frozen=True):
    """What a size policy knows about a gang of elastic size that is about to start, and about its cluster."""

    shape: Shape
    """What it asks for: `shape.tasks` is its least number of tasks, `shape.most` its largest."""
    free: int
    """How many of its tasks fit on the cluster now; at least `shape.tasks`. It may be more than `shape.most`."""
    others: tuple[int, ...]
    """What each other waiting job asks for that would fit beside its least size, in tasks of the gang, rounded up.

    GPUs count, or CPUs for a gang without GPUs. Jobs are in the order of the queue, each member of an array is one, and
    the first 256 are here. A gang of elastic size asks for its largest size.
    """


class Size(Protocol):
    """Decides how many tasks a gang of elastic size starts with."""

    def most(self, case: SizeCase) -> int:
        """Return the most tasks that it may take, from its least number to its largest.

        It takes the largest size up to this that fits, and that its caps, limits and reservations of others allow.
        """
        ...


class Guarded(Protocol):
    """A policy from an installed package, which may fail."""

    axis: str
    name: str
    policy: Any
    """The policy itself."""
    failures: int
    """How many times it raised an error or returned an invalid answer."""
    error: str
    """The last error, in one line."""

    def look_at(self, state: State) -> None:
        """Set the state whose jobs the policy is asked about from now on."""
        ...


class Policies(Struct, frozen=True):
    """One policy for each axis, loaded and ready to use."""

    chosen: PolicySet
    order: Order
    backfill: Backfill
    wait: Wait
    place: Place
    route: Route
    size: Size
    min_wait: int = 0
    """The shortest wait of any job, in nanoseconds."""
    max_wait: int | None = None
    """The longest wait of any job, in nanoseconds; None is no limit."""
    max_queue: int | None = None
    """Jobs beyond this position in the queue may be rented at once; None is no limit."""
    rent_cpu_only: bool = False
    """Whether jobs without GPUs may be rented at once."""
    short_job_threshold: int = 0
    """Nanoseconds. Jobs with a shorter expected runtime may be rented at once."""
    guards: tuple[Guarded, ...] = ()
    """The policies that come from installed packages."""
    missing: dict[str, str] = field(default_factory=dict)
    """By axis, why its policy could not be loaded. The fallback policy decides instead."""

    @property
    def looks_ahead(self) -> bool:
        """Whether any policy needs the expected ends of running jobs."""
        return self.backfill.reservations > 0 or self.reviews

    @property
    def keeps_near(self) -> bool:
        """Whether the place policy wants the tasks of each gang as near to each other as possible."""
        return getattr(self.place, "near", False)

    @property
    def takes_all(self) -> bool:
        """Whether gangs of elastic size always take the largest size that fits, so that nobody need look at other jobs."""
        return getattr(self.size, "takes_all", False)

    @property
    def depth(self) -> int:
        """How many lanes may be stuck before a cycle stops."""
        return 1 if self.backfill.strict else self.chosen.depth

    def keeps_room_for(self, job: Job) -> bool:
        """Whether a job that does not fit may get a reservation. A job that may be rented gets none."""
        return (
            self.backfill.reservations > 0
            and job.kind.shape.burst is not Burst.ALWAYS
            and (job.due is None or job.partly_due)
        )

    @property
    def reviews(self) -> bool:
        """Whether the wait policy reviews all waiting jobs when a new job stays queued."""
        return hasattr(self.wait, "review")

    @property
    def back_after(self) -> int | None:
        """Nanoseconds on rented capacity after which a job returns to the queue, once; None if it never does."""
        return getattr(self.wait, "back_after", None)

    @property
    def compares(self) -> bool:
        """Whether the wait policy may use what renting a job now would mean."""
        return getattr(self.wait, "compares", False)

    def case_of(self, job: Job, tally: Tally, rental: Rental | None = None) -> Case:
        """Collect what the wait policy may know about a job."""
        shape, returned, told = job.kind.shape, job.extra.returned, job.terms.estimate
        if told is not None:
            return Case(shape, told, returned, tally, told, known=True, rental=rental)
        unknown = self.chosen.unknown_runtime
        expected = estimate(job, unknown)
        known = expected.source != "default"
        return Case(
            shape,
            expected.runtime,
            returned,
            tally,
            likely(job, unknown),
            known,
            rental,
            reckoned(job, unknown),
        )

    def wait_of(self, case: Case) -> int:
        """Return how long a job waits, within the minimum and maximum."""
        if self.rent_cpu_only and not case.shape.resources.gpu:
            return 0
        if case.expected < self.short_job_threshold:
            return 0
        wait = self.wait.wait(case)
        if wait < 0:  # FAILED
            return FOREVER
        wait = max(self.min_wait, wait)
        return wait if self.max_wait is None else min(wait, self.max_wait)
