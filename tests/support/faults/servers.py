"""Runs a server on a virtual host: loop, requests, leases, runner and agent service, on a journal that can fail."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from spillover.api.grpc.agents import AgentsService
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.registrations import Followed, Registrations
from spillover.control.agents.requests import AgentRequests, AgentWelcome, Answers, Introduction, Orders
from spillover.control.agents.tickets import Tickets
from spillover.control.controllers.archiving import Archiving
from spillover.control.controllers.leases import Leases
from spillover.control.controllers.stealing import Stealing
from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.submitting import Submitting
from spillover.core.events import AnyEvent, Lease
from spillover.core.proposals import Proposal, Reclaim, Reply, Result, Started, StartEpoch
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.ports.cluster import FIRST_TERMS, LeaseTerms
from spillover.ports.commands import CommandError
from spillover.ports.journal import Batch, Journal, StoreError, Unwritable
from spillover.stores.memory import Shelf, open_memory
from spillover.testing.world import OWNED
from spillover.wire.journal import decode_event
from tests.support.faults.checks import Checks
from tests.support.faults.hosts import Host, Universe
from tests.support.faults.network import SERVER, TOKEN, Endpoint
from tests.support.faults.plans import Setting
from tests.support.faults.situations import Situation, Tally

GAP = 10 * SECOND
"""As in a real server."""
CHECKPOINT = 4.0
"""Seconds between two checkpoints."""

CLUSTER: Final = replace(OWNED, gangs=True)


class Disk:
    """The faults of the disk, shared by all servers."""

    def __init__(self, dice: random.Random, met: Tally) -> None:
        self.dice = dice
        self.met = met
        self.fault: str | None = None
        """`before`, `after` or `slow`; None means no fault."""
        self.fatal: tuple[str, Callable[[], object]] | None = None
        """Whether the server dies before or after the next write, and how."""
        self.wrote: Callable[[Sequence[AnyEvent]], None] = lambda _: None
        """Called with durable events, whether or not anybody learns of them."""


class _Journal:
    """The journal as one server sees it."""

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
            disk.met[Situation.UNWRITTEN] += 1
            raise Unwritable("the disk is full")
        if self._host.dead:
            raise Unwritable("this process is dead")
        last, came = await self._last(), after
        revision = await self._journal.append(after, batch, epoch)
        if revision > last:  # else it was there already
            disk.wrote([decode_event(event) for event in batch.events])
        await self._fatal("after")
        await asyncio.sleep(disk.dice.random() * 0.003)
        if disk.fault == "after":
            disk.met[Situation.WRITTEN_ALL_THE_SAME] += 1
            raise Unwritable(f"nobody can tell whether {came} was followed")
        return revision

    async def _last(self) -> int:
        return (await self._journal.load()).last

    async def _fatal(self, moment: str) -> None:
        """Die here if the fault says so."""
        fatal = self._disk.fatal
        if fatal is not None and fatal[0] == moment and not self._host.dead:
            self._disk.fatal = None
            self._host.universe.after(0, fatal[1])
            await asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class _Hub(Hub):
    """Reports which process a registration belongs to."""

    def __init__(self, checks: Checks) -> None:
        super().__init__()
        self._checks = checks

    def open(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str = "",
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
        address: str = "",
        abilities: Sequence[str] = (),
        version: str = "",
    ) -> None:
        """See Hub."""
        super().open(node, incarnation, monotonic, peer, life, terms, address, abilities, version)
        self._checks.names.opened(incarnation, life)


class _Lives(Registrations):
    """Reports registrations that were late, or came while another process was present."""

    def __init__(self, checks: Checks) -> None:
        super().__init__()
        self._checks = checks

    def check(self, agent: str, life: str, number: int, *, present: str | None) -> None:
        """See Registrations."""
        try:
            super().check(agent, life, number, present=present)
        except Followed:
            self._checks.met[Situation.NAMESAKE] += 1
            raise
        except CommandError:
            self._checks.met[Situation.OVERTAKEN] += 1
            raise


class _Loop(Loop):
    """Reports leases that are about to be reclaimed."""

    def __init__(self, *arguments: Any, checks: Checks, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._checks = checks

    async def propose(self, *proposals: Proposal, blobs: Mapping[bytes, bytes] | None = None) -> list[Reply]:
        """See Loop."""
        for proposal in proposals:
            if isinstance(proposal, Reclaim):
                self._checks.ran_out(proposal.leases)
        return await super().propose(*proposals, blobs=blobs)


class _Leases(Leases):
    """Reports when leases are not reclaimed yet."""

    def __init__(self, *arguments: Any, checks: Checks) -> None:
        super().__init__(*arguments)
        self._checks = checks

    def _delays_reclaims(self, expired: int, agents: int, now: int) -> bool:
        delays = super()._delays_reclaims(expired, agents, now)
        self._checks.met[Situation.HELD_BACK] += delays
        return delays


class _Desk(AgentRequests):
    """Reports what agents send and receive."""

    def __init__(self, *arguments: Any, checks: Checks) -> None:
        super().__init__(*arguments)
        self._checks = checks
        self._registrations = _Lives(checks)

    async def register(self, intro: Introduction) -> AgentWelcome:
        """See AgentRequests."""
        welcome = await super().register(intro)
        if 0 < intro.epoch < welcome.epoch:
            self._checks.met[Situation.OUTLIVED] += len(welcome.keep)
        return welcome

    async def heartbeat(
        self, incarnation: int, load: int = 0, wall: int = 0, terms_number: int | None = None
    ) -> Orders:
        """See AgentRequests."""
        orders = await super().heartbeat(incarnation, load, wall, terms_number)
        self._checks.met[Situation.FENCED] += orders.fenced
        return orders

    async def report(
        self,
        incarnation: int,
        started: list[Started],
        results: list[Result],
        released: list[Lease],
        **more: Any,
    ) -> Answers:
        """See AgentRequests."""
        answers = await super().report(incarnation, started, results, released, **more)
        self._checks.met[Situation.FENCED] += answers.fenced
        self._checks.met[Situation.GIVEN_BACK] += len(released)
        self._checks.judged(results, answers.verdicts)
        return answers


class ServerLife:
    """One process of a server."""

    def __init__(
        self,
        universe: Universe,
        setting: Setting,
        shelf: Shelf,
        disk: Disk,
        draw: Callable[[], JobId],
        checks: Checks,
    ) -> None:
        self.host = Host(universe, SERVER, setting.server_rate)
        self._setting = setting
        self._checks = checks
        store = open_memory(shelf, term=0.0)
        self._election, self.archive = store.election, store.archive
        journal = _Journal(store.journal, self.host, disk)
        self.loop = _Loop(journal, load, self.host, debug=True, checks=checks)
        self.hub = _Hub(checks)
        self._specs = specs = Specs(journal)
        tickets = Tickets()
        self.requests = _Desk(self.loop, self.hub, 0, setting.heartbeat, tickets, checks=checks)
        lookup = Lookup(self.loop, store.archive)
        self._archiving = Archiving(self.loop, store.archive)
        self._runner = LeaseSender(self.loop, self.hub, specs, tickets)
        self.submitting = Submitting(self.loop, store.archive, lookup, specs, draw=draw)
        starts = self._runner.starts
        service = AgentsService(self.requests, self.hub, TOKEN, lambda: self.loop.epoch, starts=starts)
        self.endpoint = Endpoint(self.host, (service.handler(),))
        self.leading = False
        self.ended: BaseException | None = None
        """The error that ended it; None if there was none."""
        self.host.create_task(self._live(), name="the server lives")

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.leading = False
        if not self.host.dead:
            self.host.kill()

    async def _live(self) -> None:
        """Run like `Server.run`."""
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
                group.create_task(_Leases(self.loop, self.hub, self.requests, checks=self._checks).run())
                group.create_task(Stealing(self.loop, self._specs).run())
                if self._setting.checkpoints:
                    group.create_task(self._checkpoint())
        except Exception as error:  # noqa: BLE001 - reported at the end of the story
            self.ended = error

    async def _begin(self, epoch: int, last: int) -> None:
        """Start the epoch in the journal; retry on failure, like a supervisor that restarts the server."""
        gap = self.host.wall() - last if last else 0
        policies = PolicySet(wait=Choice("never"), route=Choice(self._setting.route))
        proposal = StartEpoch(epoch, (CLUSTER,), policies, gap if gap > GAP else 0, ahead=self._setting.ahead)
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
                await self.loop.checkpoints.write()
            except (StoreError, CommandError):
                continue
