"""Simulates users who submit and cancel jobs, and retry until they get an answer."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from spillover.core.proposals import Act, Change
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import StoreError
from tests.support.faults.checks import Checks
from tests.support.faults.hosts import MILLISECOND, Universe
from tests.support.faults.plans import JobPlan
from tests.support.faults.servers import ServerLife

AGAIN: Final = 2 * SECOND
"""Time after which a user retries."""


class People:
    """All users of the server."""

    def __init__(
        self, universe: Universe, checks: Checks, lost_after: int, leader: Callable[[], ServerLife | None]
    ) -> None:
        self._universe = universe
        self._checks = checks
        self._lost_after = lost_after
        self._leader = leader
        """The server that leads now; None if there is none."""
        self.jobs: dict[str, JobId] = {}
        """Acknowledged submissions by name."""
        self._cancelled: set[str] = set()

    def expected(self, jobs: Sequence[JobPlan]) -> list[JobId]:
        """Return the jobs that must have ended, including those never acknowledged, which counts as a breach."""
        return [self.jobs.get(job.name, JobId(job.name)) for job in jobs]

    def submit(self, job: JobPlan) -> None:
        """Submit a job, and retry until it is acknowledged."""
        if job.name in self.jobs:
            return
        if (server := self._leader()) is not None:
            server.host.create_task(self._ask(server, job))
        self._universe.after(AGAIN, lambda: self.submit(job))

    async def _ask(self, server: ServerLife, job: JobPlan) -> None:
        try:
            (taken,) = await server.submitting.submit([form(job, self._lost_after)], "ada")
        except (CommandError, StoreError):
            return
        if server.host.dead:
            return
        known = self.jobs.setdefault(job.name, JobId(taken))
        if known != taken:
            self._checks.breach("one submission", f"{job.name} is both {known} and {taken}")
        self._universe.tell(f"people: {job.name} is {taken}")
        if job.cancel is not None:
            self._universe.at(job.cancel, lambda: self._cancel(job))

    def _cancel(self, job: JobPlan) -> None:
        if job.name in self._cancelled:
            return
        if (server := self._leader()) is not None:
            server.host.create_task(self._ask_cancel(server, job))
        self._universe.after(AGAIN, lambda: self._cancel(job))

    async def _ask_cancel(self, server: ServerLife, job: JobPlan) -> None:
        try:
            await server.loop.propose(Change(Act.CANCEL, (self.jobs[job.name],), "ada"))
        except CommandError as error:
            if error.kind in {ErrorKind.UNAVAILABLE, ErrorKind.NOT_LEADER}:
                return
        if not server.host.dead:
            self._universe.tell(f"people: {job.name} is cancelled")
            self._cancelled.add(job.name)


def form(job: JobPlan, lost_after: int) -> JobForm:
    """Convert a plan into a job file."""
    script = {
        "runs": job.runs,
        "failures": job.failures,
        "stubborn": job.stubborn,
        "tail": job.tail,
        "preparing": job.preparing,
        "unprepared": job.unprepared,
        "restarts": job.restarts,
    }
    spec: dict[str, object] = {
        "run": msgspec.json.encode(script).decode(),
        "resources": {"cpu": job.cpus},
        "retry": {"exit": job.exit_retries, "lost": job.lost_retries},
        "lost_after": f"{lost_after // MILLISECOND}ms",
        "grace": f"{job.grace // MILLISECOND}ms",
        "key": job.name,
    }
    if job.tasks > 1:
        spec["tasks"] = f"{job.tasks}..{job.most}" if job.most else job.tasks
    if job.restarts:
        spec["on_task_failure"] = "restart"
    if job.grouped:
        whole = {name: spec.pop(name) for name in ("run", "resources")}
        others = {"name": "others", "tasks": spec.pop("tasks") - 1}  # type: ignore[operator]
        spec["groups"] = [{"name": "first", **whole}, {**others, **whole}]
    if job.members:
        spec["array"] = f"1-{job.members}"
    if job.walltime:
        spec["walltime"] = f"{max(1, job.walltime // MILLISECOND)}ms"
    return read_job(
        {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}
    )
