"""Changes of jobs as people ask for them: read like a job file, and checked like a submission."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spillover.core.events import JobState
from spillover.core.records.jobs import Job
from spillover.model.ids import JobId
from spillover.model.units import MINUTE
from spillover.ports.callers import ADMIN
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import Patch
from tests.support.served import Served, served


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def change(inside: Served, job: str, **fields: Any) -> Job:
    metadata = {"name": fields.pop("name")} if "name" in fields else {}
    (changed,) = (await inside.commands.change(job, Patch(metadata=metadata, spec=fields), "ada")).jobs
    return inside.jobs[JobId(changed)]


async def refused(inside: Served, job: str, **fields: Any) -> tuple[ErrorKind, str]:
    with pytest.raises(CommandError) as caught:
        await change(inside, job, **fields)
    paths = [each.path for each in caught.value.problems]
    return caught.value.kind, " ".join([*paths, "|", caught.value.message])


async def test_a_changed_job_is_stored_and_shown_like_one_that_was_submitted_so(inside: Served) -> None:
    (job,) = await inside.control.submit("job", resources={"cpu": 1, "memory": "1Gi"})
    asked: dict[str, Any] = {
        "resources": {"cpu": 2},
        "walltime": "1h",
        "estimate": "10m",
        "deadline": "2090-01-31T18:00:00Z",
        "priority": 3,
    }
    found = await change(inside, job, name="new", queue="long", **asked)
    wanted = {"cpu": 2, "memory": "1Gi"}
    (same,) = await inside.control.submit("new", queue="long", **{**asked, "resources": wanted})
    other = inside.jobs[JobId(same)]
    assert (found.spec, found.kind, found.terms, found.priority, found.name) == (
        other.spec,
        other.kind,
        other.terms,
        other.priority,
        other.name,
    )
    detail = await inside.commands.job(job)
    assert (detail.name, detail.walltime_s, detail.resources["cpu"]) == ("new", 3600.0, 2.0)


async def test_null_removes_a_limit(inside: Served) -> None:
    (job,) = await inside.control.submit("job", walltime="1h", estimate="5m", deadline="2090-01-31T18:00:00Z")
    found = await change(inside, job, walltime=None, estimate=None, deadline=None)
    assert (found.terms.walltime, found.terms.estimate, found.extra.deadline) == (None, None, None)


async def test_nothing_happens_if_nothing_differs(inside: Served) -> None:
    (job,) = await inside.control.submit("job", walltime="1h")
    before = inside.control.loop.gate.durable
    await change(inside, job, walltime="60m")
    assert inside.control.loop.gate.durable == before


async def test_the_same_changes_as_at_submission_are_refused(inside: Served) -> None:
    (job,) = await inside.control.submit("job", walltime="1h")
    assert await refused(inside, job, walltime="soon") == (
        ErrorKind.INVALID,
        "spec.walltime | spec.walltime: 'soon' is not a duration; write 90s, 10m, 1h30m or 2d",
    )
    assert (await refused(inside, job, run="x"))[1].startswith("spec.run | run cannot be changed; cancel")
    assert (await refused(inside, job))[1] == " | nothing to change; give a field such as walltime"
    assert (await refused(inside, job, throttle=-1))[1].startswith(
        "spec.throttle | -1 is no number of members"
    )
    assert (await refused(inside, job, throttle=2))[1] == f"| {job} is not an array, so it has no throttle"
    assert (await refused(inside, job, deadline="2001-01-31T18:00:00Z"))[1].startswith("spec.deadline | ")
    assert (await refused(inside, job, after=["nobody"]))[1].startswith("spec.after[0].job | ")


async def test_dependencies_are_found_by_name(inside: Served) -> None:
    (first,) = await inside.control.submit("first")
    (job,) = await inside.control.submit("job")
    found = await change(inside, job, after=["first"])
    assert (found.state, [each.job for each in found.extra.after]) == (JobState.HELD, [first])
    assert (await refused(inside, first, after=["job"]))[1] == "| `after` has a cycle: first -> job -> first"
    assert (await change(inside, job, after=[])).state is JobState.QUEUED


async def test_a_queue_does_not_forget_the_key_of_a_changed_job(inside: Served) -> None:
    (job,) = await inside.control.submit("job", key="k1")
    await change(inside, job, resources={"cpu": 3})
    assert await inside.control.submit("job", key="k1") == (job,)


async def running(inside: Served, abilities: tuple[str, ...]) -> str:
    agent = await inside.agent(cpus=2, abilities=abilities)
    (job,) = await inside.control.submit("job", walltime="1h", estimate="50m")
    await agent.start(job)
    return job


async def test_the_walltime_of_a_running_job_changes_on_agents_that_can_do_it(inside: Served) -> None:
    job = await running(inside, ("walltimes",))
    found = await change(inside, job, walltime="5m")
    assert (found.terms.walltime, found.terms.estimate, found.is_limited) == (5 * MINUTE, 50 * MINUTE, True)
    assert (await refused(inside, job, resources={"cpu": 2}))[0] is ErrorKind.CONFLICT


async def test_agents_of_earlier_releases_are_named(inside: Served) -> None:
    job = await running(inside, ())
    kind, told = await refused(inside, job, walltime="5m")
    assert kind is ErrorKind.CONFLICT
    assert (
        told
        == f"| agent n1 of {job} is of an earlier release, which cannot change the walltime of what runs; update it"
    )


async def test_a_pending_member_is_changed_with_its_array(inside: Served) -> None:
    (job,) = await inside.control.submit("many", array="1-3")
    assert await refused(inside, f"{job}.2", walltime="1h") == (
        ErrorKind.CONFLICT,
        f"| {job}.2 has not been placed yet; change its array {job} instead",
    )
    found = await change(inside, job, throttle=2)
    assert found.extra.members is not None
    assert found.extra.members.most == 2


async def test_the_audit_has_who_changed_a_job(inside: Served) -> None:
    (job,) = await inside.control.submit("job")
    await inside.commands.of(ADMIN).change(job, Patch(spec={"walltime": "2h", "priority": 4}), "root")
    seen = [view async for view in inside.commands.events(0, follow=False, job=job)]
    told = [(view.type, view.user, view.text) for view in seen if view.user == "root"]
    assert told == [
        ("job_changed", "root", "changed by root: walltime 2h"),
        ("job_reprioritised", "root", "priority 4, by root"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"resources": 5},
        {"resources": {"cpu": "many"}},
        {"name": ["x"]},
        {"after": "x"},
        {"after": [{"job": 5}]},
        {"queue": {}},
        {"priority": "high"},
        {"priority": 2**70},
        {"priority": True},
        {"throttle": "all"},
        {"throttle": True},
        {"deadline": 12},
        {"walltime": "1h", "estimate": "2h"},
    ],
)
async def test_odd_values_are_refused_in_one_line(inside: Served, fields: dict[str, Any]) -> None:
    (job,) = await inside.control.submit("job")
    before = inside.control.loop.gate.durable
    kind, told = await refused(inside, job, **fields)
    assert kind is ErrorKind.INVALID
    assert "\n" not in told
    assert inside.control.loop.gate.durable == before
