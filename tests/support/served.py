"""Runs the real commands of a server on the live loop, with a store in memory and the hub of agents.

Tests of the API, the client and the command line put it behind the HTTP server. It starts without jobs and agents. A
test can connect one agent, and controls what its tasks do.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.notifications.settings import Settings
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.files import JobFiles
from spillover.control.requests.rights import AccessRules
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.tokens import Tokens
from spillover.control.secrets.delivery import SecretDelivery
from spillover.control.secrets.vault import Vault
from spillover.core.events import AnyEvent, JobStopping, SeenNode, Usage
from spillover.core.proposals import Outcome, Result, SeeNodes, Started, StartEpoch
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.files import File
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.model.units import DAY, SECOND
from spillover.ports.blobs import one_piece
from spillover.server.oidc import OpenIdProvider
from spillover.stores.blobs import MemoryBlobs
from spillover.stores.memory import open_memory
from spillover.wire import agents_pb2 as pb
from spillover.wire.api import TokenRequest
from tests.support.http import TOKEN
from tests.support.inside import Inside, leading
from tests.support.live import FaultyJournal
from tests.support.secret_keys import HandKeys
from tests.support.waiting import turn, until


class Agent:
    """The agent n1 of the cluster onprem, connected to the real hub; it runs nothing, and reports what tests say."""

    def __init__(self, control: Inside, hub: Hub, incarnation: int) -> None:
        self._control = control
        self._hub = hub
        self.incarnation = incarnation
        self._written: dict[tuple[str, bool], bytes] = {}
        """Output by job and whether it is stderr."""
        self._reads: dict[int, pb.OutputRead] = {}
        """Requests for output that are not complete."""
        self._said: list[asyncio.Task[None]] = []
        """Reports that it sends because jobs were stopped."""
        self._listening: asyncio.Task[None] | None = None
        control.loop.listen(self._see)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Stop the tasks that the server stops."""
        for event in events:
            if type(event) is JobStopping:
                self._said.append(asyncio.create_task(self.end(event.job, None, Outcome.STOPPED)))

    async def join(self) -> None:
        """Connect."""
        self._listening = asyncio.create_task(self._listen())
        await turn()

    async def leave(self) -> None:
        """Disconnect."""
        tasks = [*self._said, *([self._listening] if self._listening is not None else [])]
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            assert end is None or isinstance(end, asyncio.CancelledError), end
        self._reads.clear()

    async def _listen(self) -> None:
        session = self._hub.session(self.incarnation)
        assert session is not None
        async for message in session.messages(self._control.loop.epoch):
            for read in message.reads:
                if read.stop:
                    self._reads.pop(read.id, None)
                else:
                    self._reads[read.id] = read
            await self._send()

    async def _send(self) -> None:
        """Send output to its readers; end a followed stream when its job has ended."""
        for read in list(self._reads.values()):
            data = self._written.get((read.job, read.stderr), b"")[read.offset :]
            job = self._control.loop.state.jobs[JobId(read.job)]
            ended = not read.follow or not isinstance(job.phase, Placed | Running)
            if data:
                chunk = pb.OutputChunk(incarnation=self.incarnation, id=read.id, data=data)
                await self._hub.chunk(chunk)
                read.offset += len(data)
            if ended:
                await self._hub.chunk(pb.OutputChunk(incarnation=self.incarnation, id=read.id, end=True))
                self._reads.pop(read.id, None)

    async def asked_for_output(self) -> None:
        """Wait until a client follows the output of a task."""
        await until(lambda: self._reads, "a reader of output", every=0.001)

    async def start(self, job: str) -> None:
        """Report that a task runs."""
        found = self._held(job)
        assert isinstance(found.phase, Placed)
        await self._control.propose(Started(found.phase.key, found.lease, 0))

    async def write(self, job: str, data: bytes, *, stderr: bool = False) -> None:
        """Let a task write output."""
        self._written[job, stderr] = self._written.get((job, stderr), b"") + data
        await self._send()

    async def end(
        self, job: str, code: int | None = 0, outcome: Outcome = Outcome.EXITED, outputs: str = ""
    ) -> None:
        """Report the end of a task."""
        found = self._held(job)
        assert isinstance(found.phase, Placed | Running)
        usage = Usage(SECOND)
        result = Result(found.phase.key, found.lease, outcome, code, None, usage, 0, outputs=outputs)
        await self._control.propose(result)
        await self._send()

    def _held(self, job: str) -> Job:
        return self._control.loop.state.jobs[JobId(job)]


