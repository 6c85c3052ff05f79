"""Shows named queues: what is in them, their limits, and who may use them."""

from collections import Counter

from spillover.control.views.overview import placed_jobs
from spillover.core.state import State
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import MONEY, SECOND
from spillover.wire.api import QueueAmounts, QueueDefaultsView, QueueSizeView, QueueView


def queue_views(state: State, project: str | None = None) -> list[QueueView]:
    """Return the queues in their order; those that one project may use if it is given."""
    running, used = Counter[str](), dict[str, Resources]()
    for job in placed_jobs(state):
        name = job.kind.queue
        running[name] += 1
        used[name] = used.get(name, Resources()) + job.shape.total
    live = Counter[str]()
    for (name, _), count in state.live_in.items():
        live[name] += count
    return [
        _view(
            each,
            running[each.name],
            live[each.name] - running[each.name],
            used.get(each.name, Resources()),
            default=each is state.queues.default,
        )
        for each in state.queues
        if project is None or not each.projects or project in each.projects
    ]


def _view(queue: QueueSpec, running: int, queued: int, used: Resources, *, default: bool) -> QueueView:
    return QueueView(
        name=queue.name,
        description=queue.description,
        default=default,
        running=running,
        queued=queued,
        used=QueueAmounts(running, used.cpu / 1000, used.memory, used.gpu, queued),
        limits=_limits(queue.total),
        user_limits=_limits(queue.each),
        walltime_s=_seconds(queue.walltime),
        size=QueueSizeView(
            None if queue.size.cpu is None else queue.size.cpu / 1000,
            queue.size.memory,
            queue.size.gpu,
            queue.size.tasks,
        ),
        priority=queue.priority,
        projects=list(queue.projects),
        users=list(queue.users),
        clusters=list(queue.clusters),
        defaults=_defaults(queue),
    )


def _limits(limits: QueueLimits) -> QueueAmounts:
    asked = limits.resources
    return QueueAmounts(
        limits.running or None,
        asked.cpu / 1000 if asked.cpu else None,
        asked.memory or None,
        asked.gpu or None,
        limits.queued or None,
    )


def _defaults(queue: QueueSpec) -> QueueDefaultsView:
    given = queue.defaults
    return QueueDefaultsView(
        _seconds(given.walltime or queue.walltime),
        _seconds(given.estimate),
        given.resources.cpu / 1000 or None,
        given.resources.memory or None,
        given.resources.gpu or None,
        given.priority,
        str(given.burst),
        None if given.max_cost is None else given.max_cost / MONEY,
    )


def _seconds(time: int | None) -> float | None:
    return None if time is None else time / SECOND
