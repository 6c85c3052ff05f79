"""Jobs that run again: the same specs under new ids, whole or only the failed members of arrays."""

import hashlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from spillover.core.events import Usage
from spillover.core.proposals import Act, Change, Outcome, Result
from spillover.core.records.jobs import Placed, Running
from spillover.forms.jobs.reading import to_doc
from spillover.model.access import Access
from spillover.model.ids import JobId
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, SECOND
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import Rerun
from tests.support.inside import form
from tests.support.served import Served, served
from tests.support.waiting import until

ADA = Caller(TokenRole.SUBMIT, "t1", user="ada")
BOB = Caller(TokenRole.SUBMIT, "t2", user="bob")
KIM = Caller(TokenRole.MAINTAIN, "t3", user="kim")


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def spec_of(server: Served, job: str) -> dict[str, Any]:
    found = server.control.loop.state.jobs[JobId(job)]
    spec = (await server.control.specs.get([found.spec]))[found.spec]
    return dict(to_doc(spec)["spec"])


async def submit(server: Served, name: str, **fields: object) -> str:
    (job,) = await server.commands.submit([form(name, **fields)], "ada")
    return job


async def rerun(server: Served, *jobs: str, **asked: Any) -> list[str]:
    return (await server.commands.rerun(Rerun(list(jobs), **asked), "bob")).jobs


async def cancel(server: Served, *jobs: str) -> None:
    await server.control.propose(Change(Act.CANCEL, tuple(map(JobId, jobs)), "ada"))


async def swept(server: Served, *codes: int) -> str:
    """Run an array with one member for each exit code."""
    agent = await server.agent()
    sweep = await submit(server, "sweep", array=f"1-{len(codes)}%1", walltime="1h")
    for index, code in enumerate(codes, 1):
        member = JobId(f"{sweep}.{index}")
        await until(partial(server.jobs.__contains__, member), f"{member} to be placed", every=0.001)
        await agent.end(member, code)
    return sweep


async def test_an_ended_job_runs_again_under_a_new_id_for_who_asks(server: Served) -> None:
    train = await submit(server, "train", walltime="1h", env={"A": "1"}, key="nightly")
    before = await spec_of(server, train)
    await cancel(server, train)
    await server.control.archive()
    (again,) = await rerun(server, "train")
    assert again != train
    assert await spec_of(server, again) == before
    assert server.control.loop.state.jobs[JobId(again)].user == "bob"


async def test_fields_can_be_changed(server: Served) -> None:
    train = await submit(server, "train", walltime="1h", env={"A": "1"})
    (again,) = await rerun(server, train, changes={"spec": {"walltime": "2h", "env": {"B": "2"}}})
    spec = await spec_of(server, again)
    assert (spec["walltime"], spec["env"]) == ("2h", {"A": "1", "B": "2"})
    with pytest.raises(CommandError, match="is not a duration") as wrong:
        await rerun(server, train, changes={"spec": {"walltime": "long"}})
    assert [problem.path for problem in wrong.value.problems] == ["changes.spec.walltime"]
    with pytest.raises(CommandError, match="write metadata or spec"):
        await rerun(server, train, changes={"walltime": "1h"})


@pytest.mark.parametrize("archived", [False, True])
async def test_only_failed_members_run_again_under_the_same_indexes(server: Served, archived: bool) -> None:
    sweep = await swept(server, 0, 1, 7, 0, 1)
    if archived:
        await server.control.archive()
    (again,) = await rerun(server, sweep, failed=True)
    assert (await spec_of(server, again))["array"] == "2-3,5%1"
    with pytest.raises(CommandError, match="the failed members keep their indexes"):
        await rerun(server, sweep, failed=True, changes={"spec": {"array": "1-2"}})


async def test_a_member_runs_again_under_its_index(server: Served) -> None:
    sweep = await swept(server, 0, 1, 0)
    (again,) = await rerun(server, f"{sweep}.2")
    assert (await spec_of(server, again))["array"] == "2"


async def test_what_has_not_failed_does_not_run_again_as_failed(server: Served) -> None:
    sweep = await swept(server, 0, 0)
    with pytest.raises(CommandError, match="has no failed members") as none:
        await rerun(server, sweep, failed=True)
    assert none.value.kind is ErrorKind.CONFLICT
    waits = await submit(server, "waits", hold=True)
    with pytest.raises(CommandError, match="has not failed: it is HELD"):
        await rerun(server, waits, failed=True)


async def test_all_run_again_or_none(server: Served) -> None:
    train = await submit(server, "train")
    before = len(server.control.loop.state.jobs)
    with pytest.raises(CommandError, match="there is no job"):
        await rerun(server, train, "unknown")
    assert len(server.control.loop.state.jobs) == before


async def test_a_job_waits_again_for_those_that_run_again_with_it(server: Served) -> None:
    prepare = await submit(server, "prepare")
    live = await submit(server, "live", hold=True)
    after = [{"job": "prepare"}, {"job": "live", "on": "any"}]
    train = await submit(server, "train", after=after)
    await cancel(server, train, prepare)
    await server.control.archive()
    first, second = await rerun(server, prepare, train)
    job = server.control.loop.state.jobs[JobId(second)]
    assert {str(each.job) for each in job.extra.after} == {first, live}
    (alone,) = await rerun(server, train)
    waits = server.control.loop.state.jobs[JobId(alone)].extra.after
    assert {str(each.job) for each in waits} == {first, live}  # the name now means the one that runs again