class Served:
    """The commands of a server that leads two clusters, with controls for tests."""

    def __init__(self, control: Inside, journal: FaultyJournal) -> None:
        self.control = control
        self.journal = journal
        """The journal, whose writes fail on demand."""
        self.blobs = MemoryBlobs()
        self.hub = Hub()
        self.tokens = Tokens(TOKEN, control.loop)
        self.access = AccessRules()
        clock = control.clock
        self.sign_ins = SignIns(
            self.tokens,
            control.loop,
            self.access,
            lambda settings: OpenIdProvider(settings, lambda: clock.ran / SECOND),
        )
        self.keys = HandKeys()
        """The keys of its secrets."""
        self.vault = Vault(control.loop, control.store.secrets, self.keys)
        self.delivery = SecretDelivery(control.loop, control.specs, self.vault)
        control.submitting.secrets = self.delivery
        self.settings = Settings()
        """Who is told of what."""
        files = JobFiles(self.blobs)
        store = control.store
        self.commands = LiveCommands(
            Parts(
                control.loop,
                store.journal,
                store.archive,
                self.hub,
                control.specs,
                control.lookup,
                control.submitting,
                tokens=self.tokens,
                files=files,
                access=self.access,
                audit=store.audit,
                vault=self.vault,
                outbox=store.outbox,
                settings=self.settings,
                sign_ins=self.sign_ins,
            )
        )
        self._runner = LeaseSender(control.loop, self.hub, control.specs)
        self._agents: list[Agent] = []

    async def see_kubernetes(self) -> None:
        """Let the server lead a Kubernetes cluster too, with zones and some nodes."""
        facts, kube = self.control.loop.state.facts, ClusterName("kube")
        zone = Level("zone", "topology.kubernetes.io/zone")
        spec = ClusterSpec(kube, "kubernetes", Role.OWNED, levels=(zone,))
        await self.control.propose(
            StartEpoch(self.control.loop.epoch, (*facts.clusters, spec), facts.policies)
        )
        seen = [
            SeenNode(
                NodeName(f"k{number}"),
                Resources(4000, 2**30, number % 2),
                Resources(500),
                labels={zone.label: place} if place else {},
            )
            for number, place in enumerate(["north", "south", ""], 1)
        ]
        await self.control.propose(SeeNodes(kube, tuple(seen), whole=True))

    async def agent(self, cpus: int = 2, abilities: tuple[str, ...] = ()) -> Agent:
        """Register and connect an agent."""
        requests = AgentRequests(self.control.loop, self.hub, DAY)
        intro = Introduction(
            ClusterName("onprem"), NodeName("n1"), Resources(cpus * 1000, 2**40), (), {}, 0, (), 0
        )
        intro = msgspec.structs.replace(intro, abilities=abilities)
        agent = Agent(self.control, self.hub, (await requests.register(intro)).incarnation)
        self._agents.append(agent)
        await agent.join()
        return agent

    async def happen(self, what: str) -> int:
        """Cause one more event, by creating a token with a note; return its revision."""
        await self.commands.create_token(TokenRequest("submit", note=what), "test")
        return self.control.loop.gate.durable

    async def kept(self, files: Sequence[File]) -> str:
        """Store a list of output files on the server, as an agent does; return its digest."""
        listed = msgspec.json.encode(list(files))
        name = hashlib.sha256(listed).hexdigest()
        await self.blobs.put(name, one_piece(listed))
        return name

    async def waited_for(self, job: str) -> None:
        """Wait until a client waits for the end of a job."""
        await until(lambda: job in self.commands._ends.waiting, f"a wait for {job}", every=0.001)

    async def followed(self, job: str | None = None) -> None:
        """Wait until a client follows all events, or those of a job."""
        told = self.control.loop.subscribers
        await until(lambda: told._to_all if job is None else job in told._to_jobs, "a follower", every=0.001)

    @property
    def jobs(self) -> dict[JobId, Job]:
        """All live jobs, oldest first."""
        return self.control.loop.state.jobs

    async def close(self) -> None:
        """Disconnect the agents."""
        for agent in self._agents:
            await agent.leave()


@asynccontextmanager
async def served(at: int | None = None) -> AsyncIterator[Served]:
    """Run such a server; its clock stands still, at `at` (nanoseconds UTC) if given."""
    store = open_memory()
    journal = FaultyJournal(store.journal)
    async with leading(replace(store, journal=journal), at) as control:
        there = Served(control, journal)
        try:
            yield there
        finally:
            await there.close()


def failing(*errors: Exception, then: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a command that raises these errors in turn and then works; for errors that no request can cause."""
    left = list(errors)

    def fail(*arguments: Any, **options: Any) -> Any:
        if left or then is None:
            raise left.pop(0)
        return then(*arguments, **options)

    return fail
