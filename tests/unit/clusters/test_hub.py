"""What is said to agents: in messages that arrive, and never anything that could not."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from spillover.clusters.agents.hub import GRANTS, MOST_BYTES, MOST_GRANT, Hub, Session
from spillover.core.events import Lease
from spillover.forms.jobs import read_job
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import JobSpec, Shell
from spillover.ports.cluster import Peer, Start
from spillover.testing.waiting import turn
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import task_digest

NODE = "onprem/n1"
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
        ("a", "it is 32 MiB large, more than an agent can be sent"),
        ("b", "it is 32 MiB large, more than an agent can be sent"),
    ]
    assert [each.lease.job for each in refused[2:]] == ["e"]
    assert jobs_of(await said(session, 2)) == ["c", "f"]


async def test_nothing_is_said_of_leases_under_an_older_registration() -> None:
    hub, _ = connected()
    hub.open(NODE, 2, 0)
    hub.activate(NODE, 2)
    assert hub.start(NODE, 1, starts(large(MOST_GRANT), "a")) == []


async def test_a_name_is_taken_while_an_agent_of_another_cluster_is_connected_under_it() -> None:
    hub, session = connected()
    assert hub.namesake("cloud/n1") is None
    stream = session.messages(1)
    listening = asyncio.ensure_future(anext(stream))
    await turn()
    assert hub.namesake("cloud/n1") == NODE
    assert hub.namesake("cloud/n2") is None
    assert hub.namesake(NODE) is None
    hub.close(NODE)
    assert await asyncio.gather(listening, return_exceptions=True)
    assert hub.namesake("cloud/n1") is None


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
