"""What a policy is: one small Protocol for each axis of the cycle. An instance is made once, from its options."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, field

from spillover.core.estimates import estimate, likely
from spillover.core.jobs import Job
from spillover.core.state import State
from spillover.core.tally import Tally
from spillover.model.job import Burst, Shape
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

FAILED: Final = -1
"""Answered for a wait policy that failed: the job is not rented, whatever caps its wait."""


class Order(Protocol):
    """Which job is tried first."""

    def key(self, job: Job) -> Any:
        """Sorts before the key of jobs that come later; must not change while nothing of the job does.

        Equal keys are tried in the order of submission.
        """
        ...


class Ranks(Order, Protocol):
    """An order that ranks projects too: their jobs come in the order of ranks, and those of one project by their keys."""

    def ranks(self, project: str, used: int) -> int:
        """The rank of a project by what it has used of late; lower is earlier."""
        ...


class Backfill(Protocol):
    """What happens behind a job that does not fit."""

    strict: bool
    """Whether nothing behind it is tried."""
    reservations: int
    """How many jobs that do not fit keep what they will need, so that nobody who passes them delays them."""


class Case(Struct, frozen=True):
    """What a wait policy is told of a job."""

    shape: Shape
    expected: int
    """Nanoseconds that it is expected to run."""
    returned: int
    """How often it was brought back from rented capacity."""
    tally: Tally
    """What was seen of all jobs so far."""
    likely: int
    """Nanoseconds that it is likely to run: what is expected, or what jobs like it did if it only states a limit."""
    known: bool
    """Whether anything is known of its runtime; else what is expected is only assumed."""


class Wait(Protocol):
    """How long a job waits for owned capacity before it is rented."""

    def wait(self, case: Case) -> int:
        """Nanoseconds; FOREVER never rents."""
        ...


class MachineView(Protocol):
    """A machine with room for a task, as a place policy sees it. Nothing of it may be written to. More may be added in later releases."""

    @property
    def name(self) -> str:
        """Of the node, unique within its cluster."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the node."""
        ...

    @property
    def total(self) -> Resources:
        """What it has in all."""
        ...

    @property
    def cpu(self) -> int:
        """Thousandths of a CPU that are free."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that are free."""
        ...

    @property
    def gpu(self) -> int:
        """GPUs that are free."""
        ...

    @property
    def tasks(self) -> int:
        """How many more tasks it takes; FOREVER if any number."""
        ...

    def amount(self, name: str) -> int:
        """How much of a named resource is free, such as `example.com/fpga`."""
        ...


class Place(Protocol):
    """Which of several machines with room is taken."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        """Lowest wins; equal scores go to the machine that was there first."""
        ...


class Queue(Protocol):
    """An agent that prefetches one more lease, as a router sees it. Nothing of it may be written to."""

    @property
    def index(self) -> int:
        """Its place in the order of joining, among the agents of its cluster, from 0."""
        ...

    @property
    def ahead(self) -> int:
        """How many more leases it prefetches; at least 1."""
        ...

    @property
    def load(self) -> int:
        """Nanoseconds of prefetched work, by how long its recent tasks ran."""
        ...

    @property
    def turn(self) -> int:
        """Of all prefetched leases, which was its last; 0 if none was."""
        ...


class Route(Protocol):
    """Whose queue a prefetched lease joins."""

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """One of those that have room for it, of which there is at least one, in the order of joining.

        `agents` is how many the cluster has, whether they have room or not; `seed` is another for each lease.
        """
        ...


class Guarded(Protocol):
    """A policy of an installed package, which may fail."""

    axis: str
    name: str
    policy: Any
    """What is asked."""
    failures: int
    """How often it raised, or gave what is no answer."""
    error: str
    """What it raised last, in one line."""

    def look_at(self, state: State) -> None:
        """The book whose jobs it is asked about from now on."""
        ...


class Policies(Struct, frozen=True):
    """One policy for each axis, ready to be asked."""

    chosen: PolicySet
    order: Order
    backfill: Backfill
    wait: Wait
    place: Place
    route: Route
    min_wait: int = 0
    """Nanoseconds that every job waits at the least."""
    max_wait: int | None = None
    """Nanoseconds that no job waits longer; None is no limit."""
    max_queue: int | None = None
    """Jobs past this place in the queue are rented at once; None is no limit."""
    rent_cpu_only: bool = False
    """Whether jobs without GPUs are rented at once."""
    short_job_threshold: int = 0
    """Nanoseconds; jobs that are expected to run shorter are rented at once."""
    guards: tuple[Guarded, ...] = ()
    """Those of these policies that installed packages bring."""
    missing: dict[str, str] = field(default_factory=dict)
    """By axis, why its policy could not be made; the fallback is there instead."""

    @property
    def looks_ahead(self) -> bool:
        """Whether any of them asks when what runs is expected to end."""
        return self.backfill.reservations > 0 or self.reviews

    @property
    def depth(self) -> int:
        """How many lanes may be stuck before a cycle looks no further."""
        return 1 if self.backfill.strict else self.chosen.depth

    def keeps_room_for(self, job: Job) -> bool:
        """Whether room is kept for a job that does not fit: one that may be rented takes what it gets."""
        return (
            self.backfill.reservations > 0
            and job.kind.shape.burst is not Burst.ALWAYS
            and (job.due is None or job.partly_due)
        )

    @property
    def reviews(self) -> bool:
        """Whether the wait policy looks at all that waits when a job comes and stays queued."""
        return hasattr(self.wait, "review")

    @property
    def back_after(self) -> int | None:
        """Nanoseconds on rented capacity after which a job is brought back to the queue, once; None as a rule."""
        return getattr(self.wait, "back_after", None)

    def case_of(self, job: Job, tally: Tally) -> Case:
        """What the wait policy is told of a job."""
        shape, returned, told = job.kind.shape, job.extra.returned, job.terms.estimate
        if told is not None:
            return Case(shape, told, returned, tally, told, known=True)
        unknown = self.chosen.unknown_runtime
        expected = estimate(job, unknown)
        known = expected.source != "default"
        return Case(shape, expected.runtime, returned, tally, likely(job, unknown), known)

    def wait_of(self, case: Case) -> int:
        """How long a job waits, with floor and cap."""
        if self.rent_cpu_only and not case.shape.resources.gpu:
            return 0
        if case.expected < self.short_job_threshold:
            return 0
        wait = self.wait.wait(case)
        if wait < 0:  # FAILED
            return FOREVER
        wait = max(self.min_wait, wait)
        return wait if self.max_wait is None else min(wait, self.max_wait)
