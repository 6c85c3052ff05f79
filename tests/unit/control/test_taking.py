"""Outputs of jobs that others take as inputs: which job is meant, which files, and that those stay."""

import hashlib
from typing import Any

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.earlier import Missing
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.taken import TakenFiles
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.controllers.sources import Sources
from spillover.control.requests.rerunning import Rerunning
from spillover.control.requests.rights import AccessRules, Rights
from spillover.core.events import JobState
from spillover.core.proposals import Act, Change
from spillover.core.records.jobs import Ended
from spillover.model.ids import JobId
from spillover.model.job import FromJob, FromMembers, Range
from spillover.model.units import DAY
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import Rerun
from tests.support.inside import Inside, form
from tests.unit.control.test_files import Yard

HELD = {"hold": True}


@pytest.fixture
async def yard(control: Inside) -> Yard:
    yard = Yard(control)
    await yard.agent()
    return yard


def take(source: str, path: str = "out.csv", to: str | None = None, **more: str) -> dict[str, Any]:
    return {"from": source, "path": path} | ({} if to is None else {"as": to}) | more


async def taken(yard: Yard, job: str) -> list[tuple[str, str]]:
    """What a job gets: each path with the first bytes of the digest; or why it gets nothing."""
    state = yard.control.loop.state
    found = state.jobs.get(JobId(job)) or state.jobs[JobId(job.partition(".")[0])]
    spec = (await yard.control.specs.get([found.spec]))[found.spec]
    files = TakenFiles(yard.control.loop, yard.control.store.archive, yard.blobs, 100)
    full = (await files.filled({JobId(job): spec}))[JobId(job)]
    if isinstance(full, Missing):
        raise full
    assert full.taken == ()
    return [(file.path, file.digest[:6]) for file in full.inputs]


def at(path: str, data: bytes) -> tuple[str, str]:
    return path, hashlib.sha256(data).hexdigest()[:6]


async def taken_by(yard: Yard, job: str) -> tuple[FromJob, ...]:
    spec = yard.control.loop.state.jobs[JobId(job)].spec
    return (await yard.control.specs.get([spec]))[spec].taken


def waits(yard: Yard, job: str) -> list[tuple[str, str]]:
    return [(each.job, str(each.on)) for each in yard.control.loop.state.jobs[JobId(job)].extra.after]


async def swept(yard: Yard, outputs: list[dict[str, bytes]], codes: list[int] | None = None) -> JobId:
    """Run an array of which each member makes these files."""
    sweep = await yard.submit("sweep", array=f"1-{len(outputs)}", outputs=["**"])
    for index, files in enumerate(outputs, 1):
        await yard.end(JobId(f"{sweep}.{index}"), files, codes[index - 1] if codes else 0)
    return sweep


@pytest.mark.parametrize("archived", [False, True])
async def test_a_job_gets_what_the_last_attempt_of_another_made(yard: Yard, archived: bool) -> None:
    prep = await yard.submit("prep", outputs=["**"], retry={"exit": 1})
    train = await yard.submit(
        "train",
        inputs=[
            take("prep", "out.csv", "data.csv"),
            take(prep, "parts/*.csv", "in/"),
            take("prep", ".", "all/"),
        ],
    )
    assert waits(yard, train) == [(prep, "success")]
    await yard.end(prep, {"out.csv": b"old", "left": b"over"}, code=1)
    await yard.end(prep, {"out.csv": b"new", "parts/a.csv": b"a", "parts/.b.csv": b"b"})
    if archived:
        await yard.archive()
        assert prep not in yard.control.loop.state.jobs
    assert await taken(yard, train) == [
        at("data.csv", b"new"),
        at("in/a.csv", b"a"),
        at("all/out.csv", b"new"),
        at("all/parts/a.csv", b"a"),
    ]


