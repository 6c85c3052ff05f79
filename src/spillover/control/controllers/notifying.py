"""Writes messages to people into the outbox, from durable events. `delivering.py` sends them.

The outbox lags behind the journal by a moment. New events come from memory. Events that an earlier server did not look at
come from the journal, which keeps them until then. So a crash loses no message, and a message has the same id if it is
written again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.notifications.happenings import (
    KINDS,
    Happening,
    began_at,
    began_before,
    of_begin,
    of_finished,
    of_job,
    of_server,
    runs_of_arrays,
    together,
)
from spillover.control.notifications.receivers import messages_of, wanted_by_rules
from spillover.control.notifications.settings import Settings
from spillover.core.events import AnyEvent, JobEnded, JobRequeued, JobStarted
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.model.ids import JobId, split_member
from spillover.model.job import JobSpec
from spillover.model.notifications import When
from spillover.ports.archive import Archive
from spillover.ports.journal import Journal, StoreError
from spillover.ports.outbox import Message, Outbox
from spillover.wire.journal import decode_event

log = structlog.get_logger()

LINGER: Final = 1.0
"""Seconds to collect events, so that one commit writes many messages."""
LOST_LINGER: Final = 5.0
"""Seconds to collect agents that are lost together, as behind one switch, for one message."""
SPAN: Final = 1_000
"""Events after which the outbox moves on although nobody is told; a restart looks at them again."""
READ: Final = 10_000
"""Most events to read from the journal at a time."""
RETRY: Final = 2.0
MOST_WAITING: Final = 10_000
"""Most messages of a channel that wait. Beyond that, new ones fail at once, so that a dead receiver costs little."""
MOST_FAILED: Final = 10_000
"""Most failed messages that are kept, the newest."""


class Notifying:
    """Follows the journal and writes messages."""

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        archive: Archive,
        outbox: Outbox,
        specs: Specs,
        settings: Settings,
        written: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._archive = archive
        self._outbox = outbox
        self._specs = specs
        self._settings = settings
        self._written = written
        """Called when there are new messages."""
        self._after: int | None = None
        """Revision after which all events were seen; None while some must be read first."""
        self._found: list[Happening] = []
        self._last = 0
        """Revision of the last event that was seen."""
        self._since = 0
        """Time of the last event that an earlier server looked at, nanoseconds UTC."""
        self._begun: dict[JobId, None] = {}
        """Jobs and arrays that have begun, of those whose events were looked at and that have not ended."""
        self._down: dict[str, None] = {}
        """Clusters that were told to have failed."""
        self._enough = asyncio.Event()
        loop.listen(self._see)

    def _see(self, revision: int, events: Sequence[AnyEvent]) -> None:
        if self._after is None:
            return
        first = revision - len(events) + 1
        if self._last != first - 1:  # the state was reloaded in between
            self._forget()
            return
        self._last = revision
        state = self._loop.state
        for at, event in enumerate(events):
            if type(event) not in KINDS:
                continue
            found = self._of_event(first + at, event, state)
            if isinstance(found, Missing):  # the job left the state before its end was seen
                self._forget()
                return
            self._found += found
        if self._found or revision - self._after >= SPAN:
            self._enough.set()

    def _of_event(self, revision: int, event: AnyEvent, state: State) -> "list[Happening] | Missing":
        """Return what an event tells that somebody asks for. The state may be that after later events."""
        if not isinstance(event, JobEnded | JobStarted | JobRequeued):
            return self._wanted(of_server(revision, event))
        member = split_member(event.job)
        root = event.job if member is None else member[0]
        job = state.jobs.get(root)
        if job is None:
            return Missing(event.job) if member is None else []
        found: list[Happening] = []
        begun, at = root in self._begun, began_at(event)
        if not begun and (at is not None or member is None):
            begun = member is None and began_before(job, event, self._since)
            if at is not None:
                self._begun[root] = None
                if not begun and self._asked(job, (When.BEGIN,)):
                    found.append(of_begin(revision, event, at, job))
                begun = True
        if member is not None:
            return found
        if isinstance(event, JobEnded):
            self._begun.pop(root, None)
        if (begun or not isinstance(event, JobRequeued)) and self._asked(job, KINDS[type(event)]):
            told = of_job(revision, event, job)
            found += [] if told is None else [told]
        return found

    def _asked(self, job: Job, kinds: Sequence[When]) -> bool:
        """Return whether anybody may ask for one of these; of most jobs, nobody does."""
        return job.extra.notify or wanted_by_rules(self._settings.now, kinds)

    def _wanted(self, found: Happening | None) -> list[Happening]:
        """Return what is told of the server, unless a cluster is as ready as it was."""
        if found is None:
            return []
        if found.cluster is None:
            return [found]
        if found.kinds == (When.CLUSTER_FAILED,):
            self._down[found.cluster.name] = None
        elif found.kinds == (When.CLUSTER_READY,) and found.cluster.name not in self._down:
            return []
        elif found.kinds == (When.CLUSTER_READY,):
            del self._down[found.cluster.name]
        return [found]

    async def run(self) -> None:
        """Write messages as what they tell becomes durable, until cancelled."""
        while True:
            if self._loop.problem is not None:
                await asyncio.sleep(RETRY)
                continue
            try:
                await self.catch_up()
                await self._enough.wait()
                await asyncio.sleep(LINGER)
                if any(each.kinds == (When.AGENT_LOST,) for each in self._found):
                    await asyncio.sleep(LOST_LINGER)
                await self.some()
            except StoreError as error:
                log.warning("cannot write messages to people; will retry", error=str(error))
                self._forget()
                await asyncio.sleep(RETRY)

    async def catch_up(self) -> None:
        """Write what an earlier server left; from then on events come from memory."""
        if self._after is not None:
            return
        since = self._since = await self._time_of(await self._outbox.noted())
        runs: Counter[JobId] = Counter()
        for array, count in await self._loop.scan(lambda jobs: runs_of_arrays(jobs, since)):
            runs[array] += count
        self._begun = {array: None for array, count in runs.items() if count > 0}
        while self._after is None:
            after, durable = await self._outbox.noted(), self._loop.gate.durable
            if durable == after:
                self._after, self._last, self._found = after, durable, []  # `_see` adds events now
                return
            upto = min(durable, after + READ)
            await self._write(after, upto, await self._read(after, upto))

    async def _time_of(self, revision: int) -> int:
        """Return the time of an event, or of the first one after it that is kept; now if there is none."""
        async for stored in self._journal.tail(max(0, revision - 1), 1):
            return stored.at
        return self._loop.now()

    async def _read(self, after: int, upto: int) -> list[Happening]:
        """Return what events between two revisions tell, from the journal."""
        found: list[Happening] = []
        gone: dict[JobId, tuple[int, JobEnded]] = {}
        async for stored in self._journal.tail(after, upto - after):
            if stored.revision > upto:  # compaction deleted the first ones meanwhile
                break
            event = decode_event(stored.event)
            if type(event) not in KINDS:
                continue
            told = self._of_event(stored.revision, event, self._loop.state)
            if not isinstance(told, Missing):
                found += told
            elif isinstance(event, JobEnded):
                gone[event.job] = stored.revision, event
        for job, row in (await self._archive.some(list(gone)) if gone else {}).items():
            revision, event = gone[job]
            begins = (event.started or 0) >= self._since and not row.tried
            found += of_finished(revision, event, row, begins=begins)
        return sorted(found, key=lambda each: each.revision)

    async def some(self) -> None:
        """Write what was seen."""
        self._enough.clear()
        if self._after is None:
            return
        after, last, found = self._after, self._last, self._found
        self._after, self._found = last, []
        await self._write(after, last, found)

    async def _write(self, after: int, upto: int, found: Sequence[Happening]) -> None:
        settings = self._settings
        told = together(found)
        specs: dict[bytes, JobSpec] = {}
        if digests := {each.spec for each in told if each.spec}:
            specs = await self._specs.get(digests)
        messages: list[Message] = []
        for each in told:
            spec = specs.get(each.spec)
            asked = () if spec is None else spec.notify
            messages += messages_of(each, asked, settings.now, settings.currency)
        if messages:
            messages = await self._bounded(messages)
        await self._outbox.put(after, upto, messages, self._loop.epoch)
        if messages:
            if any(each.failed for each in messages):
                await self._outbox.forget(0, MOST_FAILED, self._loop.epoch)
            if self._written is not None:
                self._written()

    async def _bounded(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages, of which those fail at once that a channel has no room for."""
        waiting = {each.channel: each.waiting for each in await self._outbox.counts()}
        found: list[Message] = []
        for each in messages:
            waiting[each.channel] = waiting.get(each.channel, 0) + 1
            if waiting[each.channel] > MOST_WAITING:
                told = f"{MOST_WAITING} messages waited before it, the most that may"
                found.append(replace(each, failed=True, due=self._loop.now(), error=told))
            else:
                found.append(each)
        return found

    def _forget(self) -> None:
        """Drop what was seen, and start again from where the outbox ends."""
        self._after, self._found = None, []
        self._enough.set()


class Missing:
    """A job that is not in the state any more."""

    def __init__(self, job: JobId) -> None:
        self.job = job
