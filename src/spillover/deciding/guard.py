"""Keeps policies of installed packages from stopping a cycle.

A guard catches errors and invalid answers of a policy, counts them and returns a fallback. The same failure always
gives the same fallback, so replay decides the same. Built-in policies are called directly, at no extra cost. A guard
caches answers where a cycle compares an answer with an earlier one: otherwise a policy that changes its answers could
lose jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final

from msgspec import Struct, structs

from spillover.core.records.jobs import QUEUED, Job
from spillover.core.state import State
from spillover.deciding.protocols import FAILED, Case, MachineView, Queue, SizeCase
from spillover.model.bounds import bounded, plain
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

LAST: Final = (9,)
"""Sorts behind every key that `_sortable` returns."""
SPARE: Final = 1024
"""Cached answers kept beyond those of live jobs."""
MOST_ERROR: Final = 200
"""Longest error text shown, in characters."""
CAUGHT: Final = (Exception, SystemExit)
"""Errors that a guard catches."""


class PolicyGuard:
    """A policy of an installed package, with its failures."""

    def __init__(self, axis: str, name: str, policy: Any) -> None:
        self.axis = axis
        self.name = name
        self.policy = policy
        """The policy itself; the live server wraps it in a timer."""
        self.failures = 0
        """How many times it raised an error or returned an invalid answer."""
        self.error = ""
        """The last error, in one line."""

    def look_at(self, state: State) -> None:
        """Set the state whose jobs the policy is asked about from now on."""

    def failed(self, error: BaseException) -> None:
        """Count a failure."""
        self.failures += 1
        self.error = line_of(error)


class GuardedOrder(PolicyGuard):
    """Guards an order policy: jobs without a valid key come last, in the order of submission."""

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__("order", name, policy)
        self._keys: dict[str, tuple[object, tuple[Any, ...]]] = {}
        """By job, the values that its key depends on, and the key."""
        self._jobs: dict[Any, Job] = {}

    def look_at(self, state: State) -> None:
        """See PolicyGuard."""
        self._jobs = state.jobs

    def key(self, job: Job) -> tuple[Any, ...]:
        """See Order; the policy sees only fields that do not change while the job is queued."""
        made_from = job.priority, job.arrived, job.attempt, job.seq
        known = self._keys.get(job.id)
        if known is not None and known[0] == made_from:
            return known[1]
        try:
            key = _sortable(self.policy.key(_as_queued(job)))
        except CAUGHT as error:
            self.failed(error)
            key = LAST
        self._keys[job.id] = (made_from, key)
        if len(self._keys) > 2 * len(self._jobs) + SPARE:
            self._keys = {each: key for each, key in self._keys.items() if each in self._jobs}
        return key


class GuardedWait(PolicyGuard):
    """Guards a wait policy: a job without a valid wait is not rented."""

    compares = True
    """See Policies.compares."""

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__("wait", name, policy)
        back_after = getattr(policy, "back_after", None)
        if back_after is not None and (
            not isinstance(back_after, int) or isinstance(back_after, bool) or back_after <= 0
        ):
            raise TypeError("back_after must be nanoseconds, or None")
        self.back_after: int | None = None if back_after is None else bounded(int(back_after))
        """See Policies.back_after."""

    def wait(self, case: Case) -> int:
        """See Wait; return FAILED if the policy failed."""
        try:
            return self._ask(case)
        except CAUGHT as error:
            self.failed(error)
            return FAILED

    def error_of(self, case: Case) -> str | None:
        """Return the error of the policy for a job, in one line; None if it answers."""
        try:
            self._ask(case)
        except CAUGHT as error:
            return line_of(error)
        return None

    def _ask(self, case: Case) -> int:
        # A copy, so that a policy that changes it affects nothing else.
        own = structs.replace(case, tally=structs.replace(case.tally))
        wait = self.policy.wait(own)
        number = isinstance(wait, float) or (hasattr(wait, "__index__") and not isinstance(wait, bool))
        if not number or not wait >= 0:  # written so that nan fails too
            raise TypeError(f"wait() returned {_shown(wait)}, not nanoseconds from 0")
        return FOREVER if wait >= FOREVER else bounded(int(wait))


class GuardedPlace(PolicyGuard):
    """Guards a place policy: machines without a valid score come last, in the order of joining."""

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__("place", name, policy)
        self._by_numbers = _takes(policy.score, 5) and not _takes(policy.score, 2)
        """Whether it has the signature of release 0.4 and before: `score(cpu, memory, gpu, shape, total)`."""
        self._scores: dict[tuple[SeenMachine, tuple[tuple[str, str], ...], Shape], int] = {}

    def score(self, machine: MachineView, shape: Shape) -> int:
        """See Place; the policy sees a copy."""
        total = machine.total
        named = tuple([(name, machine.amount(name)) for name, _ in total.other])
        seen = SeenMachine(
            machine.name,
            total,
            machine.cpu,
            machine.memory,
            machine.gpu,
            machine.tasks,
            named,
            machine.labels,
        )
        asked = seen, tuple(machine.labels.items()), shape
        known = self._scores.get(asked)
        if known is not None:
            return known
        try:
            if self._by_numbers:
                given = self.policy.score(seen.cpu, seen.memory, seen.gpu, shape, total)
            else:
                given = self.policy.score(seen, shape)
            if not hasattr(given, "__index__"):
                raise TypeError(f"score() returned {_shown(given)}, not a whole number")
            score = bounded(index(given), FOREVER, -FOREVER)
        except CAUGHT as error:
            self.failed(error)
            score = FOREVER
        if len(self._scores) >= 16 * SPARE:
            self._scores.clear()
        self._scores[asked] = score
        return score


class SeenMachine(Struct, frozen=True):
    """A copy of a machine; see MachineView."""

    name: str
    total: Resources
    cpu: int
    memory: int
    gpu: int
    tasks: int
    named: tuple[tuple[str, int], ...]
    labels: Mapping[str, str]

    def amount(self, name: str) -> int:
        """See MachineView."""
        return dict(self.named).get(name, 0)

    def __hash__(self) -> int:
        return hash((self.name, self.cpu, self.memory, self.gpu, self.tasks, self.named))


class GuardedRoute(PolicyGuard):
    """Guards a route policy: without a valid answer, the lease goes to the agent that can prefetch the most."""

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__("route", name, policy)

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Queue:
        """See Route; the policy sees copies."""
        shown = [ShownMachine(each.index, each.ahead, each.load, each.turn) for each in queues]
        try:
            picked = self.policy.pick(shown, agents, seed)
            if picked not in shown:
                raise TypeError(f"pick() returned {_shown(picked)}, not one of the queues")
            return queues[shown.index(picked)]
        except CAUGHT as error:
            self.failed(error)
            return max(queues, key=lambda queue: queue.ahead)


class ShownMachine(Struct, frozen=True):
    """A copy of an agent's queue; see Queue."""

    index: int
    ahead: int
    load: int
    turn: int