async def test_an_archived_job_can_be_named(yard: Yard) -> None:
    prep = await yard.submit("prep", outputs=["**"])
    await yard.end(prep, {"out/a.csv": b"a", "out/.b": b"b"})
    await yard.archive()
    train = await yard.submit("train", inputs=[take("prep", "out", "in")])
    assert waits(yard, train) == []
    assert await taken(yard, train) == [at("in/a.csv", b"a"), at("in/.b", b"b")]


async def test_jobs_of_one_submission_are_named_by_each_other(yard: Yard) -> None:
    train, prep = await yard.submitting.submit(
        [form("train", inputs=[take("prep")]), form("prep", outputs=["**"])], "ada"
    )
    assert waits(yard, train) == [(prep, "success")]
    assert [each.job for each in await taken_by(yard, train)] == [prep]


async def test_a_job_that_is_there_under_its_key_is_the_source(yard: Yard) -> None:
    prep = await yard.submit("prep", key="k", outputs=["**"], **HELD)
    again, train = await yard.submitting.submit(
        [form("prep", key="k", outputs=["**"], **HELD), form("train", inputs=[take("prep")])], "ada"
    )
    assert again == prep
    assert [each.job for each in await taken_by(yard, train)] == [prep]


async def test_the_same_submission_under_a_key_is_the_same_job(yard: Yard) -> None:
    forms = [form("prep", key="p", **HELD), form("train", key="t", inputs=[take("prep")])]
    assert await yard.submitting.submit(forms, "ada") == await yard.submitting.submit(forms, "ada")


async def test_a_job_may_take_from_one_that_failed_if_it_says_so(yard: Yard) -> None:
    prep = await yard.submit("prep", outputs=["**"])
    train = await yard.submit("train", inputs=[take(prep)], after=[{"job": prep, "on": "any"}])
    other = await yard.submit("other", inputs=[take(prep)])
    assert waits(yard, train) == [(prep, "any")]
    await yard.end(prep, {"out.csv": b"half"}, code=1)
    assert await taken(yard, train) == [at("out.csv", b"half")]
    assert yard.control.loop.state.jobs[other].state is JobState.CANCELLED


async def test_each_member_takes_from_the_member_with_its_index(yard: Yard) -> None:
    sweep = await swept(yard, [{"out.csv": b"1"}, {"out.csv": b"2"}, {"out.csv": b"3"}])
    train = await yard.submit("train", array="2-3", inputs=[take(sweep)])
    assert await taken_by(yard, train) == (FromJob(sweep, "out.csv", "", FromMembers.SAME),)
    assert await taken(yard, f"{train}.2") == [at("out.csv", b"2")]
    await yard.archive()
    assert await taken(yard, f"{train}.3") == [at("out.csv", b"3")]


async def test_a_job_takes_from_all_members_into_folders(yard: Yard) -> None:
    sweep = await yard.submit("sweep", array="1-2", outputs=["**"])
    merge = await yard.submit("merge", inputs=[take("sweep"), take("sweep", "out.csv", "parts/")])
    assert await taken_by(yard, merge) == tuple(
        FromJob(sweep, "out.csv", to, FromMembers.ALL, (Range(1, 2),)) for to in ("", "parts/")
    )
    assert waits(yard, merge) == [(sweep, "success")]
    for index in (1, 2):
        await yard.end(JobId(f"{sweep}.{index}"), {"out.csv": b"%d" % index})
    assert await taken(yard, merge) == [
        at("1/out.csv", b"1"),
        at("2/out.csv", b"2"),
        at("parts/1/out.csv", b"1"),
        at("parts/2/out.csv", b"2"),
    ]


async def test_members_that_failed_may_lack_their_files(yard: Yard) -> None:
    sweep = await yard.submit("sweep", array="1-3%1", outputs=["**"])
    merge = await yard.submit("merge", inputs=[take(sweep)], after=[{"job": sweep, "on": "any"}])
    await yard.end(JobId(f"{sweep}.1"), {"out.csv": b"1"})
    await yard.control.propose(Change(Act.CANCEL, (sweep,), "ada"))
    await yard.end(JobId(f"{sweep}.2"), {}, code=1)
    assert await taken(yard, merge) == [at("1/out.csv", b"1")]


