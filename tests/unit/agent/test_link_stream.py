"""Heartbeats on the stream on which leases come: one at a time, and by a call of their own where the stream is held up."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from spillover.agent.connection.link import CALL_LIMIT, JOIN_LIMIT
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.faults import agents
from tests.support.faults.agents import AgentLife
from tests.support.faults.hosts import Host, Universe
from tests.support.faults.network import ADDRESS, SERVER, Endpoint, Network, Weather
from tests.support.faults.plans import AgentPlan
from tests.support.faults.tasks import Machine

BEAT = 2 * SECOND


class Server:
    """Answers heartbeats, on the stream unless that is held up."""

    def __init__(self, universe: Universe, *, joins: bool) -> None:
        self.host = Host(universe, SERVER)
        self.joins = joins
        """Whether one stream is enough to register; it is not with a server of an earlier release."""
        self.held_up = False
        self.silent = 0
        """Registrations that are not answered."""
        self.joined = 0
        self.registrations = 0
        self.beats: list[int] = []
        """When heartbeats came on the stream."""
        self.calls = 0

    def endpoint(self) -> Endpoint:
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "Register": unary(self._register, pb.RegisterRequest.FromString, _bytes),
            "Heartbeat": unary(self._heartbeat, pb.HeartbeatRequest.FromString, _bytes),
            "Session": grpc.stream_stream_rpc_method_handler(self._session),
        }
        if self.joins:
            methods["Join"] = grpc.stream_stream_rpc_method_handler(self._join)
        handler = grpc.method_handlers_generic_handler("spillover.agents.v1.Agents", methods)
        return Endpoint(self.host, (handler,))

    async def _register(self, request: pb.RegisterRequest, _: Any) -> pb.RegisterReply:
        self.registrations += 1
        return pb.RegisterReply(
            epoch=1,
            incarnation=self.registrations,
            heartbeat=BEAT,
            short_term=30 * SECOND,
            stream=request.stream,
        )

    async def _join(self, _: Any, context: Any) -> None:
        introduction = pb.HeartbeatRequest.FromString(await context.read()).introduction
        self.joined += 1
        if self.joined <= self.silent:
            await self.host.create_future()
        await context.write(
            _bytes(pb.FromServer(epoch=1, welcome=await self._register(introduction, context)))
        )
        await self._session(None, context)

    async def _heartbeat(self, _: pb.HeartbeatRequest, __: Any) -> pb.HeartbeatReply:
        self.calls += 1
        return pb.HeartbeatReply(epoch=1)

    async def _session(self, _: Any, context: Any) -> None:
        answer = pb.FromServer(epoch=1, renewed=pb.HeartbeatReply(epoch=1))
        while True:
            await context.read()
            self.beats.append(self.host.universe.now)
            while self.held_up:
                await self.host.create_future()
            await context.write(_bytes(answer))


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


class House:
    """One agent and the server."""

    def __init__(self, folder: Path, *, joins: bool) -> None:
        self.universe = Universe()
        network = Network(self.universe, "1")
        network.weather["n1"] = Weather()
        self.server = Server(self.universe, joins=joins)
        network.endpoints[ADDRESS] = self.server.endpoint()
        dice = random.Random(1)
        machine = Machine(self.universe, "n1", dice)
        self.agent = AgentLife(AgentPlan("n1", 1, 1, 1.0), machine, network, folder, dice)

    def goes_on(self, seconds: float) -> None:
        until = self.universe.now + int(seconds * SECOND)
        self.universe.at(until, lambda: None)
        self.universe.run(lambda: self.universe.now >= until)


@pytest.fixture(params=[True, False], ids=["joins", "registers"])
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[House]:
    monkeypatch.setattr(agents, "OLD", "")
    house = House(tmp_path, joins=request.param)
    yield house
    house.agent.kill(orphans=True)
    house.server.host.kill()
    assert not house.universe.mistakes


def test_heartbeats_come_on_the_stream_at_their_pace(house: House) -> None:
    house.goes_on(60)
    assert house.server.registrations == 1
    assert house.server.joined == house.server.joins
    times = house.server.beats
    assert 28 <= len(times) <= 31
    assert house.server.calls == 0
    assert all(later - sooner >= BEAT * 99 // 100 for sooner, later in itertools.pairwise(times))


def test_an_answer_that_is_held_up_behind_large_tasks_costs_no_connection(house: House) -> None:
    house.goes_on(10)
    house.server.held_up, before = True, len(house.server.beats)
    house.goes_on(60)
    assert len(house.server.beats) <= before + 1, "one is under way at a time"
    assert house.server.calls >= 60 / (CALL_LIMIT + BEAT / SECOND) - 1
    assert house.server.registrations == 1


@pytest.mark.parametrize("house", [True], indirect=True)
def test_a_server_that_does_not_let_an_agent_in_is_asked_again_later(house: House) -> None:
    house.server.silent = 2
    house.goes_on(JOIN_LIMIT - 1)
    assert (house.server.joined, house.server.registrations) == (1, 0)
    house.goes_on(120)
    assert (house.server.joined, house.server.registrations) == (3, 1)
    assert house.server.beats
