"""What jobs used, counted once wherever a job is, and what they left unused."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.controllers.archiving import finished_of
from spillover.control.views.efficiency import efficiency_of, hints
from spillover.control.views.usage import usage_report
from spillover.core.events import Usage
from spillover.core.proposals import Act, Change, Outcome, Result, Started, StartEpoch
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Shape, TaskGroup
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.archive import used_of
from spillover.testing.world import OWNED, RENTED
from spillover.wire.api import UsageReport
from tests.support.inside import Inside

GIB = 1 << 30


async def begin(control: Inside, cluster: str = "onprem") -> None:
    await control.propose(
        StartEpoch(control.loop.epoch, (OWNED, RENTED), PolicySet(wait=Choice("zero")), 0, ())
    )
    requests = AgentRequests(control.loop, Hub(), DAY)
    intro = Introduction(
        ClusterName(cluster), NodeName("n1"), Resources(16_000, 64 * GIB, 4), (), {}, 0, (), 0
    )
    await requests.register(intro)


async def start(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    await control.propose(Started(found.phase.key, found.lease, 0))


async def end(
    control: Inside, job: str, usage: Usage, code: int | None = 0, outcome: Outcome = Outcome.EXITED
) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running)
    await control.propose(Result(found.phase.key, found.lease, outcome, code, None, usage, 0))


async def report(control: Inside, *by: str, since: int | None = None) -> UsageReport:
    return await usage_report(control.loop, control.store.archive, by, since, "USD")  # type: ignore[arg-type]


async def test_a_job_counts_once_whether_it_runs_has_ended_or_is_archived(control: Inside) -> None:
    await begin(control)
    asked = {"resources": {"cpu": 2, "memory": "4Gi", "gpu": 1}}
    done, tried, running = await control.submit("done", "tried", "running", retry={"exit": 1}, **asked)
    for job in (done, tried, running):
        await start(control, job)
    control.clock.pass_by(3600)
    await end(control, done, Usage(3600 * SECOND, 1800 * SECOND, GIB))
    await end(control, tried, Usage(3600 * SECOND), 1)
    await start(control, tried)
    control.clock.pass_by(3600)
    for archived in (False, True):
        if archived:
            await control.archive()
            assert JobId(done) not in control.loop.state.jobs
        (row,) = (await report(control, "user", "queue")).rows
        assert row.key == {"user": "ada", "queue": "default"}
        # Hours: done 1, tried 1 and 1 more, running 2; each with 2 CPUs, 4 GiB and a GPU.
        assert (row.jobs, row.owned.cpu, row.owned.gpu, row.owned.memory) == (3, 10.0, 5.0, 20.0)
        assert (row.rented.cpu, row.cost) == (0.0, 0.0)
        assert (row.measured.cpu, row.unused.cpu, row.unused.memory) == (2.0, 1.5, 3.0)
    now = control.loop.now()
    assert (await report(control, "project", since=now)).total.owned.cpu == 6.0
    assert (await report(control, "day")).total.jobs == 3


async def test_attempts_before_the_last_are_kept_with_the_job(control: Inside) -> None:
    await begin(control)
    (job,) = await control.submit("tried", retry={"exit": 1})
    await start(control, job)
    control.clock.pass_by(7200)
    await end(control, job, Usage(7200 * SECOND), 1)
    await control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))  # it was placed again
    await end(control, job, Usage(), None, Outcome.STOPPED)
    await control.archive()
    assert JobId(job) not in control.loop.state.jobs
    total = (await report(control, "cluster")).total
    assert (total.jobs, total.owned.cpu) == (0, 2.0)


async def test_rented_hours_and_their_cost_are_apart(control: Inside) -> None:
    await begin(control, "cloud")
    (job,) = await control.submit("rented", resources={"cpu": 4})
    await start(control, job)
    control.clock.pass_by(900)
    (row,) = (await report(control, "cluster")).rows
    assert (row.key, row.owned.cpu, row.rented.cpu) == ({"cluster": "cloud"}, 0.0, 1.0)
    assert row.cost > 0
    await end(control, job, Usage(900 * SECOND))
    await control.archive()
    (ended,) = (await report(control, "cluster")).rows
    assert ended.rented.cpu == 1.0
    assert ended.cost == pytest.approx(row.cost)


async def test_members_of_an_array_are_summed(control: Inside) -> None:
    await begin(control)
    (array,) = await control.submit("sweep", array="1-3", resources={"cpu": 2, "memory": "8Gi"})
    for index, peak in ((1, 1), (2, 2)):
        member = f"{array}.{index}"
        await start(control, member)
        control.clock.pass_by(100)
        await end(control, member, Usage(100 * SECOND, 50 * SECOND, peak * GIB))
        if index == 1:
            await control.archive()
    found = control.loop.state.jobs[JobId(array)]
    used = await efficiency_of(control.loop, control.store.archive, found)
    assert used is not None
    assert (used.members, used.cpu, used.cpu_asked_s, used.cpu_used_s) == (2, 0.25, 400.0, 100.0)
    assert (used.memory_used, used.memory_asked) == (2 * GIB, 8 * GIB)
    assert used.hints == [
        "asked for 8Gi, used at most 2Gi: --memory 3Gi would do",
        "asked for 2 CPU, used 0.5 on average: --cpu 1 would do",
    ]
    assert (
        await efficiency_of(control.loop, control.store.archive, control.loop.state.jobs[JobId(f"{array}.3")])
        is None
    )


@pytest.mark.parametrize(
    ("shape", "seconds", "cpu", "peak", "told"),
    [
        (Shape(Resources(1000, 16 * GIB)), 600, 600, int(1.2 * GIB), ["--memory 2Gi would do"]),
        (Shape(Resources(8000, 0)), 600, 660, 0, ["used 1.1 on average: --cpu 2 would do"]),
        (Shape(Resources(8000, 16 * GIB)), 600, 0, 0, []),
        (Shape(Resources(8000, 16 * GIB)), 30, 3, GIB, []),
        (Shape(Resources(4000, 2 * GIB)), 600, 2000, int(1.5 * GIB), []),
        (Shape(Resources(1000, 300 << 20)), 600, 600, 100 << 20, []),
        (Shape(Resources(2000, 8 * GIB), tasks=4), 600, 4800, GIB, ["asked for 8Gi"]),
    ],
)
def test_hints_are_given_where_much_was_wasted_and_measured(
    shape: Shape, seconds: int, cpu: int, peak: int, told: list[str]
) -> None:
    found = hints(shape, used_of(shape, seconds * SECOND, cpu * SECOND, peak), peak)
    assert len(found) == len(told)
    assert all(part in hint for part, hint in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("gpus", "busy", "told"),
    [
        (4, 0.2, ["asked for 4 GPUs, kept 0.8 busy on average: --gpu 1 would do"]),
        (4, 0.3, ["asked for 4 GPUs, kept 1.2 busy on average: --gpu 2 would do"]),
        (4, 0.6, []),
        (1, 0.04, ["its GPU was busy 4% of the time: check that the program uses it, or ask for none"]),
        (1, 0.3, []),
    ],
)
def test_hints_are_given_for_gpus_that_were_idle(gpus: int, busy: float, told: list[str]) -> None:
    shape, whole = Shape(Resources(1000, 0, gpus)), 600 * SECOND * gpus
    used = used_of(shape, 600 * SECOND, 600 * SECOND, 0, (int(whole * busy), whole, GIB))
    assert hints(shape, used, 0) == told
    assert hints(shape, used_of(shape, 600 * SECOND, 600 * SECOND, 0), 0) == [], "nobody measured"


async def test_a_walltime_that_was_far_too_long_is_told_of_a_success(control: Inside) -> None:
    await begin(control)
    for name, ran, code, told in (
        ("long", 200, 0, ["asked for a walltime of 2h, ran 3m20s: --walltime 10m would do"]),
        ("fair", 900, 0, []),
        ("short", 30, 0, []),
        ("broken", 200, 1, []),
    ):
        (job,) = await control.submit(name, walltime="2h")
        await start(control, job)
        await end(control, job, Usage(ran * SECOND, ran * SECOND), code)
        record = control.loop.state.jobs[JobId(job)]
        for found in (record, finished_of(record)):
            assert found is not None
            used = await efficiency_of(control.loop, control.store.archive, found)
            assert used is not None
            assert used.hints == told, name


def test_the_peak_of_one_of_unlike_tasks_says_nothing_about_the_others() -> None:
    groups = (TaskGroup("a", 1, Resources(1000, GIB)), TaskGroup("b", 3, Resources(1000, 4 * GIB)))
    shape = Shape(Resources(1000, GIB), tasks=4, groups=groups)
    assert used_of(shape, 600 * SECOND, 1, GIB).memory_measured == 0