async def test_one_member_is_a_source_like_any_job(yard: Yard) -> None:
    sweep = await yard.submit("sweep", array="1-2%1", outputs=["**"])
    ready = await yard.submit("ready", inputs=[take(f"{sweep}.1")])
    early = await yard.submit("early", inputs=[take("sweep.2")])
    assert (waits(yard, ready), waits(yard, early)) == ([(f"{sweep}.1", "success")], [(sweep, "success")])
    await yard.end(JobId(f"{sweep}.1"), {"out.csv": b"1"})
    await yard.end(JobId(f"{sweep}.2"), {"out.csv": b"2"})
    assert await taken(yard, ready) == [at("out.csv", b"1")]
    assert await taken(yard, early) == [at("out.csv", b"2")]
    merge, sums = await yard.submitting.submit(
        [form("merge", inputs=[take("sums.8")]), form("sums", array="7-9")], "ada"
    )
    assert [each.job for each in await taken_by(yard, merge)] == [f"{sums}.8"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": [take("unknown")]}, "train: there is no job 'unknown'"),
        ({"inputs": [take("one", members="all")]}, "train: one is not an array; remove `members`"),
        ({"inputs": [take("sweep")], "array": "2-4"}, "train: sweep has no member 4; write `members: all`"),
        (
            {"inputs": [take("sweep", to="all.csv")]},
            "'all.csv' is one path for all members of sweep; write 'all.csv/'",
        ),
        ({"inputs": [take("train")]}, "`after` has a cycle: train -> train"),
        ({"inputs": [take("sweep.9")]}, ".9 is not a member of the array"),
    ],
)
async def test_what_makes_no_sense_is_refused(yard: Yard, fields: dict[str, Any], said: str) -> None:
    await yard.submit("one", **HELD)
    await yard.submit("sweep", array="1-3", **HELD)
    with pytest.raises(CommandError) as refused:
        await yard.submit("train", **fields)
    assert refused.value.kind is ErrorKind.INVALID
    assert said in refused.value.message
    if refused.value.problems:
        assert refused.value.problems[0].path == "jobs[0].spec.inputs"


async def test_an_array_of_too_many_members_is_refused(yard: Yard) -> None:
    sweep = await yard.submit("sweep", array="1-5001", **HELD)
    with pytest.raises(CommandError, match="has 5,001 members; a job can take files of 5,000 at most"):
        await yard.submit("merge", inputs=[take(sweep)])


async def test_callers_take_only_from_jobs_that_they_may_see(yard: Yard) -> None:
    prep = await yard.submit("prep", outputs=["**"], **HELD)
    theirs = yard.submitting.within(yard.control.lookup.within("vision"))
    for ref in (prep, "prep"):
        with pytest.raises(CommandError, match="there is no job"):
            await theirs.submit([form("train", inputs=[take(ref)])], "bob")


@pytest.mark.parametrize(
    ("made", "inputs", "said"),
    [
        ({"x": b"x"}, [take("prep")], r"prep \(\w+\) has no output out.csv"),
        ({}, [take("prep", "*.csv")], r"prep \(\w+\) has no output \*.csv"),
        (
            {"out.csv": b"x" * 101},
            [take("prep")],
            r"its inputs total 101, .*; the maximum is 100 \(files.max_inputs\)",
        ),
        (
            {"a/x": b"a", "b/x": b"b"},
            [take("prep", "a/x", "x"), take("prep", "b/x", "x")],
            "its input 'x' would be written twice; rename one with `as`",
        ),
    ],
)
async def test_what_cannot_be_had_is_named(
    yard: Yard, made: dict[str, bytes], inputs: list[Any], said: str
) -> None:
    prep = await yard.submit("prep", outputs=["**"])
    train = await yard.submit("train", inputs=inputs)
    await yard.end(prep, made)
    with pytest.raises(Missing, match=said):
        await taken(yard, train)


