"""Reads the named queues of spill.yaml."""

from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, duration, money, read_cpu, read_memory
from spillover.model.job import Burst
from spillover.model.queues import USUAL, QueueDefaults, QueueLimits, QueueSize, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import format_duration
from spillover.wire.jobfile import Quantity
from spillover.wire.queuefile import QueueDefaultsDoc, QueueDoc, QueueLimitsDoc, QueueSizeDoc


def read_queues(docs: list[QueueDoc], found: Findings) -> tuple[QueueSpec, ...]:
    """Read queues in their order; add problems to `found`."""
    queues: dict[str, QueueSpec] = {}
    named = {doc.name for doc in docs}
    default: str | None = USUAL if USUAL in named else None
    for at, doc in enumerate(docs):
        path: Path = ("queues", at)
        check_name(doc.name, (*path, "name"), found)
        if doc.name in queues:
            found.add((*path, "name"), f"is a second queue {shown(doc.name)}; choose another name")
        if doc.default and default not in {None, doc.name}:
            found.add((*path, "default"), f"is the second default queue, after {shown(default)}; remove one")
        elif doc.default:
            default = doc.name
        queues[doc.name] = _queue(doc, path, found)
    return tuple(queues.values())


def _queue(doc: QueueDoc, path: Path, found: Findings) -> QueueSpec:
    for field in ("projects", "users", "clusters"):
        for at, name in enumerate(getattr(doc, field)):
            check_name(name, (*path, field, at), found)
    if not doc.description.isprintable():
        found.add((*path, "description"), "contains characters that cannot be printed; write one line")
    longest = _duration(doc.walltime, (*path, "walltime"), found)
    return QueueSpec(
        doc.name,
        doc.description,
        doc.default,
        _defaults(doc.defaults, longest, (*path, "defaults"), found),
        _limits(doc.limits, (*path, "limits"), found),
        _limits(doc.user_limits, (*path, "user_limits"), found),
        longest,
        _size(doc.size, (*path, "size"), found),
        tuple(dict.fromkeys(doc.projects)),
        tuple(dict.fromkeys(doc.users)),
        tuple(dict.fromkeys(doc.clusters)),
        doc.priority,
    )


def _defaults(doc: QueueDefaultsDoc, longest: int | None, path: Path, found: Findings) -> QueueDefaults:
    walltime = _duration(doc.walltime, (*path, "walltime"), found)
    estimate = _duration(doc.estimate, (*path, "estimate"), found)
    if walltime is not None and longest is not None and walltime > longest:
        told = f"{shown(doc.walltime)} is longer than the {format_duration(longest)} of the queue"
        found.add((*path, "walltime"), told)
    most = walltime or longest
    if estimate is not None and most is not None and estimate > most:
        found.add((*path, "estimate"), f"{shown(doc.estimate)} is longer than the walltime")
    asked = doc.resources
    resources = Resources(
        _cpu(asked.cpu, (*path, "resources", "cpu"), found) or 0,
        _memory(asked.memory, (*path, "resources", "memory"), found) or 0,
        asked.gpu,
    )
    cost = None if doc.max_cost is None else money(doc.max_cost, (*path, "max_cost"), found)
    return QueueDefaults(walltime, estimate, resources, doc.priority, Burst(doc.burst), cost)


def _limits(doc: QueueLimitsDoc, path: Path, found: Findings) -> QueueLimits:
    cpu, memory = _cpu(doc.cpu, (*path, "cpu"), found), _memory(doc.memory, (*path, "memory"), found)
    return QueueLimits(doc.running or 0, Resources(cpu or 0, memory or 0, doc.gpu or 0), doc.queued or 0)


def _size(doc: QueueSizeDoc, path: Path, found: Findings) -> QueueSize:
    cpu, memory = _cpu(doc.cpu, (*path, "cpu"), found), _memory(doc.memory, (*path, "memory"), found)
    return QueueSize(cpu, memory, doc.gpu, doc.tasks)


def _duration(value: Quantity | None, path: Path, found: Findings) -> int | None:
    return None if value is None else duration(value, path, found, least=1)


def _cpu(value: Quantity | None, path: Path, found: Findings) -> int | None:
    return None if value is None else read_cpu(value, path, found)


def _memory(value: Quantity | None, path: Path, found: Findings) -> int | None:
    return None if value is None else read_memory(value, path, found)