async def test_inputs_that_are_gone_are_told_in_one_line(server: Served) -> None:
    content, inputs = [b"one", b"two"], []
    for at, data in enumerate(content):
        digest = hashlib.sha256(data).hexdigest()
        await server.blobs.put(digest, once(data))
        inputs.append({"path": f"in{at}", "digest": digest, "size": len(data)})
    train = await submit(server, "train", inputs=inputs[:1], stdin=inputs[1])
    await rerun(server, train)
    await server.blobs.forget(frozenset(), 2**62)
    with pytest.raises(CommandError) as gone:
        await rerun(server, train)
    assert gone.value.message == "train: the server no longer has in0, in1; submit it again from its files"


async def left_behind(server: Served, name: str, outcome: Outcome, **fields: object) -> tuple[str, str]:
    """Run a job that leaves a folder; return it and the blob of the folder."""
    agent = await server.agent()
    blob = hashlib.sha256(name.encode()).hexdigest()
    await server.blobs.put(blob, once(name.encode()))
    job = await submit(server, name, keep_state=True, walltime="1h", **fields)
    await until(lambda: isinstance(server.jobs[JobId(job)].phase, Placed), "the placement", every=0.001)
    await agent.start(job)
    found = server.jobs[JobId(job)]
    assert isinstance(found.phase, Running)
    code = 0 if outcome is Outcome.EXITED else None
    await server.control.propose(
        Result(found.phase.key, found.lease, outcome, code, None, Usage(SECOND), 0, saved=blob)
    )
    return job, blob


@pytest.mark.parametrize("archived", [False, True])
async def test_a_job_begins_with_the_folder_that_it_left_at_its_walltime(
    server: Served, archived: bool
) -> None:
    job, blob = await left_behind(server, "train", Outcome.WALLTIME)
    if archived:
        await server.control.archive()
        assert JobId(job) not in server.jobs
    again, empty = [(await rerun(server, job, empty_state=each))[0] for each in (False, True)]
    assert server.jobs[JobId(again)].extra.saved == (blob,)
    assert server.jobs[JobId(empty)].extra.saved == ()
    events = [each.text async for each in server.commands.events(after=0, follow=False, job=again)]
    assert events[0] == f"bob submitted train, with the folder that {job} left"
    (other,) = await rerun(server, job, changes={"spec": {"keep_state": False}})
    assert server.jobs[JobId(other)].extra.saved == ()


async def test_a_folder_that_is_gone_is_told_and_nothing_is_submitted(server: Served) -> None:
    job, _ = await left_behind(server, "train", Outcome.WALLTIME)
    await server.blobs.forget((), server.control.loop.now() + 2 * DAY)
    before = len(server.jobs)
    with pytest.raises(CommandError, match=f"no longer has the folder that {job} left; .*--empty-state"):
        await rerun(server, job)
    assert len(server.jobs) == before
    assert await rerun(server, job, empty_state=True)


async def test_a_job_that_succeeded_left_nothing(server: Served) -> None:
    job, _ = await left_behind(server, "train", Outcome.EXITED)
    (again,) = await rerun(server, job)
    assert server.jobs[JobId(again)].extra.saved == ()


@pytest.mark.parametrize("archived", [False, True])
async def test_who_may_not_change_a_job_does_not_get_the_folder_that_it_left(
    server: Served, archived: bool
) -> None:
    job, blob = await left_behind(server, "train", Outcome.WALLTIME)
    if archived:
        await server.control.archive()
    asked = Rerun([job], changes={"spec": {"run": "cat $SPILL_STATE/*"}})
    for caller, mine in ((BOB, False), (ADA, True), (KIM, True)):
        done = await server.commands.of(caller).rerun(asked, str(caller.user))
        assert server.jobs[JobId(done.jobs[0])].extra.saved == ((blob,) if mine else ())
        told = f"train: begins with an empty folder (SPILL_STATE), not with the one that {job} left, "
        assert done.warnings == ([] if mine else [told + "as you may not change that job"])
    empty = await server.commands.of(BOB).rerun(structs.replace(asked, empty_state=True), "bob")
    assert empty.warnings == []
    server.access.access = Access(changes="project")
    (shared,) = (await server.commands.of(BOB).rerun(asked, "bob")).jobs
    assert server.jobs[JobId(shared)].extra.saved == (blob,), "those of a project may change its jobs here"


async def test_a_folder_does_not_get_into_another_project(server: Served) -> None:
    job, _ = await left_behind(server, "train", Outcome.WALLTIME)
    done = await server.commands.rerun(Rerun([job], changes={"metadata": {"project": "vision"}}), "ada")
    assert server.jobs[JobId(done.jobs[0])].extra.saved == ()
    (told,) = done.warnings
    assert told.endswith(f"not with the one that {job} left, which is for project default")


async def test_members_of_arrays_begin_with_empty_folders_and_that_is_told(server: Served) -> None:
    sweep = await submit(server, "sweep", array="1-2", keep_state=True)
    done = await server.commands.rerun(Rerun([sweep]), "bob")
    (told,) = done.warnings
    assert "members of arrays begin with empty folders" in told
