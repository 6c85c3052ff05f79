"""A server that is not sure to lead says and does nothing, from the very moment that its term ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.controllers.files import FileKeeping
from spillover.control.controllers.leases import Leases
from spillover.core.events import JobState
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, FOREVER, SECOND
from spillover.ports.cluster import Start, Unsendable
from spillover.ports.commands import CommandError, ErrorKind
from spillover.stores.blobs import MemoryBlobs
from tests.support.inside import Inside
from tests.support.waiting import until

TERM = 10 * SECOND
N1 = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)


class Server:
    """What a server tells agents with, in a term that has begun."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.loop = control.loop
        self.hub = Hub()
        self.requests = AgentRequests(control.loop, self.hub, DAY)
        self.runner = LeaseSender(control.loop, self.hub, control.specs)
        self.loop.led_until(control.clock.monotonic() + TERM)

    def stands_still(self) -> None:
        """For exactly as long as its term lasts; nobody who renews the lead has looked since."""
        self.control.clock.pass_by(TERM / SECOND)


@asynccontextmanager
async def reclaiming(
    server: Server, monkeypatch: pytest.MonkeyPatch, heartbeat: int
) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Leases of an agent, which is silent from now on, are looked at again and again: waits until they were so often more."""
    server.loop.led_until(FOREVER)
    server.requests = AgentRequests(server.loop, server.hub, DAY, heartbeat)
    monkeypatch.setattr("spillover.control.controllers.leases.EVERY", 0.001)
    leases = Leases(server.loop, server.hub, server.requests)
    looked, look = 0, leases.look

    async def counted() -> None:
        nonlocal looked
        await look()
        looked += 1

    async def looks(count: int) -> None:
        wanted = looked + count
        await until(lambda: looked >= wanted, "a look", every=0.001)

    monkeypatch.setattr(leases, "look", counted)
    await server.requests.register(N1)
    running = asyncio.create_task(leases.run())
    yield looks
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def server(control: Inside) -> Server:
    return Server(control)


async def test_the_lead_lasts_until_its_term_ends_and_not_a_moment_longer(server: Server) -> None:
    server.control.clock.pass_by(TERM / SECOND - 0.001)
    assert server.loop.may_act()
    server.control.clock.pass_by(0.001)
    assert not server.loop.leads()
    assert not server.loop.may_act()


async def test_a_server_whose_term_ended_answers_no_agent(server: Server) -> None:
    welcome = await server.requests.register(N1)
    await server.requests.heartbeat(welcome.incarnation)
    server.stands_still()
    for answer in (
        server.requests.heartbeat(welcome.incarnation),
        server.requests.report(welcome.incarnation, [], [], []),
        server.requests.leased("onprem/n1", []),
        server.requests.register(N1),
    ):
        with pytest.raises(CommandError, match="leadership was not renewed in time") as refused:
            await answer
        assert refused.value.kind is ErrorKind.UNAVAILABLE


async def test_a_heartbeat_that_waited_for_the_disk_beyond_the_term_is_not_answered(server: Server) -> None:
    welcome = await server.requests.register(N1)
    submitting = asyncio.create_task(server.control.submit("train"))
    await asyncio.sleep(0)
    answer = asyncio.create_task(server.requests.heartbeat(welcome.incarnation))
    await asyncio.sleep(0)
    server.stands_still()
    with pytest.raises(CommandError, match="leadership was not renewed in time"):
        await answer
    await asyncio.gather(submitting, return_exceptions=True)


async def test_a_server_whose_term_ended_hands_out_no_lease_until_it_leads_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.control.agents.lease_sender.RETRY", 0.001)
    given: list[str] = []

    def start(_: str, __: int, starts: Sequence[Start]) -> list[Unsendable]:
        given.extend(each.lease.job for each in starts)
        return []

    monkeypatch.setattr(server.hub, "start", start)
    await server.requests.register(N1)
    (job,) = await server.control.submit("train")
    server.stands_still()
    running = asyncio.create_task(server.runner.run())
    await until(lambda: server.loop.held, "noticing that the term ended")
    assert not given
    server.loop.led_until(FOREVER)
    await until(lambda: given, "handing out")
    assert given == [job]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_server_whose_term_ended_deletes_no_file(server: Server) -> None:
    blobs = MemoryBlobs()
    files = FileKeeping(server.loop, server.control.specs, blobs, DAY)
    await files.sweep()
    server.stands_still()
    with pytest.raises(CommandError, match="leadership was not renewed in time"):
        await files.sweep()


async def test_a_server_that_was_suspended_hears_agents_before_it_gives_them_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reclaiming(server, monkeypatch, SECOND) as looks:
        (job,) = await server.control.submit("train")
        await looks(1)
        server.control.clock.pass_by(3600)
        await looks(2)
        assert server.loop.state.jobs[JobId(job)].state is JobState.PLACED


async def test_agents_that_are_gone_are_given_up_however_short_their_heartbeat_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reclaiming(server, monkeypatch, SECOND // 10) as looks:
        (job,) = await server.control.submit("train")
        for _ in range(3):
            server.control.clock.pass_by(0.3)
            await looks(2)
        assert server.loop.state.jobs[JobId(job)].state is JobState.QUEUED
