"""An agent whose registration is refused because another one has its name ends its tasks and waits; others go on, in their turn."""

import itertools
import logging
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from spillover.agent.connection.link import CALL_LIMIT, LONGEST_SPREAD, SLOW_DELAY
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.faults.agents import AgentLife
from tests.support.faults.hosts import Host, Universe
from tests.support.faults.network import ADDRESS, SERVER, Endpoint, Network, Weather
from tests.support.faults.plans import AgentPlan
from tests.support.faults.tasks import Machine, Script

TAKEN = "another agent took the name 'n1'"
TASK = msgspec.json.encode(Script(runs=600 * SECOND)).decode()


class Server:
    """Gives its agent two tasks, of which one has to wait; later it refuses to register it."""

    def __init__(self, universe: Universe) -> None:
        self.host = Host(universe, SERVER)
        self.refuses: grpc.StatusCode | None = None
        self.spread = 0
        self.registrations: list[tuple[int, pb.RegisterRequest]] = []
        self.released: list[str] = []

    def endpoint(self) -> Endpoint:
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "Register": unary(self._register, pb.RegisterRequest.FromString, _bytes),
            "Heartbeat": unary(self._heartbeat, pb.HeartbeatRequest.FromString, _bytes),
            "Report": unary(self._report, pb.ReportRequest.FromString, _bytes),
            "Listen": grpc.unary_stream_rpc_method_handler(self._listen, pb.ListenRequest.FromString, _bytes),
        }
        handler = grpc.method_handlers_generic_handler("spillover.agents.v1.Agents", methods)
        return Endpoint(self.host, (handler,))

    async def _register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterReply:
        self.registrations.append((self.host.universe.now, request))
        await self._refuse(context)
        keep = [held.lease for held in request.held]
        return pb.RegisterReply(
            epoch=1,
            incarnation=len(self.registrations),
            keep=keep,
            heartbeat=2 * SECOND,
            short_term=300 * SECOND,
            spread=self.spread,
        )

    async def _heartbeat(self, _: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatReply:
        if self.refuses is not None:  # it knows no such registration, so that nothing is said of its leases
            await context.abort(grpc.StatusCode.UNAVAILABLE, "register again")
        return pb.HeartbeatReply(epoch=1)

    async def _report(self, request: pb.ReportRequest, _: Any) -> pb.ReportReply:
        self.released += [lease.job for lease in request.released]
        answers = [pb.Answer(lease=result.lease) for result in request.results]
        return pb.ReportReply(epoch=1, results=answers, started=[each.lease for each in request.started])

    async def _listen(self, _: pb.ListenRequest, __: Any) -> AsyncIterator[pb.FromServer]:
        if len(self.registrations) == 1:
            yield pb.FromServer(epoch=1, grants=[a_grant("runs"), a_grant("waits")])
        await self.host.create_future()

    async def _refuse(self, context: Any) -> None:
        if self.refuses is not None:
            await context.abort(self.refuses, TAKEN)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def a_grant(job: str) -> pb.Grant:
    task = pb.Task(shell=TASK, resources=pb.Resources(cpu=1000), lost_after=300 * SECOND)
    return pb.Grant(lease=pb.Lease(job=job, attempt=1, seq=1), task=task)


class House:
    """One agent, its machine, and the server."""

    def __init__(self, folder: Path) -> None:
        self.universe = Universe()
        network = Network(self.universe, "1")
        network.weather["n1"] = Weather()
        self.server = Server(self.universe)
        network.endpoints[ADDRESS] = self.server.endpoint()
        dice = random.Random(1)
        self.machine = Machine(self.universe, "n1", dice)
        self.agent = AgentLife(AgentPlan("n1", 1, 1, 1.0), self.machine, network, folder, dice)

    def runs(self) -> list[str]:
        return [lease.job for lease in self.machine.executions]

    def goes_on(self, seconds: float) -> None:
        until = self.universe.now + int(seconds * SECOND)
        self.universe.at(until, lambda: None)
        self.universe.run(lambda: self.universe.now >= until)

    def is_refused(self, code: grpc.StatusCode, seconds: float) -> list[float]:
        """The seconds between the registrations that come meanwhile."""
        self.server.refuses, before = code, len(self.server.registrations)
        self.goes_on(seconds)
        times = [at / SECOND for at, _ in self.server.registrations[before:]]
        return [later - sooner for sooner, later in itertools.pairwise(times)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.goes_on(1)
    assert house.runs() == ["runs"]
    yield house
    house.agent.kill(orphans=True)
    house.server.host.kill()
    assert not house.universe.mistakes


def test_who_finds_another_one_under_its_name_ends_its_tasks_and_waits(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "spillover.agent"):
        pauses = house.is_refused(grpc.StatusCode.ABORTED, 60)
    assert house.runs() == []
    assert len(pauses) > 5
    assert all(SLOW_DELAY / 2 <= pause <= SLOW_DELAY + 1 for pause in pauses)
    assert len([each for each in caplog.messages if TAKEN in each]) == 1, "it says so once"
    assert f"{TAKEN}; retrying every 5 s" in caplog.text


def test_who_was_fenced_has_nothing_left_when_it_is_let_in_again(house: House) -> None:
    house.is_refused(grpc.StatusCode.ABORTED, 10)
    house.server.refuses = None
    house.goes_on(10)
    _, last = house.server.registrations[-1]
    assert [(held.lease.job, held.phase) for held in last.held] == [("runs", pb.ENDED)]
    assert house.server.released == ["waits"]
    assert house.runs() == []


def test_who_was_only_late_runs_its_tasks_on(house: House) -> None:
    pauses = house.is_refused(grpc.StatusCode.UNAVAILABLE, 60)
    assert house.runs() == ["runs"]
    assert max(pauses) < SLOW_DELAY / 2
    house.server.refuses = None
    house.goes_on(5)
    assert house.runs() == ["runs"]


def test_who_is_not_let_in_in_time_leaves_the_server_more_and_more_of_it(house: House) -> None:
    pauses = house.is_refused(grpc.StatusCode.DEADLINE_EXCEEDED, 250)
    assert house.runs() == ["runs"]
    assert CALL_LIMIT < max(pauses) <= LONGEST_SPREAD + 1
    assert sum(pauses) / len(pauses) > 2 * CALL_LIMIT
    house.server.refuses = None
    house.goes_on(LONGEST_SPREAD)
    later = house.is_refused(grpc.StatusCode.UNAVAILABLE, 30)
    assert max(later) < CALL_LIMIT, "one that is away is looked for as before"


def test_agents_of_a_large_house_come_back_each_in_its_turn(house: House) -> None:
    house.server.spread = 20 * SECOND
    house.is_refused(grpc.StatusCode.UNAVAILABLE, 5)
    house.server.refuses = None
    house.goes_on(5)
    pauses = house.is_refused(grpc.StatusCode.UNAVAILABLE, 200)
    assert CALL_LIMIT < max(pauses) <= 21
    assert house.runs() == ["runs"]
