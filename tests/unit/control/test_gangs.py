"""How the server starts gangs on agents: one word for all, when all tasks are prepared, and not too late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import replace

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.controllers.leases import Leases
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Act, Change, Prepared, Result, Started, StartEpoch
from spillover.core.proposals import Outcome as TaskOutcome
from spillover.core.records.jobs import Ended, Placed, Queued, Running
from spillover.model import inside as inside_model
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.inside import Domain
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import CouldNotStart
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.server.server import GAP
from spillover.testing.world import OWNED
from spillover.wire import agents_pb2 as pb
from tests.support.inside import Inside
from tests.support.tiers import few_of

WITHIN = 5 * MINUTE
GANGS = replace(OWNED, gangs=True)
POLICIES = PolicySet(wait=Choice("never"), place=Choice("first_fit"))


class Lab:
    """A server with a cluster of agents that tests speak for."""

    def __init__(self) -> None:
        self.control = Inside()
        self.incarnations: dict[str, int] = {}
        self.ready: dict[Lease, set[int]] = {}
        """Ranks of the tasks that are prepared, by the lease of the first task of their gang."""
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the server on its journal."""
        last = await self.control.begin()
        gap = self.control.loop.now() - last if last else 0
        self._running = asyncio.create_task(self.control.loop.run())
        self.hub = Hub()
        self.requests = AgentRequests(self.control.loop, self.hub, DAY, prepare_within=WITHIN)
        self.sender = LeaseSender(self.control.loop, self.hub, self.control.specs)
        await self.control.propose(
            StartEpoch(self.control.loop.epoch, (GANGS,), POLICIES, gap if gap > GAP else 0)
        )

    async def end(self) -> None:
        """Stop the server."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def restart(self, *held: Lease, away: int = 0) -> None:
        """Start another server after some seconds; the agents register again with the tasks of one gang."""
        await self.end()
        clock, self.control = self.control.clock, Inside(self.control.store)
        self.control.clock.at, self.control.clock.ran = clock.at, clock.ran
        self.control.clock.pass_by(away)
        await self.begin()
        await self.agent("n1", *held[:2], cpus=2)
        await self.agent("n2", *held[2:])

    async def agent(
        self,
        name: str,
        *held: Lease,
        cpus: int = 1,
        gangs: bool = True,
        inside: inside_model.Inside | None = None,
    ) -> None:
        """Register an agent."""
        intro = Introduction(
            ClusterName("onprem"), NodeName(name), Resources(1000 * cpus, 2**40), (), {}, 0, held, 0
        )
        address = f"10.0.0.{name[1:]}"
        welcome = await self.requests.register(
            replace(intro, waiting=held, address=address, gangs=gangs, life=name, inside=inside)
        )
        self.incarnations[name] = welcome.incarnation

    async def prepared(self, name: str, *tasks: Prepared) -> None:
        """Report as an agent that tasks are prepared."""
        await self.requests.report(self.incarnations[name], [], [], [], prepared=tasks)

    async def words(self, name: str) -> list[pb.GangStart]:
        """The words to start gangs that an agent has not read yet."""
        session = self.hub.session(self.incarnations[name])
        assert session is not None
        found: list[pb.GangStart] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                async for message in session.messages(1):
                    found += message.gangs
        return found

    async def gang(self, tasks: int = 3) -> list[Lease]:
        """Submit a gang that fits; return the leases of its tasks."""
        (job,) = await self.control.submit("g", tasks=tasks, retry={"lost": 0})
        found = self.control.loop.state.jobs[JobId(job)]
        assert len(found.tasks) == tasks, found
        return [found.lease_of(rank) for rank in range(tasks)]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    lab = Lab()
    await lab.begin()
    try:
        await lab.agent("n1", cpus=2)
        await lab.agent("n2")
        yield lab
    finally:
        await lab.end()


def task(lease: Lease, port: int = 0, token: bytes = b"") -> Prepared:
    return Prepared(lease, port, 5000 + lease.task, token)


async def test_the_memory_of_tasks_in_one_numa_node_is_bound_to_it(lab: Lab) -> None:
    inside = inside_model.Inside((Domain(0, ("0-1",), (), 2**30), Domain(0, ("2-3",), (), 2**30)))
    await lab.agent("n3", cpus=4, inside=inside)
    sending = asyncio.create_task(lab.sender.run())
    groups = [
        {"name": "near", "run": "true", "pin": "numa", "resources": {"cpu": 1}},
        {"name": "own", "run": "true", "pin": "core", "resources": {"cpu": 1}},
        {"name": "wide", "run": "true", "pin": "socket", "resources": {"cpu": 1}},
        {"name": "loose", "run": "true", "resources": {"cpu": 1, "memory": "1Mi"}},
    ]
    await lab.control.submit("g", run=None, groups=groups, within="node")
    session = lab.hub.session(lab.incarnations["n3"])
    assert session is not None
    found: dict[int, pb.Grant] = {}
    async with asyncio.timeout(10):
        async for message in session.messages(1):
            found |= {grant.lease.task: grant for grant in message.grants}
            if len(found) == len(groups):
                break
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert [bool(found[rank].cpus) for rank in range(4)] == [True, True, True, False]
    assert [found[rank].binds_memory for rank in range(4)] == [True, False, False, False]


# --- the word


async def test_all_agents_get_the_word_when_the_last_task_is_prepared(lab: Lab) -> None:
    first, second, third = await lab.gang()
    await lab.prepared("n1", task(first, 4321, b"secret"), task(second))
    assert await lab.words("n1") == []
    await lab.prepared("n2", task(third))
    (one,), (other,) = await lab.words("n1"), await lab.words("n2")
    assert one == other
    assert (one.job, one.attempt, one.seq) == (first.job, 1, first.seq)
    assert list(one.nodes) == ["n1", "n1", "n2"]
    assert list(one.hosts) == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert (one.port, list(one.ports), one.token) == (4321, [5000, 5001, 5002], b"secret")


async def test_an_agent_that_asks_again_gets_the_word_alone(lab: Lab) -> None:
    first, second, third = await lab.gang()
    await lab.prepared("n1", task(first), task(second))
    await lab.prepared("n2", task(third))
    await lab.words("n1")
    await lab.agent("n2", third)
    await lab.prepared("n2", task(third))
    assert len(await lab.words("n2")) == 1
    assert await lab.words("n1") == []


async def test_what_an_agent_does_not_hold_does_not_count(lab: Lab) -> None:
    first, second, third = await lab.gang()
    await lab.prepared("n1", task(first), task(second), task(third))
    await lab.prepared(
        "n2", task(replace(third, seq=third.seq + 1)), task(replace(third, job=JobId("other")))
    )
    assert await lab.words("n1") == []


async def test_a_gang_that_is_cancelled_meanwhile_gets_no_word(lab: Lab) -> None:
    first, second, third = await lab.gang()
    await lab.prepared("n1", task(first), task(second))
    await lab.control.propose(Change(Act.CANCEL, (first.job,), "ada"))
    await lab.prepared("n2", task(third))
    assert await lab.words("n1") == await lab.words("n2") == []


async def test_another_attempt_is_prepared_from_the_beginning(lab: Lab) -> None:
    first, second, third = await lab.gang()
    await lab.prepared("n1", task(first), task(second))
    await lab.requests.report(lab.incarnations["n1"], [], [], [first, second])
    await lab.requests.report(lab.incarnations["n2"], [], [], [third])
    again = [lab.control.loop.state.jobs[first.job].lease_of(rank) for rank in range(3)]
    assert again[0].seq > first.seq
    await lab.prepared("n2", task(again[2]))
    assert await lab.words("n2") == []
    await lab.prepared("n1", task(again[0]), task(again[1]))
    assert len(await lab.words("n2")) == 1


# --- gangs that cannot start


async def test_a_gang_that_is_not_prepared_in_time_is_given_back(lab: Lab) -> None:
    first, second, third = await lab.gang()
    leases = Leases(lab.control.loop, lab.hub, lab.requests)
    await lab.prepared("n1", task(first), task(second))
    lab.control.clock.pass_by(4 * 60)
    assert lab.requests.gangs.overdue() == []
    lab.control.clock.pass_by(61)
    (overdue,) = lab.requests.gangs.overdue()
    assert overdue.lease == first
    for name in ("n1", "n2"):
        await lab.requests.heartbeat(lab.incarnations[name])
    await leases.look()
    stops = [(await lab.requests.heartbeat(lab.incarnations[name])).stops for name in ("n1", "n2")]
    assert stops == [(first, second), (third,)]
    for name, held in (("n1", (first, second)), ("n2", (third,))):
        node = NodeKey(f"onprem/{name}")
        done = [Result(node, lease, TaskOutcome.STOPPED, None, None, Usage(), 0) for lease in held]
        await lab.requests.report(lab.incarnations[name], [], done, [])
    ended = lab.control.loop.state.jobs[first.job].phase
    assert isinstance(ended, Ended)
    assert isinstance(ended.why, CouldNotStart)
    assert ended.why.message == "not all of its nodes prepared their tasks in time"
    assert lab.requests.gangs.overdue() == []


@pytest.mark.parametrize("seed", few_of(5, range(40)))
async def test_no_gang_holds_room_in_part_for_longer_than_the_bound(lab: Lab, seed: int) -> None:
    """Agents prepare and start tasks, or fail to do either, as dice say; they only obey the server at once."""
    dice, look = Random(seed), MINUTE
    leases = Leases(lab.control.loop, lab.hub, lab.requests)
    await lab.agent("n3", cpus=3)
    since: dict[Lease, int] = {}
    given_back = 0
    for _ in range(60):
        if dice.random() < 0.5:
            await lab.control.submit("g", tasks=dice.randint(2, 4), retry={"lost": 1000})
        jobs = [
            job for job in lab.control.loop.state.jobs.values() if isinstance(job.phase, Placed | Running)
        ]
        tasks = [(job, each) for job in jobs for each in job.tasks]
        for job, each in dice.sample(tasks, len(tasks)):
            lease, node = job.lease_of(each.rank), NodeKey(f"onprem/{each.node}")
            ready = all(one.rank in lab.ready.get(job.lease, ()) for one in job.tasks)
            if not ready and dice.random() < 0.4:
                await lab.prepared(each.node, task(lease))
                lab.ready.setdefault(job.lease, set()).add(each.rank)
            elif ready and each.started is None and dice.random() < 0.7:
                await lab.requests.report(lab.incarnations[each.node], [Started(node, lease, 0)], [], [])
            elif each.started is not None and dice.random() < 0.3:
                done = Result(node, lease, TaskOutcome.EXITED, 0, None, Usage(1), 0)
                await lab.requests.report(lab.incarnations[each.node], [], [done], [])
        lab.control.clock.pass_by(look // SECOND)
        for name in ("n1", "n2", "n3"):
            await lab.requests.heartbeat(lab.incarnations[name])
        await leases.look()
        for name in ("n1", "n2", "n3"):
            stops = (await lab.requests.heartbeat(lab.incarnations[name])).stops
            given_back += len(stops)
            stopped = [
                Result(NodeKey(f"onprem/{name}"), lease, TaskOutcome.STOPPED, None, None, Usage(), 0)
                for lease in stops
            ]
            await lab.requests.report(lab.incarnations[name], [], stopped, [])
        now = lab.control.loop.time.monotonic()
        part = [
            job
            for job in lab.control.loop.state.jobs.values()
            if isinstance(job.phase, Placed | Running) and any(each.state == "PLACED" for each in job.tasks)
        ]
        since = {job.lease: since.get(job.lease, now) for job in part}
        assert all(now - at <= WITHIN + look for at in since.values())
    assert given_back, "the story must have met such a gang"


# --- restarts of the server


async def test_the_time_goes_on_under_another_server(lab: Lab) -> None:
    leases = await lab.gang()
    lab.control.clock.pass_by(3 * 60)
    await lab.agent("n3")  # this is written
    await lab.restart(*leases, away=5)
    assert lab.requests.gangs.overdue() == []
    lab.control.clock.pass_by(114)
    assert lab.requests.gangs.overdue() == []
    lab.control.clock.pass_by(2)
    assert [each.lease for each in lab.requests.gangs.overdue()] == [leases[0]]


async def test_an_outage_does_not_count(lab: Lab) -> None:
    leases = await lab.gang()
    lab.control.clock.pass_by(60)
    await lab.agent("n3")  # this is written
    await lab.restart(*leases, away=4 * 60)
    lab.control.clock.pass_by(4 * 60 - 1)
    assert lab.requests.gangs.overdue() == []
    lab.control.clock.pass_by(2)
    assert [each.lease for each in lab.requests.gangs.overdue()] == [leases[0]]


async def test_outages_add_at_most_as_much_time_again(lab: Lab) -> None:
    """A server that has nothing to write before its end seems to have been away since its last event."""
    leases = await lab.gang()
    for _ in range(3):
        lab.control.clock.pass_by(3 * 60)
        await lab.restart(*leases)
        assert lab.requests.gangs.overdue() == []
    lab.control.clock.pass_by(61)
    assert [each.lease for each in lab.requests.gangs.overdue()] == [leases[0]]


@pytest.mark.parametrize("seed", few_of(5, range(40)))
async def test_restarts_let_no_gang_hold_room_in_part_for_longer(lab: Lab, seed: int) -> None:
    dice, leases = Random(seed), await lab.gang()
    held = 0
    while not lab.requests.gangs.overdue():
        serves, away = dice.choice((1, 5, 20, 60)), dice.choice((0, 2, 11, 30, 200))
        lab.control.clock.pass_by(serves)
        held += serves
        if dice.random() < 0.5:
            await lab.agent("n3")  # this is written
        if dice.random() < 0.7:
            await lab.restart(*leases, away=away)
            held += away
        assert held <= 2 * (WITHIN // SECOND) + 260
    assert held > WITHIN // SECOND


async def test_a_gang_waits_for_an_agent_that_is_too_old_for_gangs(lab: Lab) -> None:
    await lab.agent("n2", gangs=False)
    (job,) = await lab.control.submit("g", tasks=3)
    assert isinstance(lab.control.loop.state.jobs[JobId(job)].phase, Queued)
    await lab.agent("n2")
    assert isinstance(lab.control.loop.state.jobs[JobId(job)].phase, Placed)