class GuardedSize(PolicyGuard):
    """Guards a size policy: without a valid answer, a gang takes the largest size that fits."""

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__("size", name, policy)

    def most(self, case: SizeCase) -> int:
        """See Size."""
        least, most = case.shape.tasks, case.shape.most
        try:
            given = self.policy.most(case)
            if (
                not hasattr(given, "__index__")
                or isinstance(given, bool)
                or not least <= index(given) <= most
            ):
                raise TypeError(
                    f"most() returned {_shown(given)}, not a number of tasks from {least} to {most}"
                )
            return index(given)
        except CAUGHT as error:
            self.failed(error)
            return most


class FixedBackfill:
    """The settings of a backfill policy, read once when it was loaded."""

    def __init__(self, policy: Any) -> None:
        strict, reservations = policy.strict, getattr(policy, "reservations", 0)
        if not isinstance(strict, bool) or not isinstance(reservations, int) or reservations < 0:
            raise TypeError("strict must be true or false, and reservations a whole number from 0")
        self.strict = strict
        self.reservations = reservations


def _takes(method: Callable[..., Any], count: int) -> bool:
    """Return whether a method can be called with `count` arguments."""
    from inspect import signature  # noqa: PLC0415 - slow to import, and only for policies of packages

    try:
        signature(method).bind(*[None] * count)
    except (TypeError, ValueError):  # ValueError: it has no signature
        return False
    return True


def _as_queued(job: Job) -> Job:
    """Copy a job without the fields that change while it is queued; nested values are copied too."""
    members = job.extra.members
    if members is not None:
        members = structs.replace(members, pending=(), live=0, ended={}, due=0)
    extra = structs.replace(job.extra, members=members)
    return structs.replace(job, phase=QUEUED, latest=None, due=None, extra=extra)


def line_of(error: BaseException) -> str:
    """Format an error with its type in one line, even if formatting it fails."""
    kind, text = type(error).__name__, words_of(error)
    return plain(kind if text == kind else f"{kind}: {text}", MOST_ERROR)


def words_of(error: BaseException) -> str:
    """Return the message of an error in one line; its type if it has no message."""
    try:
        text = " ".join(str(error).split())
    except CAUGHT:
        text = ""
    return plain(text or type(error).__name__, MOST_ERROR)


def _shown(value: object) -> str:
    return f"{value}" if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"


def _sortable(key: object) -> tuple[Any, ...]:
    """Convert a key so that it sorts with any other: numbers, then text, then tuples of these."""
    if hasattr(key, "__index__"):
        return 0, index(key)
    if isinstance(key, float) and key == key:  # noqa: PLR0124 - nan differs from itself, and has no place in an order
        return 0, float(key)
    if isinstance(key, str):
        return 1, str(key)
    if isinstance(key, tuple | list):
        return 2, *map(_sortable, key)
    raise TypeError(
        f"key() returned {_shown(key)}, which cannot be sorted; return numbers, text or tuples of these"
    )
