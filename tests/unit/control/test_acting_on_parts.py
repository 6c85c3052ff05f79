"""Actions on what is in certain states: of an array that partly runs, on the members that are."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from spillover.model.ids import JobId
from spillover.model.tokens import TokenRole
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from spillover.wire.api import Action, AgentAction
from tests.support.served import Served, served
from tests.support.waiting import until


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def partly_running(inside: Served, array: str = "1-20") -> str:
    """Submit an array of which two members run."""
    agent = await inside.agent(cpus=2)
    (job,) = await inside.control.submit("part", array=array)
    for index in (1, 2):
        assert f"{job}.{index}" in inside.jobs
        await agent.start(f"{job}.{index}")
    return job


async def act(inside: Served, act: str, *jobs: str, dry_run: bool = False, states: str = "") -> list[str]:
    body = {"act": act, "jobs": list(jobs), "states": states.split(), "dry_run": dry_run}
    return (await inside.commands.act(msgspec.convert(body, Action), "ada")).jobs


async def listed(inside: Served, *states: str) -> list[str]:
    page = await inside.commands.jobs(JobQuery(states=frozenset(states)))
    return [job.id for job in page.jobs]


async def counts(inside: Served, job: str) -> dict[str, int]:
    array = (await inside.commands.job(job)).array
    assert array is not None
    return array.counts


@pytest.mark.parametrize(("array", "waiting"), [("1-20", "QUEUED"), ("1-20%2", "HELD")])
async def test_an_array_is_listed_by_its_own_state_and_by_those_of_its_members(
    inside: Served, array: str, waiting: str
) -> None:
    job = await partly_running(inside, array)
    for states in ((waiting,), ("RUNNING",), ("PLACED", "RUNNING"), ("QUEUED", "RUNNING")):
        assert await listed(inside, *states) == [job], states
    assert await listed(inside, "PLACED") == []
    assert await listed(inside, "FAILED") == []


@pytest.mark.parametrize(("array", "waiting"), [("1-20", "QUEUED"), ("1-20%2", "HELD")])
async def test_cancelling_what_waits_leaves_running_members_alone(
    inside: Served, array: str, waiting: str
) -> None:
    job = await partly_running(inside, array)
    assert await act(inside, "cancel", job, states=waiting) == [job]
    assert await counts(inside, job) == {"RUNNING": 2, "CANCELLED": 18}


async def test_cancelling_what_runs_leaves_pending_members_alone(inside: Served) -> None:
    job = await partly_running(inside)
    assert await act(inside, "cancel", job, states="RUNNING") == [f"{job}.1", f"{job}.2"]
    assert (await counts(inside, job))["QUEUED"] >= 16


async def test_an_array_ends_when_all_of_it_waits_and_is_cancelled(inside: Served) -> None:
    (job,) = await inside.control.submit("part", array="1-20")
    assert await act(inside, "cancel", job, states="QUEUED") == [job]
    assert (await inside.commands.job(job)).state == "CANCELLED"


async def test_members_that_were_requeued_are_cancelled_with_those_that_never_ran(inside: Served) -> None:
    job = await partly_running(inside)
    again = JobId(f"{job}.1")
    await inside.commands.act_on_agents(AgentAction("drain", ["n1"]), "root")
    assert await act(inside, "requeue", job, states="RUNNING") == [again, f"{job}.2"]
    await until(lambda: inside.jobs[again].state == "QUEUED", "a requeued member", every=0.001)
    assert await act(inside, "cancel", job, states="QUEUED") == [again, f"{job}.2", job]
    assert (await inside.commands.job(job)).state == "CANCELLED"


async def test_a_dry_run_tells_what_would_change_and_changes_nothing(inside: Served) -> None:
    job = await partly_running(inside)
    assert await act(inside, "cancel", job, states="QUEUED", dry_run=True) == [job]
    assert await act(inside, "cancel", job, states="RUNNING", dry_run=True) == [f"{job}.1", f"{job}.2"]
    assert await act(inside, "cancel", job, dry_run=True) == [job]
    assert await counts(inside, job) == {"RUNNING": 2, "QUEUED": 18}
    (other,) = await inside.control.submit("other", hold=True)
    with pytest.raises(CommandError, match="only a placed or running job can be requeued"):
        await act(inside, "requeue", other, dry_run=True)


async def test_jobs_that_changed_since_they_were_listed_are_left_out(inside: Served) -> None:
    (held,) = await inside.control.submit("held", hold=True)
    (queued,) = await inside.control.submit("queued")
    (ended,) = await inside.control.submit("ended")
    await act(inside, "cancel", ended)
    gone = "zzzzzzzzzzzz"
    assert await act(inside, "hold", held, queued, ended, gone, states="HELD QUEUED") == [queued]
    assert await act(inside, "release", held, queued, ended, states="HELD") == [held, queued]
    assert await act(inside, "release", held, queued, ended, states="HELD") == []
    with pytest.raises(CommandError, match="there is no job"):
        await act(inside, "hold", gone)


async def test_what_waits_for_other_jobs_is_held_too(inside: Served) -> None:
    (first,) = await inside.control.submit("first")
    (waits,) = await inside.control.submit("waits", after=[first])
    assert await act(inside, "hold", first, waits, states="HELD QUEUED") == [first, waits]
    assert await act(inside, "release", waits, states="HELD") == [waits]


async def test_jobs_of_others_are_refused_also_by_state(inside: Served) -> None:
    (job,) = await inside.control.submit("job")
    bob = inside.commands.of(Caller(TokenRole.SUBMIT, user="bob"))
    with pytest.raises(CommandError) as caught:
        await bob.act(Action("cancel", [job], ["QUEUED"]), "bob")
    assert caught.value.kind is ErrorKind.FORBIDDEN
