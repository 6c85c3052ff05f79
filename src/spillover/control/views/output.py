"""Streams output of tasks directly from the agent or cluster that has it, or from saved files."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from spillover.control.driving.drivers import Drivers
from spillover.control.live.loop import Loop
from spillover.control.live.subscribers import Subscription
from spillover.control.requests.files import JobFiles
from spillover.control.requests.lookup import Found, Lookup, PendingMember, id_of, is_array
from spillover.control.views.tasks import tasks_of
from spillover.core.events import Lease
from spillover.core.records.jobs import Ended, Job, Placed, Running
from spillover.core.transitions import TERMINAL
from spillover.model.ids import ClusterName
from spillover.ports.archive import Finished
from spillover.ports.cluster import Agents, OutputAsked, OutputGone
from spillover.ports.commands import CommandError, ErrorKind

AGAIN: Final = 0.2
"""Seconds until an agent is asked again for output of an attempt that has not ended."""


class OutputReading:
    """Finds and streams output by job, attempt and task."""

    def __init__(
        self,
        loop: Loop,
        lookup: Lookup,
        agents: Agents,
        files: JobFiles | None = None,
        drivers: Drivers | None = None,
    ) -> None:
        self._files = files
        """Reads saved output; None if none is saved."""
        self._drivers = drivers or Drivers()
        self._loop = loop
        self._lookup = lookup
        self._agents = agents

    async def output(
        self, ref: str, *, attempt: int | None, task: int, stderr: bool, offset: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """Stream what a task wrote; see Commands."""
        found = await self._lookup.find(ref)
        job = id_of(found)
        if is_array(found):
            raise CommandError(
                ErrorKind.INVALID, f"{job} is an array; name one of its members, such as {job}.1"
            )
        if task >= (tasks := _tasks(found)):
            known = "one task, number 0" if tasks == 1 else f"{tasks} tasks, 0 to {tasks - 1}"
            raise CommandError(ErrorKind.UNKNOWN, f"{ref} has {known}")
        if attempt is not None and attempt > _attempt(found):
            raise CommandError(ErrorKind.UNKNOWN, f"{job} has no attempt {attempt} yet")
        first = attempt if attempt is not None else _newest(found)
        asked = OutputAsked(Lease(job, first, 0, task), stderr, offset, follow)
        return self._follow(asked, last=attempt) if follow else self._read(found, asked)

    async def _read(self, found: Found, asked: OutputAsked) -> AsyncIterator[bytes]:
        """Stream what one attempt has written so far."""
        try:
            async with aclosing(self._pieces(found, asked, None)) as pieces:
                async for piece in pieces:
                    yield piece
        except OutputGone as error:
            raise CommandError(ErrorKind.UNAVAILABLE, str(error)) from None

    async def _follow(self, asked: OutputAsked, last: int | None) -> AsyncIterator[bytes]:
        """Stream one attempt after the other until the job ends, or up to attempt `last`.

        Agents disconnect and return, and a request may reach an agent before the lease does. So an attempt is
        complete only if it had ended before it was read to its end.
        """
        job, attempt = asked.lease.job, asked.lease.attempt
        home: str | None = None
        with self._loop.subscribers.to_jobs([job]) as news:
            while True:
                found = await self._lookup.find(job)
                home = place_of(found, attempt, asked.lease.task) or home
                complete = _over(found, attempt)
                try:
                    async with aclosing(self._pieces(found, asked, home)) as pieces:
                        async for piece in pieces:
                            asked = replace(asked, offset=asked.offset + len(piece))
                            yield piece
                except OutputGone as error:
                    if not complete or await self._may_return(home):
                        complete = False
                    elif attempt == last or attempt == _attempt(found):
                        raise CommandError(ErrorKind.UNAVAILABLE, str(error)) from None
                    # Else the attempt was lost with its agent, and the next one can still be read.
                if not complete:
                    await self._turn(found, attempt, news, asked_agent=home is not None)
                elif attempt in {last, _attempt(found)}:
                    return
                else:
                    attempt, home = attempt + 1, None
                    asked = replace(asked, lease=replace(asked.lease, attempt=attempt), offset=0)

    async def _pieces(
        self, found: Found, asked: OutputAsked, home: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Stream the output of one attempt from saved files or from where it ran; raise OutputGone if neither works."""
        attempt, task = asked.lease.attempt, asked.lease.task
        # Of gangs on agents, only the output of the first task is saved.
        files = self._files if _over(found, attempt) else None
        if (
            files is not None
            and (kept := await files.output(found, attempt, task, stderr=asked.stderr)) is not None
        ):
            async for piece in files.pieces(kept, asked.offset):
                yield piece
            return
        place = place_of(found, attempt, asked.lease.task) or home
        if place is not None:
            await self._check_place(place)
            pieces = self._from(place, asked)
        elif attempt < _attempt(found):
            pieces = self._search(replace(asked, follow=False))
        else:
            return  # it has not started
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _check_place(self, place: str) -> None:
        """Raise OutputGone if the cluster was removed, or is external and not open."""
        name = ClusterName(place.partition("/")[0])
        if name in self._drivers or self._agents.contact(place) is not None:
            return
        spec = (await self._loop.read()).state.clusters.get(name)
        if spec is None:
            raise OutputGone(f"the output was on cluster {name}, and cluster {name} was removed")
        if spec.external:
            raise OutputGone(
                f"the output is on cluster {name}, which is not open now; `spill clusters` shows why"
            )

    def _from(self, place: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Stream output from an agent or an external cluster."""
        cluster = ClusterName(place.partition("/")[0])
        if cluster in self._drivers:
            return self._drivers.output(cluster, asked)
        return self._agents.output(place, asked)

    async def _search(self, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Stream output of an attempt whose node is unknown, from the first agent or cluster that has some."""
        silent: list[str] = []
        nodes = [
            node
            for node in (await self._loop.read()).state.nodes
            if node.partition("/")[0] not in self._drivers
        ]
        for node in (*nodes, *(f"{cluster}/" for cluster in self._drivers)):
            began = False
            try:
                async with aclosing(self._from(node, asked)) as pieces:
                    async for piece in pieces:
                        began = True
                        yield piece
            except OutputGone:
                if began:
                    raise
                silent.append(node)
            if began:
                return
        if silent:
            more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
            raise OutputGone(
                f"no connected agent has output of attempt {asked.lease.attempt} of {asked.lease.job}; "
                f"not connected: {', '.join(silent[:3])}{more}"
            )

    async def _may_return(self, home: str | None) -> bool:
        """Return whether an agent or cluster that may have the output is disconnected, but not lost."""
        nodes = (await self._loop.read()).state.nodes
        for key in [home] if home is not None else nodes:
            cluster = ClusterName(key.partition("/")[0])
            if cluster in self._drivers:
                if not self._drivers.is_up(cluster):
                    return True
                continue
            contact = self._agents.contact(key)
            node = nodes.get(key)
            if node is not None and node.status != "lost" and (contact is None or not contact.connected):
                return True
        return False

    async def _turn(self, found: Found, attempt: int, news: Subscription, *, asked_agent: bool) -> None:
        """Return when it is time to read again."""
        over = _over(found, attempt)
        if not asked_agent and not over:
            await news.wait()  # it has not started, and will only after an event
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN):
                while _over(await self._lookup.find(id_of(found)), attempt) == over:
                    await news.wait()


