"""The server's side of a lease that moves: who is told what, and when."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.administration import act_on_agents
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction, Orders
from spillover.control.agents.tickets import Tickets
from spillover.control.controllers.stealing import Stealing
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Result, Started, StartEpoch, Yield, Yielded
from spillover.core.records.jobs import Placed
from spillover.core.records.nodes import Node
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import agents_pb2 as pb
from spillover.wire.api import AgentAction
from spillover.wire.tasks import lease_in
from tests.support.inside import Inside

VICTIM, THIEF = NodeName("victim"), NodeName("thief")
HOLDER = NodeKey("onprem/victim")


class Yard:
    """A victim with one job that runs and three that wait, and an idle thief."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = Hub()
        tickets = Tickets()
        self.requests = AgentRequests(control.loop, self.hub, DAY, tickets=tickets)
        self.runner = LeaseSender(control.loop, self.hub, control.specs, tickets)
        self.stealing = Stealing(control.loop, control.specs)
        self.incarnations: dict[NodeName, int] = {}
        self.jobs: tuple[str, ...] = ()

    async def join(self, name: NodeName, peer: str = "", held: tuple[Lease, ...] = ()) -> None:
        room = Resources(1000, 2**40)
        intro = Introduction(ClusterName("onprem"), name, room, (), {}, 8, held, 0, peer=peer)
        self.incarnations[name] = (await self.requests.register(intro)).incarnation

    async def begin(self, victim_peer: str = "", thief_peer: str = "") -> None:
        await self.join(VICTIM, victim_peer)
        (warm,) = await self.control.submit("warm")
        await self.ends(warm, SECOND // 1000)
        self.jobs = await self.control.submit("a", "b", "c", "d")
        await self.report(VICTIM, started=[Started(HOLDER, self.lease(self.jobs[0]), 0)])
        await self.join(THIEF, thief_peer)
        self.control.clock.pass_by(0.5)

    async def ends(self, job: str, ran: int) -> None:
        result = Result(HOLDER, self.lease(job), Outcome.EXITED, 0, None, Usage(ran), 0)
        await self.report(VICTIM, results=[result])

    async def report(self, node: NodeName, **what: object) -> list[Lease]:
        told: dict[str, object] = {"started": [], "results": [], "released": []} | what
        answers = await self.requests.report(self.incarnations[node], **told)  # type: ignore[arg-type]
        assert not answers.fenced
        return list(answers.yielded)

    async def orders(self, node: NodeName) -> Orders:
        return await self.requests.heartbeat(self.incarnations[node], 1500)

    def lease(self, job: str) -> Lease:
        return self.control.loop.state.jobs[JobId(job)].lease

    def where(self, job: str) -> str:
        phase = self.control.loop.state.jobs[JobId(job)].phase
        return phase.node if isinstance(phase, Placed) else ""

    def node(self, name: NodeName) -> Node:
        return self.control.loop.state.nodes[f"onprem/{name}"]

    async def message(self, node: NodeName, count: int = 1) -> list[pb.FromServer]:
        """What an agent hears, up to so many grants or one nudge."""
        session = self.hub.session(self.incarnations[node])
        assert session is not None
        heard: list[pb.FromServer] = []
        messages = cast("AsyncGenerator[pb.FromServer, None]", session.messages(1))
        async with asyncio.timeout(10), aclosing(messages):
            async for message in messages:
                heard.append(message)
                if message.heartbeat_now or sum(len(each.grants) for each in heard) >= count:
                    break
        return heard


@pytest.fixture
async def yard(control: Inside) -> AsyncIterator[Yard]:
    yard = Yard(control)
    running = asyncio.create_task(yard.runner.run())
    yield yard
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_victim_is_woken_asked_with_a_ticket_and_its_answer_moves_the_lease(yard: Yard) -> None:
    await yard.begin("127.0.0.1:5", "127.0.0.1:6")
    assert await yard.stealing.look() == 1
    heard = await yard.message(VICTIM, 99)
    assert heard[-1].heartbeat_now
    ((lease, ticket),) = (await yard.orders(VICTIM)).yields
    assert lease == yard.lease(yard.jobs[3])
    assert len(ticket) == 32
    session = yard.hub.session(yard.incarnations[VICTIM])
    assert session is not None
    session.connected = True  # it still listens
    assert await yard.report(VICTIM, yielded=[Yielded(HOLDER, lease, Yield.RELEASED)]) == [lease]
    assert yard.where(yard.jobs[3]) == "thief"
    ((grant,),) = [message.grants for message in await yard.message(THIEF)]
    assert not grant.HasField("task")
    assert (grant.peer.address, grant.peer.ticket) == ("127.0.0.1:5", ticket)
    assert lease_in(grant.peer.source) == lease
    assert lease_in(grant.lease) == yard.lease(yard.jobs[3])
    assert (await yard.orders(VICTIM)).yields == ()


async def test_after_a_restore_the_new_owner_asks_for_the_lease_that_the_old_one_had(yard: Yard) -> None:
    await yard.begin()
    held, facts = tuple(map(yard.lease, yard.jobs)), yard.control.loop.state.facts
    await yard.control.propose(StartEpoch(2_000, facts.clusters, facts.policies, restored=True))
    await yard.join(VICTIM, "127.0.0.1:5", held)
    await yard.join(THIEF, "127.0.0.1:6")
    for name in (VICTIM, THIEF):
        session = yard.hub.session(yard.incarnations[name])
        assert session is not None
        session.connected = True
    yard.control.clock.pass_by(0.5)
    assert await yard.stealing.look() == 1
    ((lease, _),) = (await yard.orders(VICTIM)).yields
    await yard.report(VICTIM, yielded=[Yielded(HOLDER, lease, Yield.RELEASED)])
    ((grant,),) = [message.grants for message in await yard.message(THIEF)]
    assert (lease_in(grant.peer.source), lease_in(grant.lease).seq) == (lease, 2_000)


@pytest.mark.parametrize(("victim", "thief"), [("", "127.0.0.1:6"), ("127.0.0.1:5", "")])
async def test_a_peer_that_cannot_be_asked_is_not_named_and_the_task_is_sent(
    yard: Yard, victim: str, thief: str
) -> None:
    await yard.begin(victim, thief)
    await yard.stealing.look()
    ((lease, _),) = (await yard.orders(VICTIM)).yields
    await yard.report(VICTIM, yielded=[Yielded(HOLDER, lease, Yield.RELEASED)])
    ((grant,),) = [message.grants for message in await yard.message(THIEF)]
    assert grant.task.shell == "true"
    assert not grant.HasField("peer")


async def test_nobody_asks_again_at_once_for_what_was_refused(yard: Yard) -> None:
    await yard.begin()
    await yard.stealing.look()
    ((lease, _),) = (await yard.orders(VICTIM)).yields
    await yard.report(VICTIM, yielded=[Yielded(HOLDER, lease, Yield.STARTED)])
    assert await yard.stealing.look() == 1
    ((other, _),) = (await yard.orders(VICTIM)).yields
    assert other != lease


async def test_without_an_answer_nothing_is_handed_out(yard: Yard) -> None:
    await yard.begin()
    await yard.stealing.look()
    for _ in range(3):
        yard.control.clock.pass_by(10)
        assert len((await yard.orders(VICTIM)).yields) == 1
        assert await yard.stealing.look() == 0
    assert not yard.node(THIEF).holding


async def test_an_answer_of_an_old_registration_is_not_taken(yard: Yard) -> None:
    await yard.begin()
    await yard.stealing.look()
    ((lease, _),) = (await yard.orders(VICTIM)).yields
    old = yard.incarnations[VICTIM]
    await yard.join(VICTIM)
    answers = await yard.requests.report(old, [], [], [], yielded=[Yielded(HOLDER, lease, Yield.RELEASED)])
    assert answers.fenced
    assert list(answers.yielded) == []


async def test_tasks_are_told_to_the_agent_that_holds_the_lease_and_to_no_other(yard: Yard) -> None:
    await yard.begin()
    await yard.stealing.look()
    ((lease, _),) = (await yard.orders(VICTIM)).yields
    await yard.report(VICTIM, yielded=[Yielded(HOLDER, lease, Yield.RELEASED)])
    new = yard.lease(yard.jobs[3])
    starts = await yard.runner.starts(await yard.requests.leased("onprem/thief", [new, lease]))
    assert [start.lease for start in starts] == [new]
    assert [grant.task.shell for grant in yard.hub.grants(starts)] == ["true"]
    assert await yard.requests.leased("onprem/victim", [new, lease]) == []


async def test_the_load_of_a_machine_is_known_from_its_heartbeats(yard: Yard) -> None:
    await yard.begin()
    await yard.orders(THIEF)
    contact = yard.hub.contact("onprem/thief")
    assert contact is not None
    assert contact.load == 1500


# --- what people do to agents


async def test_an_agent_that_is_drained_is_told_so_and_takes_nothing_until_it_is_resumed(yard: Yard) -> None:
    await yard.begin()
    done = await act_on_agents(yard.control.loop, AgentAction("drain", ["thief"]), "ada")
    assert done.agents == ["onprem/thief"]
    assert (await yard.orders(THIEF)).drain
    await yard.join(THIEF)
    assert (await yard.orders(THIEF)).drain
    assert await yard.stealing.look() == 0
    await act_on_agents(yard.control.loop, AgentAction("resume", ["onprem/thief"]), "ada")
    assert not (await yard.orders(THIEF)).drain


@pytest.mark.parametrize(
    ("action", "kind", "said"),
    [
        (AgentAction("drain", ["nobody"]), ErrorKind.UNKNOWN, "no agent 'nobody'"),
        (AgentAction("forget", ["thief"]), ErrorKind.CONFLICT, "stop it and wait"),
    ],
)
async def test_what_cannot_be_done_is_said(
    yard: Yard, action: AgentAction, kind: ErrorKind, said: str
) -> None:
    await yard.begin()
    with pytest.raises(CommandError, match=said) as error:
        await act_on_agents(yard.control.loop, action, "ada")
    assert error.value.kind is kind


async def test_a_name_that_two_clusters_have_must_name_the_cluster(yard: Yard) -> None:
    await yard.begin()
    intro = Introduction(ClusterName("cloud"), THIEF, Resources(1000), (), {}, 0, (), 0)
    await yard.requests.register(intro)
    with pytest.raises(CommandError, match="onprem/thief, cloud/thief"):
        await act_on_agents(yard.control.loop, AgentAction("drain", ["thief"]), "ada")
