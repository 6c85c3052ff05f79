"""What is said to agents: in messages that arrive, and never anything that could not."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from msgspec.structs import replace

from spillover.agent.connection.introduction import ABILITIES
from spillover.clusters.agents.hub import CHUNKS, GRANTS, MOST_BYTES, MOST_GRANT, Hub, Session
from spillover.control.agents.lease_terms import lease_terms
from spillover.core.events import Lease
from spillover.forms.jobs.reading import read_job
from spillover.model.files import File
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import JobSpec, SecretUse, Shell
from spillover.model.units import SECOND
from spillover.ports.cluster import LeaseTerms, Offer, OutputAsked, OutputGone, Peer, Start
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import task_digest
from tests.support.waiting import turn

NODE = "onprem/n1"
FAR = 1 << 40
"""Where in their files agents begin to read."""
SMALL = read_job({"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}).spec


def starts(spec: JobSpec, *jobs: str) -> list[Start]:
    return [Start(Lease(JobId(job), 1, 1), spec, ClusterName("onprem")) for job in jobs]


def large(size: int) -> JobSpec:
    return JobSpec(Shell("x" * size), "big", "default", "default", SMALL.shape)


def connected() -> tuple[Hub, Session]:
    hub = Hub()
    hub.open(NODE, 1, 0)
    hub.activate(NODE, 1)
    session = hub.session(1)
    assert session is not None
    return hub, session


async def said(session: Session, grants: int) -> list[pb.FromServer]:
    """Messages until so many leases came."""
    found: list[pb.FromServer] = []
    async with asyncio.timeout(10):
        async for message in session.messages(1):
            found.append(message)
            if sum(len(each.grants) for each in found) >= grants:
                break
    return found


def jobs_of(messages: Sequence[pb.FromServer]) -> list[str]:
    return [grant.lease.job for message in messages for grant in message.grants]


async def test_leases_come_in_their_order_and_many_in_one_message() -> None:
    hub, session = connected()
    names = [f"j{at}" for at in range(GRANTS + 10)]
    assert hub.start(NODE, 1, starts(SMALL, *names)) == []
    messages = await said(session, len(names))
    assert [len(message.grants) for message in messages] == [GRANTS, 10]
    assert jobs_of(messages) == names
    assert messages[0].grants[0].task.shell == "true"
    assert messages[0].grants[0].task.env["SPILL_CLUSTER"] == "onprem"


async def test_a_stream_that_is_over_leaves_what_it_did_not_say_to_the_next() -> None:
    hub, session = connected()
    hung_up = False
    listening = asyncio.ensure_future(anext(session.messages(1, lambda: hung_up), None))
    await turn()
    hung_up = True
    assert hub.start(NODE, 1, starts(SMALL, "j1")) == []
    session.look_again()
    assert await listening is None
    assert jobs_of(await said(session, 1)) == ["j1"]


async def test_a_message_has_few_of_large_tasks() -> None:
    hub, session = connected()
    names = [f"j{at}" for at in range(20)]
    assert hub.start(NODE, 1, starts(large(900_000), *names)) == []
    messages = await said(session, len(names))
    assert jobs_of(messages) == names
    assert max(message.ByteSize() for message in messages) <= MOST_BYTES + 1000
    assert len(messages) == 5


async def test_a_task_larger_than_a_message_should_be_goes_by_itself() -> None:
    hub, session = connected()
    hub.start(NODE, 1, [*starts(SMALL, "a"), *starts(large(MOST_BYTES + 1), "b"), *starts(SMALL, "c")])
    assert [jobs_of([message]) for message in await said(session, 3)] == [["a"], ["b"], ["c"]]


async def test_what_cannot_be_sent_is_handed_back_and_the_rest_is_sent() -> None:
    hub, session = connected()
    huge, torn = large(MOST_GRANT), JobSpec(Shell("\ud800"), "torn", "default", "default", SMALL.shape)
    refused = hub.start(
        NODE,
        1,
        [
            *starts(huge, "a", "b"),
            *starts(SMALL, "c"),
            *starts(torn, "e"),
            *starts(SMALL, "f"),
        ],
    )
    assert [(each.lease.job, each.why) for each in refused[:2]] == [
        ("a", "it has 32 MiB, more than the server can send to an agent"),
        ("b", "it has 32 MiB, more than the server can send to an agent"),
    ]
    assert [each.lease.job for each in refused[2:]] == ["e"]
    assert jobs_of(await said(session, 2)) == ["c", "f"]


async def test_an_agent_of_an_earlier_release_gets_no_job_with_standard_input() -> None:
    hub, session = connected()
    reading = replace(SMALL, stdin=File("table.csv", "0" * 64, 3))
    (refused,) = hub.start(NODE, 1, starts(reading, "a"))
    told = "agent n1 is of an earlier release and cannot give it its standard input; upgrade the agent"
    assert refused.why == told
    hub.open(NODE, 2, 0, abilities=("stdin", "of a later release"))
    hub.activate(NODE, 2)
    assert hub.start(NODE, 2, starts(reading, "a")) == []
    assert session.fenced


async def test_an_agent_of_an_earlier_release_gets_no_job_with_secrets() -> None:
    hub, _ = connected()
    secret = replace(SMALL, secrets=(SecretUse("db", "DB"), SecretUse("key", "KEY_FILE", file=True)))
    (refused,) = hub.start(NODE, 1, starts(secret, "a"))
    assert (
        refused.why == "agent n1 is of an earlier release and cannot give it its secrets; upgrade the agent"
    )
    hub.open(NODE, 2, 0, abilities=ABILITIES)
    hub.activate(NODE, 2)
    assert hub.start(NODE, 2, starts(secret, "a")) == []


async def test_an_agent_of_an_earlier_release_gets_no_script_that_calls_srun() -> None:
    hub, _ = connected()
    calling = replace(SMALL, shape=replace(SMALL.shape, runs=("command", "srun")))
    (refused,) = hub.start(NODE, 1, starts(calling, "a"))
    assert refused.why == "agent n1 is of an earlier release and cannot give it `srun`; upgrade the agent"
    hub.open(NODE, 2, 0, abilities=ABILITIES)
    hub.activate(NODE, 2)
    assert hub.start(NODE, 2, starts(calling, "a")) == []


async def test_nothing_is_said_of_leases_under_an_older_registration() -> None:
    hub, _ = connected()
    hub.open(NODE, 2, 0)
    hub.activate(NODE, 2)
    assert hub.start(NODE, 1, starts(large(MOST_GRANT), "a")) == []


def test_of_agents_that_hung_up_and_were_refused_nothing_is_kept() -> None:
    hub = Hub()
    for incarnation in (1, 2, 3, 4):
        hub.open(f"onprem/n{incarnation}", incarnation, 0)
    hub.activate("onprem/n3", 3)
    assert hub.current(3) == "onprem/n3"
    assert list(hub._opening) == [4]


async def test_whoever_takes_a_lease_over_is_told_what_it_runs_by_a_digest() -> None:
    hub, session = connected()
    spec = read_job(
        {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "env": {"B": "1", "A": "2"}}}
    ).spec
    (given,) = starts(spec, "moved")
    peer = Peer("127.0.0.1:1", b"ticket", Lease(JobId("moved"), 1, 0))
    assert hub.start(NODE, 1, [given, replace(given, peer=peer)]) == []
    first, second = [grant for message in await said(session, 2) for grant in message.grants]
    handed_on = pb.Task.FromString(first.task.SerializeToString())
    assert second.peer.digest == task_digest(handed_on)
    handed_on.shell = "another"
    assert second.peer.digest != task_digest(handed_on)


class Asked:
    """An agent that listens and is asked for output."""

    def __init__(self, hub: Hub, incarnation: int = 1) -> None:
        hub.open(NODE, incarnation, 0)
        hub.activate(NODE, incarnation)
        session = hub.session(incarnation)
        assert session is not None
        self._hub = hub
        self._incarnation = incarnation
        self._said = session.messages(1)
        self._next = asyncio.ensure_future(anext(self._said))
        self._position = FAR

    async def reads(self, count: int = 1) -> list[pb.OutputRead]:
        """What it is asked next."""
        found: list[pb.OutputRead] = []
        while len(found) < count:
            async with asyncio.timeout(10):
                found.extend((await self._next).reads)
            self._next = asyncio.ensure_future(anext(self._said))
            await turn()
        return found

    def send(self, read: int, data: bytes, *, end: bool = False) -> "asyncio.Task[None]":
        """Answer; done once the server has taken it."""
        self._position += len(data)
        chunk = pb.OutputChunk(
            incarnation=self._incarnation, id=read, data=data, end=end, position=self._position
        )
        return asyncio.create_task(self._hub.chunk(chunk))

    async def give(self, read: int, data: bytes, *, end: bool = False) -> None:
        """Answer, and see it taken."""
        async with asyncio.timeout(10):
            await self.send(read, data, end=end)

    async def fill(self, read: int) -> bytes:
        """Answer with as much as may wait for a reader."""
        pieces = [b"%d " % at for at in range(CHUNKS)]
        for piece in pieces:
            await self.give(read, piece)
        return b"".join(pieces)


class Reader:
    """Somebody who reads output when told to."""

    def __init__(self, hub: Hub, job: str, offset: int = 0) -> None:
        asked = OutputAsked(Lease(JobId(job), 1, 1), stderr=False, offset=offset, follow=True)
        self.got = bytearray()
        """What came behind the first piece."""
        self._pieces: AsyncGenerator[bytes, None] = hub.output(NODE, asked)
        self._first = asyncio.ensure_future(anext(self._pieces))

    async def first(self) -> bytes:
        """The first piece."""
        async with asyncio.timeout(10):
            return await self._first

    async def rest(self) -> bytes:
        """All behind it."""
        async with asyncio.timeout(10):
            async for piece in self._pieces:
                self.got += piece
        return bytes(self.got)

    async def leave(self) -> None:
        """Read no more."""
        await self._pieces.aclose()


async def stalled(hub: Hub, agent: Asked, offset: int = 0) -> tuple[Reader, int, bytes]:
    """A reader who took one piece and has as many more waiting as may; with its request, and what was sent."""
    reader = Reader(hub, "long", offset)
    (read,) = await agent.reads()
    await agent.give(read.id, b"first ")
    assert await reader.first() == b"first "
    return reader, read.id, b"first " + await agent.fill(read.id)


async def test_a_reader_who_is_slow_has_the_agent_wait_where_nobody_else_does() -> None:
    hub = Hub()
    agent = Asked(hub)
    reader, read, sent = await stalled(hub, agent)
    more = agent.send(read, b"last", end=True)
    await turn()
    assert not more.done()
    assert b"first " + await reader.rest() == sent + b"last"
    await more


async def test_an_agent_does_not_wait_for_a_reader_who_leaves() -> None:
    hub = Hub()
    agent = Asked(hub)
    reader, read, _ = await stalled(hub, agent)
    more = agent.send(read, b"more")
    await turn()
    assert not more.done()
    await reader.leave()
    await turn()
    assert more.done()
    assert [(each.id, each.stop) for each in await agent.reads()] == [(read, True)]


async def test_whoever_comes_does_not_wait_for_a_reader_who_stalls() -> None:
    hub = Hub()
    agent = Asked(hub)
    slow, stalling, sent = await stalled(hub, agent, offset=10)
    waits = agent.send(stalling, b"more ")
    await turn()
    assert not waits.done()
    quick = Reader(hub, "short")
    asked = await agent.reads(2)
    assert waits.done()
    assert [(each.id == stalling, each.stop) for each in asked] == [(False, False), (True, True)]
    for at in range(3 * CHUNKS):  # what was under way takes no room
        await agent.give(stalling, b"%d " % at)
    await agent.give(asked[0].id, b"at once", end=True)
    assert await quick.first() + await quick.rest() == b"at once"

    rest = asyncio.create_task(slow.rest())
    (again,) = await agent.reads()
    assert (again.job, again.offset, again.follow, again.stop) == ("long", 10 + len(sent), True, False)
    assert again.id not in {stalling, asked[0].id}
    await agent.give(stalling, b"too late")
    await agent.give(again.id, b"more last", end=True)
    assert b"first " + await rest == sent + b"more last"


async def test_a_reader_who_stalls_is_left_behind_at_once_where_others_read() -> None:
    hub = Hub()
    agent = Asked(hub)
    Reader(hub, "short")
    await agent.reads()
    slow, stalling, _ = await stalled(hub, agent)
    more = agent.send(stalling, b"more")
    await turn()
    assert more.done()
    assert [(each.id, each.stop) for each in await agent.reads()] == [(stalling, True)]
    await slow.leave()
    Reader(hub, "other")
    assert [(each.job, each.stop) for each in await agent.reads()] == [("other", False)], "told to stop once"


async def test_a_reader_who_was_left_behind_goes_on_with_the_next_connection_of_the_agent() -> None:
    hub = Hub()
    agent = Asked(hub)
    Reader(hub, "short")
    await agent.reads()
    slow, stalling, sent = await stalled(hub, agent)
    await agent.give(stalling, b"more ")
    again = Asked(hub, 2)
    await turn()
    rest = asyncio.create_task(slow.rest())
    (read,) = await again.reads()
    assert (read.offset, read.position) == (len(sent), FAR + len(sent))
    await again.give(read.id, b"more", end=True)
    assert b"first " + await rest == sent + b"more"


async def test_a_reader_who_was_left_behind_is_told_that_the_agent_is_gone_after_what_there_was() -> None:
    hub = Hub()
    agent = Asked(hub)
    Reader(hub, "short")
    await agent.reads()
    slow, stalling, sent = await stalled(hub, agent)
    await agent.give(stalling, b"more ")
    hub.close(NODE)
    with pytest.raises(OutputGone, match="which is not connected"):
        await slow.rest()
    assert b"first " + slow.got == sent


def test_an_agent_is_held_to_the_longest_terms_that_it_may_live_by() -> None:
    hub = Hub()
    short, long = LeaseTerms(2 * SECOND, 30 * SECOND), LeaseTerms(51 * SECOND, 204 * SECOND)
    hub.open(NODE, 1, 0, terms=long)
    hub.activate(NODE, 1)

    def held_to() -> LeaseTerms:
        contact = hub.contact(NODE)
        assert contact is not None
        return contact.terms

    assert hub.agree(NODE, 0, long) is None
    assert hub.agree(NODE, 0, short) == Offer(1, short)
    assert held_to() == long, "it may not have heard of the others"
    assert hub.agree(NODE, 0, short) == Offer(1, short), "an answer was lost, or a heartbeat came twice"
    assert held_to() == long
    assert hub.agree(NODE, 1, short) is None
    assert held_to() == short
    assert hub.agree(NODE, 1, long) == Offer(2, long)
    assert held_to() == long, "from the moment that it is told"
    assert hub.agree(NODE, 1, short) == Offer(2, long), "one thing after the other"


def test_an_agent_is_not_told_of_terms_that_make_little_difference() -> None:
    hub = Hub()
    hub.open(NODE, 1, 0, terms=lease_terms(5_000))
    hub.activate(NODE, 1)
    assert hub.agree(NODE, 0, lease_terms(5_100)) is None
    assert hub.agree(NODE, 0, lease_terms(7_000)) is not None
