"""Answers what-if questions on a snapshot, while the server continues."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from spillover.control.live.loop import Loop
from spillover.control.requests.policies import check_policies, read_line
from spillover.control.views.jobs import why_view
from spillover.core.proposals import Refusal
from spillover.core.records.jobs import Job, Placed, Running
from spillover.deciding.whatif import (
    Assumption,
    MoreMachines,
    OtherPolicies,
    OtherRequest,
    Snapshot,
    assume,
    largest_machine,
)
from spillover.forms.problems import Findings, Path, path_text
from spillover.forms.quantities import read_cpu, read_memory
from spillover.model.ids import ClusterName, JobId
from spillover.model.resources import Resources
from spillover.model.units import SECOND, format_duration
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import AmountsDoc, FieldProblem, WhatIf, WhatIfView, WhyView

FEW: Final = 1000
"""Jobs and nodes up to which an answer takes less time than a switch to another thread."""

T = TypeVar("T")


async def on_snapshot(loop: Loop, ask: Callable[[Snapshot], T], few: int = FEW) -> T:
    """Return the answer from a snapshot; with more than `few` jobs and nodes, compute it in another thread."""
    engine = await loop.ready()
    snapshot = Snapshot(engine)
    # Policies of installed packages may not be thread-safe.
    if len(engine.state.jobs) + len(engine.state.nodes) <= few or engine.policies.guards:
        return ask(snapshot)
    snapshot.detach(threading.RLock())
    asking = asyncio.get_running_loop().run_in_executor(None, ask, snapshot)

    def over(done: "asyncio.Future[T]") -> None:
        snapshot.release()
        if not done.cancelled():
            done.exception()  # mark it as retrieved: the caller may be gone

    asking.add_done_callback(over)
    return await asyncio.shield(asking)


async def answer(loop: Loop, job: Job, asked: WhatIf, project: str | None) -> WhatIfView:
    """Return what would happen to a job; hide ids of other projects if a project is given."""
    now = loop.now()

    def ask(snapshot: Snapshot) -> WhatIfView | Refusal:
        tried = snapshot.state.jobs.get(job.id)
        if tried is None:
            raise CommandError(ErrorKind.CONFLICT, f"{job.id} has ended; there is nothing to predict")
        before = why_view(snapshot, tried, now, project)
        was_placed = isinstance(tried.phase, Placed | Running)
        assumptions = _read(snapshot, tried, asked)
        if isinstance(refusal := assume(snapshot, now, assumptions), Refusal):
            return refusal
        tried = snapshot.state.jobs[job.id]
        return _told(tried, before, why_view(snapshot, tried, now, project), was_placed=was_placed)

    found = await on_snapshot(loop, ask)
    if isinstance(found, Refusal):
        raise refused(found)
    return found


def _told(job: Job, before: WhyView, after: WhyView, *, was_placed: bool) -> WhatIfView:
    """Return the answer in the form of the API."""
    phase = job.phase
    starts = not was_placed and isinstance(phase, Placed)
    cluster = phase.cluster if starts and isinstance(phase, Placed) else None
    if starts and isinstance(phase, Placed):
        sentence = f"{job.id} would start at once on {phase.cluster}: {phase.why}"
    elif was_placed:
        sentence = f"nothing would change: {before.sentence}"
    else:
        reason = "" if after.reason is None else f": {after.reason.message}"
        left = None if after.spills_in_s is None else format_duration(round(after.spills_in_s * SECOND))
        spills = "" if left is None else f"; it may spill over in {left}"
        sentence = f"{job.id} would still wait{reason}{spills}"
    return WhatIfView(sentence, starts, cluster, before, after)


def _read(snapshot: Snapshot, job: Job, asked: WhatIf) -> list[Assumption]:
    """Return the assumptions of a request; raise CommandError with all its problems."""
    found = Findings()
    assumptions = list(_assumptions(snapshot, job.id, asked, found))
    if found.found:
        problems = [FieldProblem(path_text(path), message) for path, message in found.found]
        raise CommandError(ErrorKind.INVALID, f"{problems[0].path}: {problems[0].message}", problems)
    if not assumptions:
        raise CommandError(
            ErrorKind.INVALID, "the request changes nothing; give resources, policy or machines"
        )
    return assumptions


def _assumptions(snapshot: Snapshot, job: JobId, asked: WhatIf, found: Findings) -> Iterator[Assumption]:
    if asked.policy is not None:
        policies = read_line(asked.policy, snapshot.state.facts.policies)
        check_policies(policies)
        yield OtherPolicies(policies)
    for at, more in enumerate(asked.machines):
        cluster = ClusterName(more.cluster)
        capacity = _amounts(
            more.resources, largest_machine(snapshot.state, cluster), ("machines", at, "resources"), found
        )
        yield MoreMachines(cluster, more.count, capacity)
    if asked.resources is not None:
        before = snapshot.state.jobs[job].kind.shape.resources
        resources = _amounts(asked.resources, before, ("resources",), found)
        if resources is not None:
            yield OtherRequest(job, resources)


def _amounts(asked: AmountsDoc, before: Resources | None, path: Path, found: Findings) -> Resources | None:
    """Return resources with the requested changes; None if there are neither base amounts nor changes."""
    if before is None and asked == AmountsDoc():
        return None
    before = before or Resources()
    cpu = before.cpu if asked.cpu is None else read_cpu(asked.cpu, (*path, "cpu"), found, 0)
    memory = before.memory if asked.memory is None else read_memory(asked.memory, (*path, "memory"), found)
    gpu = before.gpu if asked.gpu is None else asked.gpu
    return Resources(cpu or 0, memory or 0, gpu, before.other)
