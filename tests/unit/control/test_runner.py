"""Leases on their way to agents: one that cannot be handed out ends its job, and holds up no other."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.core.events import JobState
from spillover.core.proposals import HandBack, Proposal, Reply, Result
from spillover.core.records.jobs import Ended, Job
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.wire import agents_pb2 as pb
from tests.support.inside import Inside, form
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _agents_are_sent_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.clusters.agents.hub.MOST_GRANT", 4096)


def too_large(**fields: object) -> JobForm:
    spec = {"run": "true", "env": {"LARGE": "x" * 8192}, **fields}
    return read_job({"apiVersion": "spillover/v1", "kind": "Job", "spec": spec})


class Served:
    """An agent that can be sent little, and a runner that serves it."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = Hub()
        self.requests = AgentRequests(control.loop, self.hub, DAY)
        self.runner = LeaseSender(control.loop, self.hub, control.specs)
        self.news = asyncio.Event()
        control.loop.listen(lambda *_: self.news.set())

    async def register(self) -> None:
        intro = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
        await self.requests.register(intro)

    async def granted(self, count: int) -> list[str]:
        session = self.hub.session(self.control.loop.state.facts.incarnations)
        assert session is not None
        found: list[pb.Grant] = []
        async with asyncio.timeout(10):
            async for message in session.messages(1):
                found += message.grants
                if len(found) >= count:
                    break
        return [grant.lease.job for grant in found]

    async def ended(self, job: str) -> tuple[JobState, str]:
        """How a job ended, once it has."""
        async with asyncio.timeout(10):
            while not isinstance(phase := self.job(job).phase, Ended):
                self.news.clear()
                await self.news.wait()
        return self.job(job).state, str(phase.why)

    def job(self, job: str) -> Job:
        return self.control.loop.state.jobs[JobId(job)]


@pytest.fixture
async def served(control: Inside) -> AsyncIterator[Served]:
    served = Served(control)
    running = asyncio.create_task(served.runner.run())
    yield served
    assert not running.done(), running.exception()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_job_that_no_agent_can_be_sent_ends_and_its_neighbours_are_sent(served: Served) -> None:
    await served.register()
    jobs = await served.control.submitting.submit([form("a"), too_large(), form("b")], "ada")
    assert await served.granted(2) == [jobs[0], jobs[2]]
    assert await served.ended(jobs[1]) == (
        JobState.FAILED,
        "could not be started on onprem/n1: it has 0 MiB, more than the server can send to an agent",
    )


async def test_a_job_that_no_agent_can_be_sent_is_tried_as_often_as_it_may_be(served: Served) -> None:
    await served.register()
    (job,) = await served.control.submitting.submit([too_large(retry={"exit": 2})], "ada")
    assert (await served.ended(job))[0] is JobState.FAILED
    assert served.job(job).attempt == 3


async def test_a_job_whose_spec_is_missing_ends(served: Served) -> None:
    jobs = await served.control.submit("a", "b")
    digest = served.job(jobs[0]).spec
    served.control.specs._kept.clear()
    kept = frozenset({served.job(jobs[1]).spec})
    assert digest not in kept
    await served.control.loop.checkpoints.write()
    assert await served.control.store.journal.forget_blobs(kept, served.control.loop.epoch)
    await served.register()
    assert await served.granted(1) == [jobs[1]]
    assert await served.ended(jobs[0]) == (
        JobState.FAILED,
        "could not be started on onprem/n1: its spec is missing from the store",
    )


async def test_a_job_that_no_agent_can_be_sent_ends_once_that_can_be_written(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, failures = served.control.loop, iter(["the disk is full", "the disk is full"])
    propose = loop.propose

    async def failing(*proposals: Proposal, blobs: Mapping[bytes, bytes] | None = None) -> list[Reply]:
        if isinstance(proposals[0], Result) and next(failures, None):
            raise loop.unavailable()
        return await propose(*proposals, blobs=blobs)

    monkeypatch.setattr(loop, "propose", failing)
    monkeypatch.setattr("spillover.control.agents.lease_sender.RETRY", 0.005)
    await served.register()
    (job,) = await served.control.submitting.submit([too_large()], "ada")
    assert (await served.ended(job))[0] is JobState.FAILED
    assert next(failures, None) is None


async def test_a_lease_that_cannot_be_handed_out_for_a_reason_nobody_foresaw_is_handed_out_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, bad = served.runner._peer, True

    def failing(grant: Any) -> Any:
        if bad and grant.lease.job == jobs[1]:
            raise ZeroDivisionError
        return peer(grant)

    monkeypatch.setattr(served.runner, "_peer", failing)
    jobs = await served.control.submit("a", "b", "c")
    await served.register()
    assert await served.granted(2) == [jobs[0], jobs[2]]
    assert [(each.work, each.subject) for each in served.control.loop.aside] == [("runner", jobs[1])]
    bad = False
    served.control.clock.pass_by(1)
    served.runner._news.set()
    assert await served.granted(1) == [jobs[1]]
    assert not served.control.loop.aside


async def test_a_lease_that_was_set_aside_and_is_void_by_now_is_not_handed_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(served.runner, "_peer", failing)
    (job,) = await served.control.submit("a")
    await served.register()
    await until(lambda: served.control.loop.aside, "its being set aside")
    monkeypatch.undo()
    await served.control.propose(HandBack(NodeKey("onprem/n1"), (served.job(job).lease,)))
    served.control.clock.pass_by(1)
    served.runner._news.set()
    await until(lambda: not served.control.loop.aside, "its being forgotten")
    session = served.hub.session(served.control.loop.state.facts.incarnations)
    assert session is not None
    assert [each.lease.seq for each in session._starts] == [served.job(job).lease.seq]


async def test_a_spec_that_cannot_be_read_ends_its_own_job(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await served.control.submit("a", "b")
    bad = served.job(jobs[0]).spec
    served.control.specs._kept.clear()
    blobs = served.control.store.journal.blobs

    async def damaged(digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return {each: b"\xc1" if each == bad else body for each, body in (await blobs(digests)).items()}

    monkeypatch.setattr(served.control.store.journal, "blobs", damaged)
    await served.register()
    assert await served.granted(1) == [jobs[1]]
    assert (await served.ended(jobs[0]))[0] is JobState.FAILED
