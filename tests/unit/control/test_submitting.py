"""A submission under keys is taken whatever is archived while it is looked at, and never twice."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.core.events import Usage
from spillover.core.proposals import Outcome, Result, Started
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, SECOND
from spillover.ports.archive import Finished, ProjectKey
from tests.support.inside import Inside


class BusyArchive:
    """An archive that something happens behind as soon as it has answered for keys."""

    def __init__(self, archive: Any, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._archive = archive
        self._meanwhile = meanwhile
        self.asked = 0

    async def keyed(self, keys: Sequence[ProjectKey]) -> dict[ProjectKey, Finished]:
        """See Archive."""
        self.asked += 1
        found: dict[ProjectKey, Finished] = await self._archive.keyed(keys)
        await self._meanwhile()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)


HOLDER = NodeKey("onprem/n1")


@pytest.fixture
async def busy(control: Inside) -> Inside:
    """One with an agent of eight CPUs."""
    node = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(node)
    return control


async def run(control: Inside, job: str) -> None:
    """Let a placed job run and end, and archive it."""
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(HOLDER, found.lease, 0))
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Running)
    await control.propose(Result(HOLDER, found.lease, Outcome.EXITED, 0, None, Usage(SECOND), 0))
    await control.archive()


def behind(control: Inside, meanwhile: Callable[[], Awaitable[None]]) -> BusyArchive:
    """Let something happen whenever the archive was asked for keys."""
    archive = BusyArchive(control.store.archive, meanwhile)
    control.submitting._archive = archive
    return archive


async def test_a_job_knows_whether_its_name_is_only_that_of_its_program(control: Inside) -> None:
    mine, program = await control.submit("train", "true")
    assert control.loop.state.jobs[JobId(mine)].named
    assert not control.loop.state.jobs[JobId(program)].named


async def test_a_name_that_another_command_had_before_does_not_make_a_job_short(busy: Inside) -> None:
    for _ in range(3):
        (short,) = await busy.submit("nightly", run="echo hello")
        await run(busy, short)
    (again,) = await busy.submit("nightly", run="echo hello")
    (other,) = await busy.submit("nightly", run="make world")
    jobs = busy.loop.state.jobs
    assert jobs[JobId(again)].predicted == SECOND
    assert jobs[JobId(other)].predicted == HOUR, "unknown_runtime"


async def test_jobs_of_others_that_are_archived_meanwhile_do_not_disturb(busy: Inside) -> None:
    async def another() -> None:
        (job,) = await busy.submit("other")
        await run(busy, job)

    archive = behind(busy, another)
    (job,) = await busy.submit("mine", key="k")
    assert job in busy.loop.state.jobs
    assert archive.asked == 1


async def test_a_job_of_the_same_key_that_is_archived_meanwhile_is_the_answer(busy: Inside) -> None:
    (first,) = await busy.submit("mine", key="k")

    async def archived() -> None:
        if first in busy.loop.state.jobs:
            await run(busy, first)

    archive = behind(busy, archived)
    assert await busy.submit("mine", key="k") == (first,)
    assert archive.asked == 2
    assert not busy.loop.state.jobs


async def test_a_job_that_came_and_went_while_the_archive_was_asked_is_the_answer(busy: Inside) -> None:
    came: list[str] = []

    async def faster() -> None:
        if not came:
            came.append("")
            (came[0],) = await busy.submit("mine", key="k")
            await run(busy, came[0])

    behind(busy, faster)
    assert await busy.submit("mine", key="k") == (came[0],)
    assert await busy.store.archive.count() == 1