async def test_files_and_lists_that_were_deleted_are_named(yard: Yard) -> None:
    prep = await yard.submit("prep", outputs=["**"])
    train = await yard.submit("train", inputs=[take(prep)])
    await yard.end(prep, {"out.csv": b"data"})
    del yard.blobs._blobs[hashlib.sha256(b"data").hexdigest()]
    with pytest.raises(Missing, match=r"its input out\.csv is no longer on the server"):
        await taken(yard, train)
    yard.blobs._blobs.clear()
    with pytest.raises(Missing, match=rf"the outputs of prep \({prep}\) were deleted"):
        await taken(yard, train)


async def test_a_job_whose_inputs_cannot_be_had_fails_and_says_which(yard: Yard) -> None:
    prep = await yard.submit("prep", outputs=["**"])
    train = await yard.submit("train", inputs=[take(prep)])
    control = yard.control
    files = TakenFiles(control.loop, control.store.archive, yard.blobs)
    sender = LeaseSender(control.loop, Hub(), control.specs, taken=files)
    sender._incarnations["onprem/n1"] = 1
    await yard.end(prep, {})
    await sender._hand_out(sender._grants)
    await sender._end()
    found = control.loop.state.jobs[train]
    assert isinstance(found.phase, Ended)
    assert (found.state, str(found.phase.why)) == (
        JobState.FAILED,
        f"could not be started on onprem/n1: prep ({prep}) has no output out.csv",
    )


async def test_sources_stay_past_their_retention_while_a_consumer_waits(yard: Yard) -> None:
    control = yard.control
    sources = Sources(control.loop, control.store.archive, control.specs, yard.blobs, DAY)
    files = type(yard.keeping)(control.loop, control.specs, yard.blobs, DAY, sources)
    store = control.store
    keeping = Keeping(control.loop, store.journal, store.archive, store.audit, Retention(DAY), sources)
    prep = await yard.submit("prep", outputs=["**"])
    sweep = await swept(yard, [{"out.csv": b"member"}])
    other = await yard.submit("other", outputs=["**"])
    await yard.end(prep, {"out.csv": b"needed"})
    await yard.end(other, {"out.csv": b"other"})
    train = await yard.submit("train", inputs=[take(prep), take(f"{sweep}.1", to="b")], **HELD)
    await yard.archive()
    control.clock.pass_by(12 * 86_400)
    await keeping.sweep()
    await files.sweep()
    assert await yard.there(b"needed", b"member", b"other") == [True, True, False]
    assert await taken(yard, train) == [at("out.csv", b"needed"), at("b", b"member")]
    assert await control.store.archive.get(other) is None
    await control.propose(Change(Act.CANCEL, (train,), "ada"))
    await yard.archive()
    control.clock.pass_by(2 * 86_400)
    await keeping.sweep()
    await files.sweep()
    assert await yard.there(b"needed", b"member") == [False, False]
    assert await control.store.archive.get(prep) is None


async def test_a_job_that_runs_again_takes_from_the_same_job_or_from_its_rerun(yard: Yard) -> None:
    control = yard.control
    prep = await yard.submit("prep", outputs=["**"])
    await yard.end(prep, {"out.csv": b"x"})
    train = await yard.submit("train", inputs=[take(prep)], **HELD)
    rerunning = Rerunning(
        control.loop,
        control.store.journal,
        control.store.archive,
        control.specs,
        None,
        control.lookup,
        Rights(AccessRules()),
    )
    (again,) = await yard.submitting.submit(await rerunning.forms(Rerun([train]), "ada"), "ada")
    assert [each.job for each in await taken_by(yard, again)] == [prep]
    prep2, train2 = await yard.submitting.submit(await rerunning.forms(Rerun([prep, train]), "ada"), "ada")
    assert [each.job for each in await taken_by(yard, train2)] == [prep2]
