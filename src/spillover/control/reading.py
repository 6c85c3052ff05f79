"""Output of tasks: found by job, attempt and task, read from the agent that has it. It never goes through the loop."""

from collections.abc import AsyncIterator

from spillover.control.lookup import Found, Lookup, Pending, id_of
from spillover.control.loop import Loop
from spillover.core.events import Lease
from spillover.core.state import Ended, Job, Placed, Running
from spillover.core.transitions import TERMINAL
from spillover.model.ids import JobId
from spillover.ports.archive import Finished
from spillover.ports.cluster import Agents, OutputAsked, OutputGone
from spillover.ports.commands import CommandError, Kind


class Reading:
    """Readers of output."""

    def __init__(self, loop: Loop, lookup: Lookup, agents: Agents) -> None:
        self._loop = loop
        self._lookup = lookup
        self._agents = agents

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """What a task wrote, from a byte on; following, through all attempts until the job ended."""
        found = await self._lookup.find(ref)
        if (isinstance(found, Job) and found.extra.members is not None) or (
            isinstance(found, Finished) and found.array is not None
        ):
            job = id_of(found)
            raise CommandError(Kind.INVALID, f"{job} is an array: name one of its members, such as {job}.1")
        if task != 0:
            raise CommandError(Kind.UNKNOWN, f"{ref} has one task, number 0")
        job = id_of(found)
        place = _place(found)
        if attempt is not None and (place is None or attempt > place[1]):
            raise CommandError(Kind.UNKNOWN, f"{job} has no attempt {attempt} yet")
        if place is not None and attempt is None:
            attempt = place[1] if not follow else None
        return self._stream(
            job, attempt, OutputAsked(Lease(job, attempt or 0, 0, task), stderr, offset, follow)
        )

    async def _stream(self, job: JobId, attempt: int | None, asked: OutputAsked) -> AsyncIterator[bytes]:
        """Read one attempt, or one after the other while following."""
        offset, done = asked.offset, 0
        while True:
            revision = self._loop.gate.durable
            found = await self._lookup.find(job)
            place = _place(found)
            wanted = attempt if attempt is not None else place[1] if place is not None else 0
            if place is not None and wanted > done:
                lease = Lease(job, wanted, 0, asked.lease.task)
                try:
                    one = OutputAsked(lease, asked.stderr, offset, asked.follow)
                    async for chunk in self._agents.output(place[0], one):
                        yield chunk
                except OutputGone as error:
                    if not asked.follow:
                        raise CommandError(Kind.UNAVAILABLE, str(error)) from None
                done, offset = wanted, 0
                if attempt is not None:
                    return
                continue
            if not asked.follow or _over(found):
                return
            await self._loop.gate.moved(revision)


def _place(found: Found) -> tuple[str, int] | None:
    """The node and the attempt that has output; None before the first one."""
    if isinstance(found, Pending):
        return None
    if isinstance(found, Finished):
        return (f"{found.cluster}/{found.node}", found.attempt) if found.cluster is not None else None
    match found.phase:
        case Running() | Placed():
            return f"{found.phase.cluster}/{found.phase.node}", found.attempt
        case Ended(cluster=cluster, node=node) if cluster is not None:
            return f"{cluster}/{node}", found.attempt
        case _:
            return None


def _over(found: Found) -> bool:
    return isinstance(found, Finished) or (isinstance(found, Job) and found.state in TERMINAL)
