"""Output is read from whichever agent has it, and following loses none of it when agents come and go."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.views import output as reading
from spillover.control.views.output import OutputReading
from spillover.core.events import Lease, SeenNode, Usage
from spillover.core.proposals import (
    DRIVER,
    AddCluster,
    AgentGone,
    Drain,
    OpenedCluster,
    Outcome,
    RemoveCluster,
    Result,
    SeeCluster,
    SeeNodes,
)
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName, node_key
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.cluster import OutputAsked
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import agents_pb2 as pb
from tests.support.inside import Inside
from tests.support.waiting import turn, until

ONPREM, LAB = ClusterName("onprem"), ClusterName("lab")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AGAIN", 0.01)


class AskedHub(Hub):
    """The real one, which counts what readers ask of it, be there an agent or not."""

    asked = 0

    def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        self.asked += 1
        return super().output(node, asked)

    async def tried(self, times: int) -> None:
        """Return when readers have asked so many times more."""
        upto = self.asked + times
        await until(lambda: self.asked >= upto, "another try of a reader", every=0.001)


class Agents:
    """Agents that keep output in memory, on the real hub."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = AskedHub()
        self.requests = AgentRequests(control.loop, self.hub, DAY)
        self.runner = LeaseSender(control.loop, self.hub, control.specs)
        self.reading = OutputReading(control.loop, control.lookup, self.hub)
        self.files: dict[tuple[str, str, int], bytes] = {}
        """By agent, job and attempt."""
        self._reads: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue()
        self.incarnations: dict[str, int] = {}

    async def register(self, name: str, *held: Lease) -> None:
        """Be known, and not yet connected."""
        intro = Introduction(ONPREM, NodeName(name), Resources(1000, 2**40), (), {}, 0, held, 0)
        self.incarnations[name] = (await self.requests.register(intro)).incarnation

    @asynccontextmanager
    async def connected(self, *names: str) -> AsyncIterator[None]:
        """Listen to the server for a while."""
        tasks = [asyncio.create_task(self._listen(name)) for name in names]
        await turn()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(end, asyncio.CancelledError), end

    async def _listen(self, name: str) -> None:
        session = self.hub.session(self.incarnations[name])
        assert session is not None
        async for message in session.messages(1):
            for read in message.reads:
                if not read.stop:
                    data = self.files.get((name, read.job, read.attempt), b"")[read.offset :]
                    own = session.incarnation
                    await self.hub.chunk(pb.OutputChunk(incarnation=own, id=read.id, data=data))
                    await self.hub.chunk(pb.OutputChunk(incarnation=own, id=read.id, end=True))
                    self._reads.put_nowait((name, read.attempt, read.offset))

    async def report(self, name: str, job: str, outcome: Outcome = Outcome.EXITED) -> None:
        """An attempt is over."""
        lease = self.control.loop.state.jobs[JobId(job)].lease
        await self.control.propose(
            Result(node_key(ClusterName("onprem"), NodeName(name)), lease, outcome, 0, None, Usage(1), 0)
        )

    async def read(
        self, job: str, attempt: int | None = None, *, follow: bool = False, offset: int = 0
    ) -> bytes:
        """All of an output."""
        stream = await self.reading.output(
            job, attempt=attempt, task=0, stderr=False, offset=offset, follow=follow
        )
        async with asyncio.timeout(10):
            return b"".join([piece async for piece in stream])

    async def asked(self) -> tuple[str, int, int]:
        """The next thing that an agent was asked and answered: agent, attempt and offset."""
        async with asyncio.timeout(10):
            return await self._reads.get()

    async def moved(self) -> str:
        """A job whose first attempt was on n1, and that n2 has now."""
        (job,) = await self.control.submit("train")
        await self.register("n1")
        await self.control.propose(Drain(ONPREM, NodeName("n1")))
        await self.register("n2")
        await self.report("n1", job, Outcome.LOST)
        self.files["n1", job, 1] = b"first "
        return job


@pytest.fixture
def agents(control: Inside) -> Agents:
    return Agents(control)


