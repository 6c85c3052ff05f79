"""A server on a host: loop, desk, leases, runner and the agents' service, on a journal that is slow, fails, or is its last deed."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from spillover.api.grpc.agents import AgentsService
from spillover.clusters.agents.hub import Hub
from spillover.control.agents import Answers, Desk
from spillover.control.controllers.archiving import Archiving
from spillover.control.controllers.leases import Leases
from spillover.control.controllers.stealing import Stealing
from spillover.control.lookup import Lookup
from spillover.control.loop import Loop
from spillover.control.runner import Runner
from spillover.control.specs import Specs
from spillover.control.submitting import Submitting
from spillover.control.tickets import Tickets
from spillover.core.events import AnyEvent, Lease
from spillover.core.proposals import Result, Started, StartEpoch, Verdict
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.ports.commands import CommandError
from spillover.ports.journal import Batch, Journal, StoreError, Unwritable
from spillover.stores.memory import Shelf, open_memory
from spillover.testing.faults.hosts import Host, Universe
from spillover.testing.faults.network import SERVER, TOKEN, Endpoint
from spillover.testing.faults.plans import Setting
from spillover.testing.world import OWNED
from spillover.wire.journal import decode_event

GAP = 10 * SECOND
"""As for a real one."""
CHECKPOINT = 4.0
"""Seconds between two checkpoints."""


class Disk:
    """What is the matter with the disk, for all servers."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.fault: str | None = None
        """`before`, `after` or `slow`; None while all is well."""
        self.fatal: tuple[str, Callable[[], object]] | None = None
        """Whether the server dies before or after the next write, and how."""
        self.wrote: Callable[[Sequence[AnyEvent]], None] = lambda _: None
        """Told of what became durable, whoever learns of it."""


class _Journal:
    """The journal as one server has it."""

    def __init__(self, journal: Journal, host: Host, disk: Disk) -> None:
        self._journal = journal
        self._host = host
        self._disk = disk

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        disk = self._disk
        await asyncio.sleep(disk.dice.random() * (2.0 if disk.fault == "slow" else 0.003))
        await self._fatal("before")
        if disk.fault == "before":
            raise Unwritable("the disk is full")
        if self._host.dead:
            raise Unwritable("this process is dead")
        last, came = await self._last(), after
        revision = await self._journal.append(after, batch, epoch)
        if revision > last:  # or it was there already
            disk.wrote([decode_event(event) for event in batch.events])
        await self._fatal("after")
        await asyncio.sleep(disk.dice.random() * 0.003)
        if disk.fault == "after":
            raise Unwritable(f"nobody can tell whether {came} was followed")
        return revision

    async def _last(self) -> int:
        return (await self._journal.load()).last

    async def _fatal(self, moment: str) -> None:
        """Die here, if that is to be."""
        fatal = self._disk.fatal
        if fatal is not None and fatal[0] == moment and not self._host.dead:
            self._disk.fatal = None
            self._host.universe.after(0, fatal[1])
            await asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class _Desk(Desk):
    """Tells which results it accepted."""

    def __init__(self, *arguments: Any, accepted: Callable[[Lease], None]) -> None:
        super().__init__(*arguments)
        self._accepted = accepted

    async def report(
        self,
        incarnation: int,
        started: list[Started],
        results: list[Result],
        *others: Any,
        **more: Any,
    ) -> Answers:
        """See Desk."""
        answers = await super().report(incarnation, started, results, *others, **more)
        for result, verdict in zip(results, answers.verdicts, strict=False):
            if verdict is Verdict.ACCEPTED:
                self._accepted(result.lease)
        return answers


class ServerLife:
    """One life of a server."""

    def __init__(
        self,
        universe: Universe,
        setting: Setting,
        shelf: Shelf,
        disk: Disk,
        draw: Callable[[], JobId],
        accepted: Callable[[Lease], None],
    ) -> None:
        self.host = Host(universe, SERVER, setting.server_rate)
        self._setting = setting
        store = open_memory(shelf, term=0.0)
        self._election, self.archive = store.election, store.archive
        journal = _Journal(store.journal, self.host, disk)
        self.loop = Loop(journal, load, self.host, debug=True)
        self.hub = Hub()
        self._specs = specs = Specs(journal)
        tickets = Tickets()
        self.desk = _Desk(self.loop, self.hub, 0, setting.heartbeat, tickets, accepted=accepted)
        lookup = Lookup(self.loop, store.archive)
        self._archiving = Archiving(self.loop, store.archive)
        self._runner = Runner(self.loop, self.hub, specs, tickets)
        self.submitting = Submitting(self.loop, store.archive, lookup, specs, draw=draw)
        starts = self._runner.starts
        service = AgentsService(self.desk, self.hub, TOKEN, lambda: self.loop.epoch, starts=starts)
        self.endpoint = Endpoint(self.host, (service.handler(),))
        self.leading = False
        self.ended: BaseException | None = None
        """What ended it, against its will."""
        self.host.create_task(self._live(), name="the server lives")

    def kill(self) -> None:
        """`kill -9`."""
        self.leading = False
        if not self.host.dead:
            self.host.kill()

    async def _live(self) -> None:
        """As `Server.run`."""
        try:
            epoch = await self._election.campaign(SERVER, "http://server")
            while not isinstance(epoch, int):
                await asyncio.sleep(0.1)
                epoch = await self._election.campaign(SERVER, "http://server")
            last = await self.loop.load()
            self.loop.begin(epoch, last)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.loop.run())
                await self._begin(epoch, last)
                self.leading = True
                group.create_task(self._runner.run())
                group.create_task(self._archiving.run())
                group.create_task(Leases(self.loop, self.hub, self.desk).run())
                group.create_task(Stealing(self.loop, self._specs).run())
                if self._setting.checkpoints:
                    group.create_task(self._checkpoint())
        except Exception as error:  # noqa: BLE001 - told at the end of the story
            self.ended = error

    async def _begin(self, epoch: int, last: int) -> None:
        """Take the lead in the journal; a server that cannot tries again, as whoever starts it would."""
        gap = self.host.wall() - last if last else 0
        policies = PolicySet(wait=Choice("never"), route=Choice(self._setting.route))
        proposal = StartEpoch(epoch, (OWNED,), policies, gap if gap > GAP else 0, ahead=self._setting.ahead)
        while True:
            try:
                await self.loop.propose(proposal)
            except CommandError:
                await asyncio.sleep(0.5)
            else:
                break
        self._archiving.begin()

    async def _checkpoint(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT)
            try:
                await self.loop.checkpoint()
            except (StoreError, CommandError):
                continue