def _attempt(found: Found) -> int:
    """Return the number of the last attempt, even if it is only queued."""
    return 1 if isinstance(found, PendingMember) else found.attempt


def _tasks(found: Found) -> int:
    """Return how many tasks a job has."""
    match found:
        case PendingMember():
            return found.array.kind.shape.tasks
        case Finished():
            return found.shape.tasks
        case _:
            return found.shape.tasks


def _newest(found: Found) -> int:
    """Return the last attempt that was placed; the first if none was."""
    last = _attempt(found)
    return last if place_of(found, last) is not None else max(1, last - 1)


def place_of(found: Found, attempt: int, task: int = 0) -> str | None:
    """Return the node of a task; None before it is placed, and for earlier attempts, whose nodes are not stored."""
    if isinstance(found, PendingMember) or attempt != found.attempt:
        return None
    at = found if isinstance(found, Finished) else found.phase
    match at:
        case Running() | Placed() | Ended() | Finished() if at.cluster is not None:
            return f"{at.cluster}/{_node_of(found, task) or at.node}"
        case _:
            return None


def _node_of(found: Found, task: int) -> str | None:
    """Return the node of one task of a gang; None for other jobs, and for tasks that the archive left out."""
    if isinstance(found, Job) and found.extra.gang is not None:
        return found.extra.gang.tasks[task].node if task < len(found.extra.gang.tasks) else None
    return next((each.node for each in tasks_of(found).tasks if each.rank == task), None)


def _over(found: Found, attempt: int) -> bool:
    """Return whether an attempt has ended and writes no more."""
    if attempt < _attempt(found):
        return True
    return isinstance(found, Finished) or (isinstance(found, Job) and found.state in TERMINAL)