async def test_a_follower_waits_for_an_agent_that_is_not_back_yet(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    agents.files["n1", job, 1] = b"all of it"
    follower = asyncio.create_task(agents.read(job, follow=True))
    await agents.hub.tried(2)
    assert not follower.done()
    async with agents.connected("n1"):
        await agents.asked()
        await agents.report("n1", job)
        assert await follower == b"all of it"


async def test_a_stream_that_ends_before_its_attempt_is_taken_up_at_its_byte(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    async with agents.connected("n1"):
        follower = asyncio.create_task(agents.read(job, follow=True))
        assert await agents.asked() == ("n1", 1, 0)
        agents.files["n1", job, 1] = b"one "
        while (await agents.asked())[2] < 4:
            pass
        agents.files["n1", job, 1] = b"one two"
        await agents.report("n1", job)
        assert await follower == b"one two"


async def test_a_connection_that_breaks_is_taken_up_by_the_next_one(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.clusters.agents.hub.LOOK", 0.01)
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    lease = agents.control.loop.state.jobs[JobId(job)].lease
    agents.files["n1", job, 1] = b"one "
    async with agents.connected("n1"):
        follower = asyncio.create_task(agents.read(job, follow=True))
        await agents.asked()
    await agents.register("n1", lease)
    agents.files["n1", job, 1] += b"two"
    async with agents.connected("n1"):
        await agents.report("n1", job)
        assert await follower == b"one two"


async def test_following_goes_from_agent_to_agent_with_the_job(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    follower = asyncio.create_task(agents.read(job, follow=True))
    async with agents.connected("n1"):
        await agents.asked()
        agents.files["n1", job, 1] = b"first "
        await agents.control.propose(Drain(ONPREM, NodeName("n1")))
        await agents.report("n1", job, Outcome.LOST)
        await asyncio.sleep(0.03)
        await agents.register("n2")
        agents.files["n2", job, 2] = b"second"
        async with agents.connected("n2"):
            await agents.report("n2", job)
            assert await follower == b"first second"


async def test_an_earlier_attempt_is_found_on_the_agent_it_ran_on(agents: Agents) -> None:
    job = await agents.moved()
    agents.files["n2", job, 2] = b"second"
    async with agents.connected("n1", "n2"):
        assert await agents.read(job, 1) == b"first "
        assert await agents.read(job, 1, offset=2) == b"rst "
        assert await agents.read(job, 1, follow=True) == b"first "
        assert await agents.read(job) == await agents.read(job, 2) == b"second"
        with pytest.raises(CommandError, match="has no attempt 3 yet") as error:
            await agents.read(job, 3)
        assert error.value.kind is ErrorKind.UNKNOWN


async def test_the_last_attempt_of_a_job_that_is_queued_again_is_shown(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    agents.files["n1", job, 1] = b"first"
    async with agents.connected("n1"):
        await agents.control.propose(Drain(ONPREM, NodeName("n1")))
        await agents.report("n1", job, Outcome.LOST)
        assert agents.control.loop.state.jobs[JobId(job)].state == "QUEUED"
        assert await agents.read(job, 1) == await agents.read(job) == b"first"
        assert await agents.read(job, 2) == b""


async def test_a_job_that_never_had_a_place_wrote_nothing(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    assert await agents.read(job) == await agents.read(job, 1) == b""


async def test_output_of_an_agent_that_is_not_connected_is_an_error_and_not_empty(agents: Agents) -> None:
    job = await agents.moved()
    with pytest.raises(CommandError, match="on agent onprem/n2, which is not connected") as error:
        await agents.read(job)
    assert error.value.kind is ErrorKind.UNAVAILABLE
    async with agents.connected("n2"):
        with pytest.raises(
            CommandError, match=r"no connected agent .* attempt 1 of .*; not connected: onprem/n1$"
        ):
            await agents.read(job, 1)


async def test_following_an_earlier_attempt_waits_for_agents_that_may_have_it(agents: Agents) -> None:
    job = await agents.moved()
    async with agents.connected("n2"):
        follower = asyncio.create_task(agents.read(job, 1, follow=True))
        await agents.asked()
        await agents.asked()
        async with agents.connected("n1"):
            assert await follower == b"first "


async def test_an_attempt_that_was_lost_with_its_agent_is_passed_over(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    follower = asyncio.create_task(agents.read(job, follow=True))
    await turn()
    await agents.control.propose(AgentGone(ONPREM, NodeName("n1"), agents.incarnations["n1"]))
    await agents.report("n1", job, Outcome.LOST)
    await agents.register("n2")
    agents.files["n2", job, 2] = b"second"
    async with agents.connected("n2"):
        await agents.report("n2", job)
        assert await follower == b"second"


async def test_the_end_of_a_job_on_an_agent_that_is_gone_is_told_to_followers(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    await agents.report("n1", job)
    follower = asyncio.create_task(agents.read(job, follow=True))
    await agents.hub.tried(2)
    assert not follower.done()  # it may come back
    await agents.control.propose(AgentGone(ONPREM, NodeName("n1"), agents.incarnations["n1"]))
    with pytest.raises(CommandError, match="on agent onprem/n1, which is not connected"):
        await follower


async def ended_on_an_external_cluster(agents: Agents) -> str:
    """A job that ended on the cluster lab, which nobody has opened here."""
    control, spec = agents.control, ClusterSpec(LAB, "kubernetes", Role.OWNED)
    await control.propose(AddCluster(spec, "ada", "{}"))
    await control.propose(OpenedCluster(LAB))
    node = SeenNode(NodeName("n1"), Resources(4000, 2**40), Resources())
    await control.propose(SeeNodes(LAB, (node,), whole=True))
    await control.propose(SeeCluster(LAB, ClusterHealth.READY))
    (job,) = await control.submit("train")
    result = Result(DRIVER, control.lease(job), Outcome.EXITED, 0, None, Usage(1), 0)
    await control.propose(result)
    return job


@pytest.mark.parametrize("follow", [False, True])
async def test_output_on_a_cluster_that_was_removed_went_with_it(agents: Agents, follow: bool) -> None:
    job = await ended_on_an_external_cluster(agents)
    await agents.control.propose(RemoveCluster(LAB, "ada"))
    assert LAB not in agents.control.loop.state.clusters
    with pytest.raises(CommandError) as error:
        await agents.read(job, follow=follow)
    assert error.value.message == "the output was on cluster lab, and cluster lab was removed"
    assert agents.hub.asked == 0


async def test_output_on_a_cluster_that_is_not_open_says_where_to_look(agents: Agents) -> None:
    job = await ended_on_an_external_cluster(agents)
    with pytest.raises(CommandError) as error:
        await agents.read(job)
    assert error.value.message == (
        "the output is on cluster lab, which is not open now; `spill clusters` shows why"
    )


async def test_a_cluster_of_agents_that_was_removed_took_their_output_with_it(agents: Agents) -> None:
    (job,) = await agents.control.submit("train")
    await agents.register("n1")
    await agents.report("n1", job)
    async with agents.connected("n1"):
        await agents.control.propose(RemoveCluster(ONPREM, "ada", form="{}"))
        with pytest.raises(CommandError, match="cluster onprem was removed"):
            await agents.read(job)
