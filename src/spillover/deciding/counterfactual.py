"""Finds the smallest changes that would let a waiting job start now.

The search asks for one trial after the other, and its caller makes each on a snapshot of the live engine. So every change
that is found was decided by the scheduler itself. A change is found by halving: if the job starts with the least amount,
somewhere between that and what it asks for is the most with which it still starts.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import GangPlaced, JobPlaced, MemberPlaced
from spillover.core.proposals import Refusal
from spillover.core.records.facts import Facts
from spillover.core.records.jobs import Job, Placed, Queued, Running, Waiting
from spillover.deciding.explain.explain import Decider, Explanation, explain
from spillover.deciding.forecast.estimates import expected_end
from spillover.deciding.forward import as_expected, first_jobs, run_forward
from spillover.deciding.whatif import (
    Assumption,
    MoreMachines,
    OtherBudgets,
    OtherPriority,
    OtherQueues,
    OtherRequest,
    OtherShape,
    OtherTerms,
    Release,
    Snapshot,
    assume,
)
from spillover.model.budget import EVERY, Budget
from spillover.model.cluster import Role
from spillover.model.ids import ClusterName, JobId, NodeKey
from spillover.model.job import Burst
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.reasons import OverBudget, OverMaxCost, QueueAtLimit, Reason
from spillover.model.resources import Resources
from spillover.model.units import MINUTE

V = TypeVar("V")

MOST_STEPS: Final = 2_000
"""Steps of the scheduler to see what has to end before a job starts."""
MOST_PRIORITY: Final = 1_000_000
PARTS: Final = 32
"""An amount is looked for in so many parts of what is asked for."""
_MIB: Final = 2**20


class Start(Struct, frozen=True):
    """Where a job started in a trial, and why there."""

    cluster: ClusterName
    why: Reason


class Found(Struct, frozen=True):
    """A change with which a job would start now."""

    what: str
    """`cpu`, `memory`, `gpu`, `size`, `tasks`, `walltime`, `where`, `burst`, `priority`, `hold`, `max_cost`, `budget`, `queue` or `machines`."""
    before: int
    """In the units of the model, as what comes next; 0 where amounts say nothing."""
    after: int
    start: Start
    about: str = ""
    """The budget, queue or cluster that would change; empty if the job would."""
    resources: Resources | None = None
    """What each task would ask for, if that would change."""


Search: TypeAlias = Generator[tuple[Assumption, ...], Start | None, list[Found]]
"""Yields what to assume, and gets where the job then starts; None if it does not."""


def search(
    engine: Decider, job: Job, found: list[Found]
) -> Generator[tuple[Assumption, ...], Start | None, None]:
    """Look for the smallest changes of a waiting job, then of limits, and if there is none, for machines.

    What is found is added to `found`. The engine is read only before the first trial.
    """
    if isinstance(job.phase, Waiting) and job.phase.by is not None:
        start = yield (Release(job.id),)
        if start is not None:
            found.append(Found("hold", 0, 0, start))
    if type(job.phase) is not Queued:
        return
    told, facts = explain(engine, job), engine.state.facts
    first = first_jobs(engine, 1)  # it has the highest priority if the order looks at it at all
    highest = max([engine.state.jobs[each].priority for each in first], default=job.priority)
    found += yield from _smaller(job)
    found += yield from _fewer_tasks(job)
    found += yield from _shorter(job)
    found += yield from _elsewhere(facts, job)
    if told.ahead and job.id not in first and highest < MOST_PRIORITY:
        start = yield (OtherPriority(job.id, highest + 1),)
        if start is not None:
            found.append(Found("priority", job.priority, highest + 1, start))
    found += yield from _limits(facts, job, told)
    if not found:
        found += yield from _machines(facts, job)


def try_start(snapshot: Snapshot, now: int, job: JobId, assumptions: Sequence[Assumption]) -> Start | None:
    """Return where a job, or a member of an array, starts on a snapshot under some assumptions; None if it does not."""
    step = assume(snapshot, now, assumptions)
    for event in () if isinstance(step, Refusal) else step.events:
        if isinstance(event, MemberPlaced) and event.array == job:
            return Start(event.cluster, event.why)
        if isinstance(event, JobPlaced | GangPlaced) and event.job == job:
            return Start(event.cluster, event.why)
    return None


def ends_before(
    snapshot: Snapshot,
    now: int,
    job: JobId,
    most: int = MOST_STEPS,
    enough: Callable[[], bool] | None = None,
) -> dict[JobId, int]:
    """Return the jobs that end before a waiting job starts, on the machines where it then starts, with their ends.

    Each job runs as long as it is expected to. The first end comes first. There are none if it does not start within
    so many steps, or before `enough` says to stop.
    """
    state = snapshot.state
    there: dict[NodeKey, list[JobId]] = {node.key: list(node.jobs) for node in state.nodes.values()}
    unknown, jumped = snapshot.policies.chosen.unknown_runtime, state.facts.jumped
    ends = {
        each: expected_end(state.jobs[each], now, unknown, jumped) or now
        for jobs in there.values()
        for each in jobs
    }
    run_forward(snapshot, now, [job], as_expected(snapshot), most, enough)
    started = state.jobs.get(job)
    if started is None or not isinstance(started.phase, Placed | Running):
        return {}
    nodes = {NodeKey(f"{started.phase.cluster}/{task.node}") for task in started.tasks}
    over = {
        each: None
        for node in nodes
        for each in there.get(node, ())
        if each not in state.jobs or not isinstance(state.jobs[each].phase, Placed | Running)
    }
    return {each: ends[each] for each in sorted(over, key=lambda one: (ends[one], one))}


# --- the job itself


def _smaller(job: Job) -> Search:
    """Try less of each resource, and if no single one is enough, less of all of them."""
    shape, found = job.kind.shape, list[Found]()
    if shape.groups or shape.rest is not None:
        return found
    asked = shape.resources
    axes: tuple[tuple[str, int, Sequence[Resources]], ...] = (
        ("gpu", asked.gpu, [replace(asked, gpu=each) for each in range(asked.gpu)]),
        ("memory", asked.memory, [replace(asked, memory=each) for each in _steps(asked.memory, _MIB)]),
        ("cpu", asked.cpu, [replace(asked, cpu=each) for each in _steps(asked.cpu, 100)]),
    )
    for what, before, values in axes:
        best = yield from _most(values, lambda each: (OtherRequest(job.id, each),))
        if best is not None:
            found.append(Found(what, before, getattr(best[0], what), best[1], resources=best[0]))
    if found or sum(1 for _, before, _ in axes if before) < 2:
        return found
    best = yield from _most(
        [_part(asked, each) for each in range(1, 8)], lambda each: (OtherRequest(job.id, each),)
    )
    if best is not None:
        found.append(Found("size", 0, 0, best[1], resources=best[0]))
    return found


def _fewer_tasks(job: Job) -> Search:
    """Try fewer tasks of a gang whose tasks are alike."""
    shape = job.kind.shape
    if shape.tasks < 2 or shape.groups or shape.rest is not None or shape.most:
        return []
    best = yield from _most(
        range(1, shape.tasks), lambda tasks: (OtherShape(job.id, replace(shape, tasks=tasks)),)
    )
    return [] if best is None else [Found("tasks", shape.tasks, best[0], best[1])]


def _shorter(job: Job) -> Search:
    """Try a shorter walltime, with which it may end before a reservation, or cost less."""
    terms = job.terms
    if terms.walltime is None or terms.walltime <= MINUTE:
        return []

    def with_walltime(walltime: int) -> tuple[Assumption, ...]:
        estimate = None if terms.estimate is None else min(terms.estimate, walltime)
        return (OtherTerms(job.id, replace(terms, walltime=walltime, estimate=estimate)),)

    best = yield from _most(_steps(terms.walltime, MINUTE), with_walltime)
    return [] if best is None else [Found("walltime", terms.walltime, best[0], best[1])]


def _elsewhere(facts: Facts, job: Job) -> Search:
    """Try any cluster and machine, and to be rented at once."""
    shape, found = job.kind.shape, list[Found]()
    if shape.where is not None or shape.rules is not None:
        start = yield (OtherShape(job.id, replace(shape, where=None, rules=None)),)
        if start is not None:
            found.append(Found("where", 0, 0, start))
    rented = any(spec.role is Role.RENTED for spec in facts.clusters)
    if rented and shape.burst is not Burst.ALWAYS and job.due is None:
        start = yield (OtherShape(job.id, replace(shape, burst=Burst.ALWAYS)),)
        if start is not None:
            found.append(Found("burst", 0, 0, start))
    return found


# --- limits


def _limits(facts: Facts, job: Job, told: Explanation) -> Search:
    """Try higher limits of cost and of its queue, where these are in the way."""
    found = list[Found]()
    for reason in dict.fromkeys([told.reason, *(each.reason for each in told.verdicts)]):
        match reason:
            case OverMaxCost():
                limit = reason.limit + reason.cost - reason.left
                start = yield (OtherTerms(job.id, replace(job.terms, max_cost=limit)),)
                if start is not None:
                    found.append(Found("max_cost", reason.limit, limit, start))
            case OverBudget():
                limit = reason.limit + reason.cost - reason.left
                budgets = tuple(_raised(facts.budgets, reason, limit))
                start = yield (OtherBudgets(budgets),)
                if start is not None:
                    found.append(Found("budget", reason.limit, limit, start, reason.whose))
            case QueueAtLimit():
                needed = reason.used + reason.asked
                queues = tuple(_widened(each, reason, needed) for each in facts.queues)
                start = yield (OtherQueues(queues),)
                if start is not None:
                    found.append(Found("queue", reason.most, needed, start, f"{reason.queue} {reason.what}"))
    return found


def _raised(budgets: Sequence[Budget], over: OverBudget, limit: int) -> Iterable[Budget]:
    """Yield budgets, of which the one in the way has another limit."""
    own = [each for each in budgets if f"{each.of} {each.name}" == over.whose and each.per == over.per]
    for each in budgets:
        everybody = not own and each.name == EVERY and over.whose.startswith(f"{each.of} ")
        in_the_way = each in own or (everybody and each.per == over.per)
        yield replace(each, limit=limit) if in_the_way else each


def _widened(queue: QueueSpec, at: QueueAtLimit, needed: int) -> QueueSpec:
    """Return a queue, with a higher limit if it is the one in the way."""
    if queue.name != at.queue:
        return queue
    part = "each" if at.user else "total"
    limits: QueueLimits = getattr(queue, part)
    if at.what == "jobs":
        return replace(queue, **{part: replace(limits, running=needed)})
    return replace(queue, **{part: replace(limits, resources=replace(limits.resources, **{at.what: needed}))})


def _machines(facts: Facts, job: Job) -> Search:
    """Try one more machine of each cluster of agents, like its largest."""
    found = list[Found]()
    for spec in facts.clusters:
        if spec.external or spec.pool is not None:
            continue
        more = max(1, job.kind.shape.tasks)
        start = yield (MoreMachines(spec.name, more),)
        if start is not None:
            found.append(Found("machines", 0, more, start, spec.name))
    return found


# --- amounts


def _most(
    values: Sequence[V], assumed: Callable[[V], tuple[Assumption, ...]]
) -> Generator[tuple[Assumption, ...], Start | None, tuple[V, Start] | None]:
    """Return the largest of some rising values with which the job starts; None if it does not start with the least."""
    if not values:
        return None
    start = yield assumed(values[0])
    if start is None:
        return None
    best = values[0], start
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        start = yield assumed(values[middle])
        if start is None:
            high = middle
        else:
            low, best = middle, (values[middle], start)
    return best


def _steps(asked: int, least: int) -> Sequence[int]:
    """Return rising amounts below what is asked for, in round steps of at least `least`."""
    step = least
    while step * PARTS < asked:
        step *= 2
    return range(step, asked, step)


def _part(asked: Resources, eighths: int) -> Resources:
    """Return so many eighths of resources, at least a tenth of a CPU, and whole GPUs."""
    return replace(
        asked,
        cpu=max(min(100, asked.cpu), asked.cpu * eighths // 8),
        memory=asked.memory * eighths // 8,
        gpu=asked.gpu * eighths // 8,
    )
