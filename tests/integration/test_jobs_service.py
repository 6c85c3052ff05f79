"""Jobs over real gRPC, on the real inside of a server: what programs submit, see, cancel and watch, and how they are refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.api.grpc.jobs import PROBLEMS, RETRY_AFTER
from spillover.control.requests.commands import LiveCommands
from spillover.core.events import SeenNode
from spillover.core.proposals import (
    DRIVER,
    SeeBound,
    SeeCluster,
    SeeNodes,
    Started,
    StartEpoch,
)
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.files import File
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Argv, FromJob, GroupWork, Shell
from spillover.model.notifications import Notify, When
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.units import MONEY, SECOND
from spillover.wire import jobs_pb2 as pb
from tests.support.grpc_programs import Program, a_program, document, job, refused

S = pb.JobState


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with a_program() as program:
        yield program


async def read(watching: Any, count: int) -> list[pb.JobChange]:
    """So many changes of a stream."""
    changes: list[pb.JobChange] = []
    async with asyncio.timeout(10):
        while len(changes) < count:
            changes += (await watching.read()).changes
    return changes


async def rest(watching: Any) -> list[pb.JobChange]:
    """All changes up to the end of a stream."""
    changes: list[pb.JobChange] = []
    async with asyncio.timeout(10):
        while reply := await watching.read():
            changes += reply.changes
    return changes


async def test_what_has_no_effect_is_told_with_the_ids(program: Program) -> None:
    asked = pb.SubmitJobRequest(jobs=[pb.NewJob(job=pb.Job(run="true", priority=5, queue="night"))] * 2)
    reply = await program.ask("SubmitJob", asked, pb.SubmitJobReply)
    assert len(reply.jobs) == 2
    priority, queue = sorted(reply.warnings, reverse=True)
    assert priority.startswith("the priority has no effect, because this server's order is `fifo`;")
    assert queue.startswith("queue 'night' is only a label")


async def test_a_typed_job_says_what_a_job_file_says(program: Program) -> None:
    typed = job(
        "train",
        project="vision",
        queue="night",
        labels={"team": "cv"},
        run="",
        command=["python", "train.py"],
        env={"A": "b"},
        workdir="/work",
        resources=pb.Resources(cpu=1.5, memory=2**30, gpu=1),
        walltime=Duration(seconds=7200),
        estimate=Duration(seconds=90, nanos=500_000_000),
        deadline=Timestamp(seconds=1_900_000_000),
        priority=-3,
        needs=["gpu:a100"],
        array="1-10",
        key="nightly",
    )
    (found,) = await program.submit(typed, spill_user="mira")
    (status,) = await program.status(found)
    assert (status.name, status.project, status.queue, status.user) == ("train", "vision", "night", "mira")
    assert status.state == S.JOB_STATE_QUEUED
    assert dict(status.members) == {"QUEUED": 10}
    assert status.estimate.ToTimedelta().total_seconds() == 90.5
    assert not status.HasField("exit_code")
    assert not status.HasField("started_at")
    stored = program.control.loop.state.jobs[JobId(found)]
    assert stored.kind.shape.resources == Resources(1500, 2**30, 1)
    assert (stored.terms.walltime, stored.priority) == (7200 * SECOND, -3)
    assert stored.extra.deadline == 1_900_000_000 * SECOND


async def test_a_typed_job_may_be_held_and_an_array_limited(program: Program) -> None:
    held, array = await program.submit(
        job("later", hold=True, singleton=True, stdout="out_%j", stderr="err_%j"),
        job("sweep", array="1-9%1"),
    )
    later, sweep = await program.status(held, array)
    assert (later.state, later.reason.code) == (S.JOB_STATE_HELD, "held")
    assert dict(sweep.members) == {"HELD": 8, "PLACED": 1}


async def test_a_typed_job_may_want_a_signal_before_its_walltime(program: Program) -> None:
    (found,) = await program.submit(job(walltime=Duration(seconds=600), signal_before=Duration(seconds=60)))
    stored = program.control.loop.state.jobs[JobId(found)]
    spec = (await program.control.specs.get([stored.spec]))[stored.spec]
    assert (spec.signal, spec.signal_before) == ("TERM", 60 * SECOND)


async def test_a_typed_job_may_have_files_and_take_those_of_others(program: Program) -> None:
    inputs = [
        pb.Input(path="out.csv", from_job="prep", to="data.csv"),
        pb.Input(path="*.csv", from_job="prep", to="parts/"),
        pb.Input(path="empty", digest="0" * 64, executable=True),
    ]
    prep, found = await program.submit(job("prep", outputs=["**"]), job("train", inputs=inputs))
    stored = program.control.loop.state.jobs[JobId(found)]
    spec = (await program.control.specs.get([stored.spec]))[stored.spec]
    assert spec.taken == (FromJob(prep, "out.csv", "data.csv"), FromJob(prep, "*.csv", "parts/"))
    assert spec.inputs == (File("empty", "0" * 64, 0, executable=True),)
    assert [each.job for each in stored.extra.after] == [prep]
    bad = (
        job(inputs=[pb.Input(path="x", from_job="prep", members="some")]),
        job(inputs=[pb.Input(path="x", from_job="none")]),
    )
    for each, said in zip(bad, ["spec.inputs[0].members", "there is no job 'none'"], strict=True):
        code, message, _ = await refused(program.submit(each))
        assert (code, said in message) == (grpc.StatusCode.INVALID_ARGUMENT, True), message


async def test_a_typed_gang_of_elastic_size_takes_what_fits(program: Program) -> None:
    (found,) = await program.submit(job(most_tasks=8))
    (status,) = await program.status(found)
    assert dict(status.tasks) == {"PLACED": 2}, "the agent has two CPUs"
    shape = program.control.loop.state.jobs[JobId(found)].kind.shape
    assert (shape.tasks, shape.most) == (1, 8)


async def test_a_typed_job_may_have_groups_of_unlike_tasks(program: Program) -> None:
    half = pb.Resources(cpu=0.5)
    groups = [
        pb.Group(name="leader", run="./lead", resources=half),
        pb.Group(name="worker", tasks=3, command=["./work"], resources=half, env={"A": "b"}),
    ]
    typed = job(run="", groups=groups, on_task_success="end", on_task_failure="ignore")
    (found,) = await program.submit(typed)
    (status,) = await program.status(found)
    assert dict(status.tasks) == {"PLACED": 4}
    stored = program.control.loop.state.jobs[JobId(found)]
    assert [(group.name, group.tasks) for group in stored.kind.shape.groups] == [("leader", 1), ("worker", 3)]
    assert (stored.terms.on_task_failure, stored.terms.on_task_success) == ("ignore", "end")
    spec = (await program.control.specs.get([stored.spec]))[stored.spec]
    assert spec.groups == (GroupWork(Shell("./lead")), GroupWork(Argv(("./work",)), {"A": "b"}))


async def test_a_typed_job_may_say_where_its_tasks_start(program: Program) -> None:
    await program.join_gpus()
    typed = job(
        tasks=2,
        within=pb.Within(level="zone"),
        spread=pb.Spread(over="node", most=2, exact=True),
        exclusive="node",
        pin="socket",
        gpu_link="nvlink",
        resources=pb.Resources(cpu=1, gpu=2),
    )
    wish = job(tasks=2, within=pb.Within(level="zone", preferred=True), spread=pb.Spread(over="rack"))
    jobs = await program.submit(typed, wish)
    asked, wished = (program.control.loop.state.jobs[JobId(each)].kind.shape.topology for each in jobs)
    assert asked == Topology("zone", False, "node", 2, True, True, "socket", "nvlink")
    assert [dict(status.tasks) for status in await program.status(*jobs)] == [{"PLACED": 2}, {}]
    assert wished == Topology(within="zone", preferred=True, spread="rack")


async def test_groups_of_a_typed_job_may_have_cores_of_their_own(program: Program) -> None:
    await program.join_gpus()
    groups = [
        pb.Group(name="leader", run="./lead"),
        pb.Group(
            name="worker", run="./work", pin="numa", gpu_link="any", resources=pb.Resources(cpu=1, gpu=2)
        ),
    ]
    (found,) = await program.submit(job(run="", groups=groups))
    shape = program.control.loop.state.jobs[JobId(found)].kind.shape
    assert [(group.pin, group.link) for group in shape.groups] == [("", ""), ("numa", "any")]


async def test_a_typed_job_names_whom_to_tell(program: Program) -> None:
    notify = [pb.Notify(to="ada@example.org"), pb.Notify(to="bob@example.org", on=["begin", "fail"])]
    (found,) = await program.submit(job(notify=notify))
    digest = program.control.loop.state.jobs[JobId(found)].spec
    spec = (await program.control.specs.get([digest]))[digest]
    assert spec.notify == (
        Notify("ada@example.org"),
        Notify("bob@example.org", (When.BEGIN, When.FAIL)),
    )
    code, told, _ = await refused(program.submit(job(notify=[pb.Notify(to="a b")])))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "neither a mail address nor the name of a webhook" in told


async def test_a_typed_job_may_name_a_reservation(program: Program) -> None:
    code, told, _ = await refused(program.submit(job(reservation="none-such")))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "none-such" in told


async def test_a_level_that_does_not_exist_is_refused_with_those_that_do(program: Program) -> None:
    for unknown in (job(tasks=2, within=pb.Within(level="row")), job(tasks=2, spread=pb.Spread(over="row"))):
        code, told, _ = await refused(program.submit(unknown))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "there is no level row; the levels are zone, rack, node" in told


async def test_problems_with_where_tasks_start_name_their_field(program: Program) -> None:
    bad = (
        job(tasks=2, within=pb.Within()),
        job(tasks=2, within=pb.Within(preferred=True)),
        job(tasks=2, spread=pb.Spread(most=2)),
        job(tasks=2, spread=pb.Spread(over="node", most=2**31)),
        job(exclusive="rack"),
        job(pin="planet"),
        job(pin="core", resources=pb.Resources(cpu=0.5)),
        job(gpu_link="nvlink"),
        job(run="", groups=[pb.Group(name="a", run="x", pin="planet")]),
    )
    _, _, trailing = await refused(program.submit(*bad))
    problems = pb.Problems.FromString(trailing[PROBLEMS])
    assert [each.path for each in problems.problems] == [
        "jobs[0].spec.within",
        "jobs[1].spec.within",
        "jobs[2].spec.spread",
        "jobs[3].spec.spread.most",
        "jobs[4].spec.exclusive",
        "jobs[5].spec.pin",
        "jobs[6].spec.pin",
        "jobs[7].spec.gpu_link",
        "jobs[8].spec.groups[0].pin",
    ]


async def test_problems_with_gangs_name_their_field(program: Program) -> None:
    bad = (
        job(tasks=3, most_tasks=2),
        job(run="", groups=[pb.Group(name="a", run="x"), pb.Group(name="a", run="x")]),
        job(groups=[pb.Group(name="a", run="x")]),
        job(tasks=2, on_task_failure="panic"),
        job(run="", groups=[pb.Group(run="x")]),
    )
    _, _, trailing = await refused(program.submit(*bad))
    problems = pb.Problems.FromString(trailing[PROBLEMS])
    assert [each.path for each in problems.problems] == [
        "jobs[0].spec.tasks",
        "jobs[1].spec.groups[1].name",
        "jobs[2].spec.run",
        "jobs[3].spec.on_task_failure",
        "jobs[4].spec.groups[0].name",
    ]


async def test_a_document_says_all_that_a_job_file_can(program: Program) -> None:
    (found,) = await program.submit(document(burst="never", max_cost=5, retry={"exit": 2}))
    assert program.control.loop.state.jobs[JobId(found)].terms.max_cost == 5 * MONEY


async def test_jobs_keep_their_order_and_wait_for_each_other(program: Program) -> None:
    first, second = await program.submit(job("first"), job("second", after=["first"]))
    states = [status.state for status in await program.status(first, second)]
    assert states == [S.JOB_STATE_PLACED, S.JOB_STATE_HELD]


async def test_a_key_is_submitted_once(program: Program) -> None:
    first = await program.submit(job(key="once"))
    assert await program.submit(job(key="once")) == first
    code, told, _ = await refused(program.submit(job("other", key="once")))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "use a new key" in told


async def test_all_problems_are_in_the_details_and_nothing_is_taken(program: Program) -> None:
    bad = (
        job(resources=pb.Resources(cpu=-1)),
        job(),
        document(walltime="soon", priority="high"),
        pb.NewJob(document="{"),
        job(run=""),
    )
    code, told, trailing = await refused(program.submit(*bad))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert told.startswith("5 problems; the first is jobs[0].spec.resources.cpu")
    problems = pb.Problems.FromString(trailing[PROBLEMS])
    assert [each.path for each in problems.problems] == [
        "jobs[0].spec.resources.cpu",
        "jobs[2].spec.priority",
        "jobs[2].spec.walltime",
        "jobs[3].document",
        "jobs[4].spec",
    ]
    assert problems.more == 0
    assert program.control.loop.state.jobs == {}


async def test_details_are_bounded(program: Program) -> None:
    code, _, trailing = await refused(
        program.submit(*[document(nonsense_of_mine="x" * 200) for _ in range(500)])
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    problems = pb.Problems.FromString(trailing[PROBLEMS])
    assert 0 < len(problems.problems) < 500
    assert problems.more > 0


@pytest.mark.parametrize("method", ["submit", "status", "cancel"])
async def test_nothing_is_not_a_list_of_jobs(program: Program, method: str) -> None:
    code, told, _ = await refused(getattr(program, method)())
    assert (code, told) == (grpc.StatusCode.INVALID_ARGUMENT, "jobs: is empty; give at least one job")


async def test_what_is_not_there_is_not_found(program: Program) -> None:
    for call in (
        program.status("nobody"),
        program.cancel("nobody"),
        program.status("no\nname"),
        program.watch("nobody").read(),
    ):
        assert (await refused(call))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_name_of_several_jobs_is_a_precondition(program: Program) -> None:
    await program.submit(job("twin"), job("twin"))
    code, told, _ = await refused(program.status("twin"))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "twin" in told


async def test_jobs_are_cancelled_all_or_none(program: Program) -> None:
    placed, queued = await program.submit(job("placed"), job("queued", resources=pb.Resources(cpu=2)))
    code, _, _ = await refused(program.cancel(queued, "nobody"))
    assert code is grpc.StatusCode.NOT_FOUND
    assert (await program.status(queued))[0].state == S.JOB_STATE_QUEUED
    assert await program.cancel(queued) == [queued]
    (status,) = await program.status(queued)
    assert status.state == S.JOB_STATE_CANCELLED
    assert status.reason.code == "cancelled"
    assert (await program.status(placed))[0].cluster == "onprem"


async def test_a_server_that_cannot_write_says_when_to_ask_again(program: Program) -> None:
    program.control.loop.problem = "the disk is full"
    code, told, trailing = await refused(program.submit(job()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "the disk is full" in told
    assert int(trailing[RETRY_AFTER]) > 0


async def test_a_fault_of_ours_is_not_shown(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveCommands, "job", None)
    code, told, _ = await refused(program.status("train"))
    assert code is grpc.StatusCode.INTERNAL
    assert told.startswith("internal server error; the server logged it as ")


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", grpc.StatusCode.UNAUTHENTICATED),
        ("wrong", grpc.StatusCode.UNAUTHENTICATED),
        ("agent", grpc.StatusCode.PERMISSION_DENIED),
    ],
)
async def test_who_may_not_is_refused(program: Program, token: str, code: grpc.StatusCode) -> None:
    for call in (
        program.submit(job(), token=token),
        program.status("x", token=token),
        program.cancel("x", token=token),
        program.watch(token=token).read(),
    ):
        assert (await refused(call))[0] is code


async def test_a_token_of_a_project_knows_no_other_jobs(program: Program) -> None:
    (other,) = await program.submit(job("other"))
    (own,) = await program.submit(job("own"), token="vision")
    (status,) = await program.status(own, token="vision")
    assert (status.project, status.user) == ("vision", "mira")
    for call in (program.status(other, token="vision"), program.cancel(other, token="vision")):
        assert (await refused(call))[0] is grpc.StatusCode.NOT_FOUND
    code, _, _ = await refused(program.submit(job(project="theirs"), token="vision"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    code, _, _ = await refused(program.watch(project="theirs", token="vision").read())
    assert code is grpc.StatusCode.PERMISSION_DENIED
    watching = program.watch(token="vision", after=0)
    assert {change.job for change in await read(watching, 2)} == {own}
    watching.cancel()


async def test_only_the_owner_cancels_a_job_and_a_reader_only_reads(program: Program) -> None:
    (own,) = await program.submit(job("own"), token="vision")
    code, told, _ = await refused(program.cancel(own, token="other"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert told == (
        f"{own} (own) belongs to mira, and you are bob; "
        "only mira, a maintainer of project vision or an admin may cancel it"
    )
    for call in (program.cancel(own, token="reader"), program.submit(job(), token="reader")):
        code, told, _ = await refused(call)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert told == "a token of role read may not do this; use one of role submit"
    (seen,) = await program.status(own, token="reader")
    assert seen.name == "own"
    assert await program.cancel(own, token="vision") == [own]


async def test_a_watch_ends_with_its_token(program: Program) -> None:
    watching = program.watch(token="vision")
    await watching.read()
    program.known.revoked.add("t1")
    await program.submit(job("own", project="vision"))
    code, told, _ = await refused(watching.read())
    assert (code, told) == (grpc.StatusCode.UNAUTHENTICATED, "the token is no longer valid")


async def test_jobs_are_watched_from_what_they_are_to_their_end(program: Program) -> None:
    one, two = await program.submit(job("one"), job("two", resources=pb.Resources(cpu=2)))
    watching = program.watch(one, "two")
    first = await watching.read()
    assert [(change.job, change.state) for change in first.changes] == [
        (one, S.JOB_STATE_PLACED),
        (two, S.JOB_STATE_QUEUED),
    ]
    await program.submit(job("unwatched"))
    await program.start(one)
    await program.end(one, 3)
    await program.cancel(two)
    told = [(change.job, change.state) for change in await rest(watching)]
    assert told == [(one, S.JOB_STATE_RUNNING), (one, S.JOB_STATE_FAILED), (two, S.JOB_STATE_CANCELLED)]


async def test_a_job_that_its_cluster_moves_is_told_with_its_node(program: Program) -> None:
    lab = ClusterSpec(ClusterName("lab"), "kubernetes", Role.OWNED)
    k1, k2 = NodeName("k1"), NodeName("k2")
    propose, jobs = program.control.propose, program.control.loop.state.jobs
    await propose(StartEpoch(program.control.loop.epoch, (lab,), PolicySet()))
    nodes = tuple(SeenNode(name, Resources(2000), Resources()) for name in (k1, k2))
    await propose(SeeNodes(lab.name, nodes, whole=True))
    await propose(SeeCluster(lab.name, ClusterHealth.READY))
    own, theirs = await program.submit(job("own", project="vision"), job("theirs"))
    watching = program.watch(token="vision", after=program.control.loop.gate.durable)
    leases = tuple(jobs[JobId(each)].lease for each in (own, theirs))
    await propose(SeeBound(lab.name, leases, ((k2,), (k2,))))
    await propose(Started(DRIVER, leases[0], 0))
    await propose(SeeBound(lab.name, leases, ((k1,), (k1,))))
    assert [(change.job, change.state, change.node) for change in await read(watching, 3)] == [
        (own, S.JOB_STATE_PLACED, "k2"),
        (own, S.JOB_STATE_RUNNING, ""),
        (own, S.JOB_STATE_RUNNING, "k1"),
    ]
    watching.cancel()


async def test_how_a_job_ended_is_told(program: Program) -> None:
    (one,) = await program.submit(job("one"))
    watching = program.watch(one)
    await watching.read()
    await program.start(one)
    await program.end(one, 3)
    change = (await read(watching, 2))[-1]
    assert (change.exit_code, change.attempt, change.reason.code) == (3, 1, "exited")
    assert change.at.seconds > 0


async def test_a_watch_goes_on_after_a_revision(program: Program) -> None:
    (one,) = await program.submit(job("one"))
    watching = program.watch(one)
    seen = (await watching.read()).revision
    watching.cancel()
    await program.start(one)
    await program.end(one)
    again = program.watch(one, after=seen)
    told = [change.state for change in await rest(again)]
    assert told[-1] == S.JOB_STATE_SUCCEEDED


async def test_a_job_that_ended_before_is_told_at_once(program: Program) -> None:
    (one,) = await program.submit(job("one"))
    await program.start(one)
    await program.end(one)
    revision = program.control.loop.gate.durable
    for archived in (False, True):
        if archived:
            await program.control.archive()
        changes = await rest(program.watch(one, after=revision))
        assert [change.state for change in changes] == [S.JOB_STATE_SUCCEEDED]


async def test_a_project_is_watched(program: Program) -> None:
    watching = program.watch(project="vision")
    assert not (await watching.read()).changes
    await program.submit(job("theirs"))
    (own,) = await program.submit(job("own", project="vision"))
    assert [(change.job, change.state) for change in await read(watching, 2)] == [
        (own, S.JOB_STATE_QUEUED),
        (own, S.JOB_STATE_PLACED),
    ]
    watching.cancel()


async def test_members_of_arrays_are_told_and_those_that_never_start_as_ranges(program: Program) -> None:
    (array,) = await program.submit(job("array", array="1-10"))
    whole, member = program.watch(array, after=0), program.watch(f"{array}.7")
    await member.read()
    await program.cancel(array)
    for each in (f"{array}.1", f"{array}.2"):
        await program.end(each)
    told = await rest(whole)
    assert told[0].job == array
    assert {change.job for change in told if change.state == S.JOB_STATE_PLACED} == {
        f"{array}.1",
        f"{array}.2",
    }
    assert [change.members for change in told if change.members] == ["3-10"]
    assert (told[-1].job, told[-1].state) == (array, S.JOB_STATE_CANCELLED)
    (last,) = await rest(member)
    assert (last.job, last.members, last.state) == (array, "3-10", S.JOB_STATE_CANCELLED)


async def test_many_changes_come_in_few_messages(program: Program) -> None:
    watching = program.watch()
    await watching.read()
    await program.submit(*[job(f"j{number}") for number in range(1200)])
    replies: list[pb.WatchJobsReply] = []
    async with asyncio.timeout(10):
        while sum(len(reply.changes) for reply in replies) < 1202:
            replies.append(await watching.read())
    assert len(replies) <= 4
    assert [reply.revision for reply in replies] == sorted({reply.revision for reply in replies})
    watching.cancel()


async def test_a_revision_that_was_not_reached_is_refused(program: Program) -> None:
    code, told, trailing = await refused(program.watch(after=10**6).read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "is in the future" in told
    assert pb.Problems.FromString(trailing[PROBLEMS]).problems[0].path == "after"


async def test_history_that_is_gone_is_told(program: Program) -> None:
    await program.submit(job("one"))
    await program.control.loop.checkpoints.write()
    await program.control.store.journal.compact(program.control.loop.applied, program.control.loop.epoch)
    code, told, _ = await refused(program.watch(after=1).read())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "was deleted" in told
