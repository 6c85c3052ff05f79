"""An agent on a host: the real state, spool and link, with tasks that pretend."""

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from spillover.agent.finding import Target
from spillover.agent.link import Link, Surroundings
from spillover.agent.output import Key, Outputs
from spillover.agent.peers import SERVICE, Peers
from spillover.agent.process import Returned, Sight, Spawned
from spillover.agent.run import FAREWELL, PROTOCOL, REAP_MARGIN
from spillover.agent.spool import Spool
from spillover.agent.state import FAREWELL_GRACE, AgentState
from spillover.agent.transfers import ServerTransfers
from spillover.agent.values import (
    Exit,
    Fetch,
    Forget,
    HandOver,
    Instruction,
    Recall,
    Reconnect,
    Result,
    Signal,
    Start,
    Task,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome
from spillover.model.resources import Resources
from spillover.testing.faults.hosts import MILLISECOND, Host
from spillover.testing.faults.network import ADDRESS, TOKEN, Endpoint, Network
from spillover.testing.faults.plans import AgentPlan
from spillover.testing.faults.tasks import Machine
from spillover.wire import agents_pb2 as pb

MEMORY = 1 << 40


class _Spool(Spool):
    """One whose owner may be killed."""

    def drop(self) -> None:
        """Close the file as the kernel does: what was not written never will be."""
        os.close(self._file)


class _Finder:
    """Knows where the server is."""

    async def find(self) -> Target:
        """See Finder."""
        return Target(ADDRESS, TOKEN)


class _Peers(Peers):
    """Real in what it tells and asks, on the network of the story."""

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
    """One life of an agent."""

    def __init__(
        self, plan: AgentPlan, machine: Machine, network: Network, folder: Path, dice: random.Random
    ) -> None:
        self.host = Host(machine.universe, plan.name, plan.rate)
        self.machine = machine
        self.recovered = False
        """Whether what an earlier life left running is gone."""
        self.log_retention = 0
        self.keep_output = False
        capacity = Resources(plan.cpus * 1000, MEMORY)
        self.state = AgentState(capacity)
        self.outputs = Outputs(folder, self._held, self._name_output)
        self._spool = _Spool(folder / f"{plan.name}.spool")
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._flushing = False
        self._dice = dice
        introduction = pb.RegisterRequest(
            protocol=PROTOCOL,
            cluster="onprem",
            name=plan.name,
            life=f"{dice.getrandbits(64):x}",
            capacity=pb.Resources(cpu=capacity.cpu, memory=capacity.memory),
            queue=plan.queue,
            version="0",
            pid=1,
        )
        surroundings = Surroundings(
            lambda target: network.dial(self.host, target.address),  # type: ignore[arg-type, return-value]
            self.host.monotonic,
            dice.uniform,
            lambda: 0,
        )
        transfers = ServerTransfers()
        self._introduction = introduction
        self._peers = _Peers(self.host, network, self._fetched, self._unfetched, transfers)
        self._link = Link(self, introduction, _Finder(), surroundings, transfers, self._peers)
        self.host.create_task(self._live(), name=f"{plan.name} lives")

    def kill(self, *, orphans: bool) -> None:
        """`kill -9`; its tasks die with it, or are left to the next life."""
        if self.host.dead:
            return
        self.host.kill()
        self._spool.drop()
        if not orphans:
            left = list(self.machine.executions)
            span = int(self._dice.random() * 100 * MILLISECOND)
            self.machine.universe.after(span, lambda: self.machine.clear(left))

    async def leave(self, gone: Callable[[], object]) -> None:
        """As `Agent._leave`, and then the end of it."""
        self.act(self.state.leave(self.host.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_GRACE / 1e9 + REAP_MARGIN):
                await self.wait_stopped()
        if self._link.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._link.drained()
        self.flush()
        self.machine.universe.after(0, gone)

    @property
    def leases(self) -> set[Lease]:
        """All that it holds, or has to say something about."""
        return {*self.state.waiting, *self.state.fetching, *self.state.running, *self.state.results}

    async def _live(self) -> None:
        """As `Agent.run`."""
        self.machine.clear(list(self.machine.executions))
        while self.machine.executions:  # noqa: ASYNC110 - as a real one looks at processes
            await asyncio.sleep(0.02)
        self._recover()
        self.recovered = True
        self._introduction.peer = await self._peers.open()
        await self._link.run()

    def _recover(self) -> None:
        now, wall = self.host.monotonic(), self.host.wall()
        for entry in self._spool.left():
            usage = Usage(ran=max(0, wall - entry.wall))
            lost = Result(entry.lease, Outcome.LOST, now, usage=usage, message="its agent died while it ran")
            self._spool.keep(lost, now, wall)
        self.flush()
        self.state.results |= {result.lease: result for result in self._spool.unanswered(now, wall)}

    # --- what the link asks of its worker

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """See Worker."""
        reconnect = None
        fetches: list[Fetch] = []
        for instruction in instructions:
            match instruction:
                case Start(lease, task, slot):
                    self.machine.start(lease, task, slot, self.host, self._seen)
                case Recall(lease):
                    self.machine.recall(lease)
                case Signal(lease, kill):
                    self.machine.signal(lease, kill=kill)
                case Forget(lease, _):
                    self._spool.forget(lease)
                    self._flush_soon()
                case HandOver(lease, ticket):
                    self._peers.offer(lease, ticket)
                case Fetch():
                    fetches.append(instruction)
                case Reconnect():
                    reconnect = instruction
                case _:  # files, which these tasks have none of
                    pass
        if fetches:
            self._peers.fetch(fetches)
        if not self.state.running:
            self._idle.set()
        if self.state.news():
            self._link.ready()
        self._set_timer()
        return reconnect

    def flush(self) -> None:
        """See Worker."""
        self._flushing = False
        if not self.host.dead:
            self._spool.flush()

    async def wait_stopped(self) -> None:
        """See Worker."""
        while self.state.running:
            self._idle.clear()
            await self._idle.wait()

    def _fetched(self, lease: Lease, task: Task) -> None:
        """See Agent."""
        self.act(self.state.fetched(self.host.monotonic(), lease, task))

    def _unfetched(self, lease: Lease) -> None:
        """See Agent."""
        self.act(self.state.unfetched(self.host.monotonic(), lease))

    # --- tasks and time

    def _seen(self, seen: list[Sight]) -> None:
        """Processes were made or ended."""
        if self.host.dead:
            return
        now, wall = self.host.monotonic(), self.host.wall()
        out: list[Instruction] = []
        for what in seen:
            if isinstance(what, Returned):
                out += self.state.returned(now, [what.lease])
                if (result := self.state.results.get(what.lease)) is not None:
                    self._spool.keep(result, now, wall)
            elif isinstance(what, Spawned):
                self._spool.started(what.lease, what.pid, what.birth, wall - (now - what.at))
                out += self.state.started(now, what.lease, what.at)
            else:
                out += self._ended(now, wall, what.lease, what.end)
        self._flush_soon()
        self.act(out)

    def _ended(self, now: int, wall: int, lease: Lease, end: Exit) -> list[Instruction]:
        out = self.state.ended(now, lease, end)
        if (result := self.state.results.get(lease)) is not None:
            self._spool.keep(result, now, wall)
        return out

    def _set_timer(self) -> None:
        wake = self.state.wake()
        if wake is None or (self._timer is not None and self._timer_at <= wake):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wake
        self._timer = self.host.call_later(max(0.0, (wake - self.host.monotonic()) / 1e9), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.host.dead:
            self.act(self.state.tick(self.host.monotonic()))

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.host.call_soon(self.flush)

    def _held(self, _: Key) -> Lease | None:
        return None

    async def _name_output(self, _: Lease) -> None:
        """Nobody reads."""
