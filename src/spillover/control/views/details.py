"""Shows one job with all details: its file, what it used, and its tasks."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from spillover.control.requests.lookup import Found, PendingMember
from spillover.control.views.tasks import task_view, tasks_of
from spillover.core.records.jobs import Ended, Job, Running
from spillover.forms.jobs.reading import to_doc
from spillover.model.job import JobSpec
from spillover.model.units import SECOND
from spillover.ports.archive import Finished
from spillover.wire.api import JobDetail, JobView, SetAsideView


def detail_of(
    found: Found, view: JobView, spec: JobSpec | None, set_aside: Sequence[SetAsideView]
) -> JobDetail:
    """Add the details of a job to its row in a list; without a spec, its file is unknown."""
    of = tasks_of(found)
    shape = found.array.kind.shape if isinstance(found, PendingMember) else found.shape
    usage = None if view.started_at is None else _used(found)
    fields: dict[str, Any] = structs.asdict(view)
    return JobDetail(
        **fields,
        spec={} if spec is None else to_doc(spec),
        ran_s=None if usage is None else usage[0] / SECOND,
        cpu_s=None if usage is None else usage[1] / SECOND,
        peak_memory=None if usage is None else usage[2],
        set_aside=list(set_aside),
        tasks=[task_view(each, shape, of.own(at)) for at, each in enumerate(of.tasks)],
        task_counts=of.counts,
        cpus=of.own(0).cpus or None if not of.tasks else None,
        gpus=list(of.own(0).gpus) if not of.tasks else [],
        interruptions=found.extra.interrupted if isinstance(found, Job) else 0,
        waited_s=_waited(found),
    )


def _waited(found: Found) -> float | None:
    """Return how many seconds a job waited before its last start; None if it did not start, or the archive lacks that."""
    match found:
        case Job(phase=Running(since=started)) | Job(phase=Ended(started=int(started))):
            return found.waited(started) / SECOND
        case Finished(started=int(started), attempt=1):
            return max(0, started - found.submitted) / SECOND
        case _:
            return None


def _used(found: Found) -> tuple[int, int, int] | None:
    """Return what an ended job used: runtime, CPU time and peak memory; None if that is unknown."""
    if isinstance(found, Finished):
        return found.usage
    if isinstance(found, Job) and isinstance(found.phase, Ended):
        used = found.phase.usage
        return used.ran, used.cpu, used.peak_memory
    return None
