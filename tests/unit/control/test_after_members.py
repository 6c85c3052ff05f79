"""Arrays whose members wait for those of another one, as people ask for them and are told of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spillover.api.grpc.documents import document_of
from spillover.core.events import JobState, Usage
from spillover.core.proposals import Outcome, Result
from spillover.forms.jobs.reading import read_job, to_doc
from spillover.model.ids import JobId, NodeKey
from spillover.model.job import On, Range
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import Action, Patch, Rerun
from tests.support.inside import form
from tests.support.served import Served, served
from tests.unit.control.test_projects import register

SAME = {"job": "prepare", "members": "same"}


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def end(inside: Served, member: str, exit_code: int = 0) -> None:
    """Report the end of a placed member."""
    job = inside.jobs[JobId(member)]
    phase: Any = job.phase
    result = Result(NodeKey(phase.key), job.lease, Outcome.EXITED, exit_code, None, Usage(1), 0)
    await inside.control.propose(result)


async def both(inside: Served, array: str = "1-3") -> tuple[str, str]:
    await register(inside.control)
    first, second = await inside.control.submitting.submit(
        [form("prepare", array="1-3"), form("train", array=array, after=[SAME])], "ada"
    )
    return first, second


async def refused(inside: Served, *forms: Any) -> tuple[ErrorKind, str]:
    with pytest.raises(CommandError) as caught:
        await inside.control.submitting.submit(list(forms), "ada")
    return caught.value.kind, " ".join([*[each.path for each in caught.value.problems], caught.value.message])


async def test_a_member_says_what_it_waits_for_and_why_it_never_starts(inside: Served) -> None:
    prepare, train = await both(inside)
    whole = await inside.commands.why(train)
    assert whole.reason is not None
    assert whole.reason.code == "after_members"
    assert (
        f"each of its members waits for that of prepare ({prepare}) with its index to succeed"
        in whole.sentence
    )
    member = await inside.commands.why(f"{train}.2")
    assert member.state == "HELD"
    assert f"waits for prepare.2 ({prepare}.2) to succeed" in member.sentence
    await end(inside, f"{prepare}.2", 1)
    await end(inside, f"{prepare}.1")
    member = await inside.commands.why(f"{train}.2")
    assert (member.state, member.reason and member.reason.code) == ("CANCELLED", "dependency_failed")
    assert f"its dependency {prepare}.2 did not succeed" in member.sentence
    shown = await inside.commands.job(f"{train}.2")
    assert (shown.state, shown.reason and shown.reason.code) == ("CANCELLED", "dependency_failed")
    assert (await inside.commands.wait(f"{train}.2", 60)).state == "CANCELLED"
    view = await inside.commands.job(train)
    assert view.array is not None
    assert view.array.counts == {"CANCELLED": 1, "HELD": 1, "PLACED": 1}
    with pytest.raises(CommandError, match=r"has ended \(CANCELLED\)"):
        await inside.commands.change(f"{train}.2", Patch(spec={"walltime": "1h"}), "ada")
    for last in (f"{prepare}.3", f"{train}.1", f"{train}.3"):
        await end(inside, last)
    await inside.control.archive()
    assert JobId(train) not in inside.jobs
    assert (await inside.commands.why(f"{train}.2")).sentence == member.sentence


async def test_members_that_were_cancelled_before_they_started_are_found(inside: Served) -> None:
    (job,) = await inside.control.submit("sweep", array="1-5")
    await inside.commands.act(Action("cancel", [f"{job}.4"]), "ada")
    member = await inside.commands.job("sweep.4")
    assert (member.state, member.reason and member.reason.message) == ("CANCELLED", "cancelled by ada")
    with pytest.raises(CommandError, match="is not a member of the array"):
        await inside.commands.job("sweep.9")


async def test_members_that_ended_before_count_live_or_archived(inside: Served) -> None:
    await register(inside.control)
    (prepare,) = await inside.control.submit("prepare", array="1-4")
    await end(inside, f"{prepare}.1")
    await end(inside, f"{prepare}.2", 1)
    await inside.control.archive()
    await end(inside, f"{prepare}.3")
    (train,) = await inside.control.submit("train", array="1-4", after=[SAME])
    members = inside.jobs[JobId(train)].extra.members
    assert members is not None
    assert members.blocked == (Range(4, 4),)
    assert members.ended == {JobState.CANCELLED: 1}
    await end(inside, f"{prepare}.4")
    await inside.control.archive()
    assert JobId(prepare) not in inside.jobs
    (later,) = await inside.control.submit(
        "later", array="1,3-4", after=[{"job": prepare, "members": "same"}]
    )
    assert inside.jobs[JobId(later)].state in {JobState.QUEUED, JobState.RUNNING}
    (never,) = await inside.control.submit("never", array="2", after=[{"job": prepare, "members": "same"}])
    assert inside.jobs[JobId(never)].state is JobState.CANCELLED


async def test_what_has_no_members_to_wait_for_is_refused(inside: Served) -> None:
    await inside.control.submit("one")
    kind, told = await refused(inside, form("train", array="1-3", after=[{"job": "one", "members": "same"}]))
    assert kind is ErrorKind.INVALID
    assert told == "jobs[0].spec.after[0].members train: one is not an array; remove `members`"
    _, told = await refused(inside, form("prepare", array="1-3"), form("train", array="2-5", after=[SAME]))
    assert told.endswith("train: prepare has no member 4; write `members: all`, or the same indexes")


async def test_a_key_tells_such_a_job_from_one_that_waits_for_the_whole_array(inside: Served) -> None:
    await inside.control.submit("prepare", array="1-3")
    one = form("train", array="1-3", after=[SAME], key="k")
    (job,) = await inside.control.submitting.submit([one], "ada")
    assert await inside.control.submitting.submit([one], "ada") == (job,)
    kind, _ = await refused(inside, form("train", array="1-3", after=["prepare"], key="k"))
    assert kind is ErrorKind.CONFLICT


async def test_what_an_array_waits_for_can_be_changed(inside: Served) -> None:
    await inside.control.submit("prepare", array="1-3")
    (train,) = await inside.control.submit("train", array="1-3", after=["prepare"])
    await inside.commands.change(train, Patch(spec={"after": [SAME]}), "ada")
    job = inside.jobs[JobId(train)]
    assert job.extra.after == ()
    assert job.extra.members is not None
    assert job.extra.members.blocked == (Range(1, 3),)
    await inside.commands.change(train, Patch(spec={"after": []}), "ada")
    assert inside.jobs[JobId(train)].state is JobState.QUEUED
    (single,) = await inside.control.submit("single")
    with pytest.raises(CommandError, match="is for arrays"):
        await inside.commands.change(single, Patch(spec={"after": [SAME]}), "ada")
    await inside.commands.change(train, Patch(spec={"after": [SAME]}), "ada")
    with pytest.raises(CommandError, match="has a cycle"):
        await inside.commands.change(
            "prepare", Patch(spec={"after": [{"job": train, "members": "same"}]}), "ada"
        )


async def test_arrays_that_run_again_together_wait_by_member_again(inside: Served) -> None:
    prepare, train = await both(inside)
    for act in (prepare, train):
        await inside.commands.act(Action("cancel", [act]), "ada")
    again = await inside.commands.rerun(Rerun([prepare, train]), "ada")
    members = inside.jobs[JobId(again.jobs[1])].extra.members
    assert members is not None
    assert [(each.job, each.on) for each in members.after] == [(again.jobs[0], On.SUCCESS)]


def test_the_form_is_the_same_in_grpc_and_in_a_job_file() -> None:
    job = pb.Job(name="train", run="true", array="1-3", after=["x"])
    job.dependencies.add(job="prepare", on="any", members="same")
    doc = document_of(pb.NewJob(job=job))
    assert doc["spec"]["after"] == ["x", {"job": "prepare", "on": "any", "members": "same"}]
    read = read_job(doc)
    assert read_job(to_doc(read)) == read
    assert [(each.ref, each.on, each.same) for each in read.after] == [
        ("x", On.SUCCESS, False),
        ("prepare", On.ANY, True),
    ]


async def test_an_array_goes_on_waiting_for_the_members_whose_files_it_takes(inside: Served) -> None:
    (prepare,) = await inside.control.submit("prepare", array="1-3", outputs=["out"])
    (train,) = await inside.control.submit(
        "train", array="1-3", after=[SAME], inputs=[{"from": "prepare", "path": "out"}]
    )
    (other,) = await inside.control.submit("other")
    await inside.commands.change(train, Patch(spec={"after": [other]}), "ada")
    job = inside.jobs[JobId(train)]
    assert [each.job for each in job.extra.after] == [other]
    assert job.extra.members is not None
    assert [each.job for each in job.extra.members.after] == [prepare]
