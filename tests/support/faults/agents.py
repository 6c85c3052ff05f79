"""Runs an agent on a virtual host: real runtime, state, spool and link, with simulated tasks."""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from spillover.agent.connection.finding import Target
from spillover.agent.connection.introduction import introduce
from spillover.agent.connection.link import Link, LinkEnvironment
from spillover.agent.connection.peers import SERVICE, Peers
from spillover.agent.connection.transfers import ServerTransfers
from spillover.agent.files.spool import Spool
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import GangStart, Readiness, Task
from spillover.agent.options import AgentOptions
from spillover.agent.runtime import AgentRuntime, Clocks
from spillover.agent.sessions.places import Entry
from spillover.core.events import Lease
from spillover.core.records.tasks import LEADER
from spillover.model.resources import Resources
from spillover.wire import agents_pb2 as pb
from tests.support.faults.hosts import MILLISECOND, Host
from tests.support.faults.network import ADDRESS, TOKEN, Endpoint, Network
from tests.support.faults.plans import AgentPlan
from tests.support.faults.tasks import Machine

MEMORY = 1 << 40
OLD = "0123"
"""Processes whose names end so renew by a separate call, like agents before the stream existed."""


class _Spool(Spool):
    """A spool whose process may be killed; what it has not written then is lost."""

    def __init__(self, host: Host, path: Path) -> None:
        super().__init__(path)
        self._host = host

    def flush(self) -> None:
        """See Spool."""
        if not self._host.dead:
            super().flush()

    def drop(self) -> None:
        """Close the file as the kernel does."""
        os.close(self._file)


class _Hands:
    """Lets the machine of an agent run its tasks, until the agent is dead."""

    def __init__(self, host: Host, machine: Machine, runtime: AgentRuntime) -> None:
        self._host = host
        self._machine = machine
        self._runtime = runtime
        self._seen = runtime.seen

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """See Hands."""
        if not self._host.dead:
            self._machine.start(lease, task, slot, self._host, self._seen)

    def prefetch(self, task: Task) -> None:
        """Do nothing: these tasks have no files."""

    def prepare(self, lease: Lease, task: Task) -> None:
        """Prepare a task of a gang within a moment, or fail to, as its script says."""
        script = self._machine.script_of(task)
        if lease.attempt <= script.unprepared and lease.task == task.tasks - 1:
            self._host.call_later(script.preparing, self._runtime.unprepared, lease, "no room on disk")
        else:
            self._host.call_later(script.preparing, self._prepared, lease)

    def _prepared(self, lease: Lease) -> None:
        self._machine.prepared(lease)
        self._runtime.prepared(lease, Readiness(1, 4000 if lease.task == LEADER else 0))

    def discard(self, lease: Lease) -> None:
        """Do nothing: nothing was written."""

    def describe_gang(self, lease: Lease, start: GangStart) -> Mapping[str, str]:
        """Return nothing: nobody reads it."""
        del lease, start
        return {}

    def entry(self, lease: Lease, task: Task) -> Entry | None:
        """Return None: nobody joins these tasks."""
        return None

    def recall(self, lease: Lease, task: Task) -> None:
        """See Hands."""
        if not self._host.dead:
            self._machine.recall(lease)

    def signal(self, lease: Lease, task: Task, *, kill: bool) -> None:
        """See Hands."""
        if not self._host.dead:
            self._machine.signal(lease, kill=kill)

    def notify(self, lease: Lease, task: Task) -> None:
        """Do nothing: these tasks save nothing."""

    async def name_output(self, lease: Lease, task: Task) -> None:
        """Do nothing: nobody reads output."""


class _Finder:
    """Finds the server, whose address is fixed."""

    async def find(self) -> Target:
        """See Finder."""
        return Target(ADDRESS, TOKEN)

    def exchanged(self, token: str, authority: bytes) -> None:
        """See ServerFinder."""

    def found(self, target: Target) -> None:
        """See Finder."""


class _Peers(Peers):
    """Real messages between agents, on the simulated network."""

    def __init__(self, host: Host, network: Network, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._host = host
        self._network = network

    async def open(self) -> str:
        """See Peers."""
        method = grpc.unary_stream_rpc_method_handler(
            self._steal_jobs, pb.StealRequest.FromString, pb.StealReply.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, {"StealJobs": method})
        address = f"{self._host.name}:2"
        self._network.endpoints[address] = Endpoint(self._host, (handler,))
        return address

    def _dial(self, address: str) -> Any:
        return self._network.dial(self._host, address)


class AgentLife:
    """One process of an agent, and how it ends."""

    def __init__(
        self, plan: AgentPlan, machine: Machine, network: Network, folder: Path, dice: random.Random
    ) -> None:
        self.host = Host(machine.universe, plan.name, plan.rate)
        self.machine = machine
        self.recovered = False
        """Whether everything that an earlier process left running is gone."""
        self._dice = dice
        capacity = Resources(plan.cpus * 1000, MEMORY)
        options = AgentOptions(folder, _Finder(), plan.name, "onprem", capacity, plan.queue)
        self.name = f"{dice.getrandbits(64):x}"
        """Unique for each process."""
        self._introduction = introduce(options, self.name, pid=1)
        self._introduction.stream = self.name[-1] not in OLD
        self._spool = _Spool(self.host, folder / f"{plan.name}.spool")
        clocks = Clocks(self.host.monotonic, self.host.wall)
        self._runtime = runtime = AgentRuntime(AgentState(capacity), self._spool, folder, clocks)
        environment = LinkEnvironment(
            lambda target: network.dial(self.host, target.address),  # type: ignore[arg-type, return-value]
            self.host.monotonic,
            dice.uniform,
            lambda: 0,
            self.host.wall,
            lambda _: plan.name,
        )
        transfers = ServerTransfers()
        self._peers = _Peers(self.host, network, runtime.fetched, runtime.unfetched, transfers)
        self._link = Link(runtime, self._introduction, options.finder, environment, transfers, self._peers)
        runtime.begin(_Hands(self.host, machine, runtime), self._peers, self._link)
        self.host.create_task(self._live(), name=f"{plan.name} lives")

    @property
    def leases(self) -> set[Lease]:
        """Return all leases that it holds or must report on."""
        state = self._runtime.state
        return {*state.waiting, *state.fetching, *state.preparing, *state.running, *state.results}

    async def _live(self) -> None:
        """Run like `Agent.run`: first wait until the leftovers of an earlier process are gone."""
        self.machine.clear(list(self.machine.executions))
        while self.machine.executions:  # noqa: ASYNC110 - a real agent polls processes too
            await asyncio.sleep(0.02)
        self._runtime.recover()
        self.recovered = True
        self._introduction.peer = await self._peers.open()
        await self._link.run()

    async def leave(self, gone: Callable[[], object]) -> None:
        """Stop the agent in order; it ends by itself."""
        await self._runtime.leave()
        self._runtime.flush()
        self.machine.universe.after(0, gone)

    def kill(self, *, orphans: bool) -> None:
        """Kill it; its tasks die with it, or remain for its next process."""
        if self.host.dead:
            return
        self.host.kill()
        self._spool.drop()
        if not orphans:
            left = list(self.machine.executions)
            span = int(self._dice.random() * 100 * MILLISECOND)
            self.machine.universe.after(span, lambda: self.machine.clear(left))
