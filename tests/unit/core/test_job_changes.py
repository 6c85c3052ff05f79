"""Changes of jobs that wait or run: what they mean, and that a changed job is as if it had been submitted so."""

import pytest
from msgspec.structs import replace

from spillover.core.events import JobChanged, JobState, SeenNode
from spillover.core.proposals import (
    Act,
    ChangeJob,
    Dependency,
    Done,
    Refusal,
    RefusalKind,
    Reply,
    SeeCluster,
    SeeNodes,
)
from spillover.core.records.jobs import Job
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import JobSpec, Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueDefaults, QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World


def change(
    world: World, job: str, built: JobBuilder | JobSpec, *changed: str, after: tuple[str, ...] = ()
) -> Reply:
    """Change these fields of a job into those of another one."""
    spec = built if isinstance(built, JobSpec) else built.spec()
    was = world.job(job).spec
    waits = tuple(Dependency(JobId(each)) for each in after)
    return world.propose(ChangeJob(JobId(job), was, spec, b"changed", changed, "ada", waits))


def changed(
    world: World, job: str, built: JobBuilder | JobSpec, *fields: str, after: tuple[str, ...] = ()
) -> Job:
    reply = change(world, job, built, *fields, after=after)
    assert isinstance(reply, Done), reply
    return world.job(job)


def refused(reply: Reply) -> tuple[RefusalKind, str]:
    assert isinstance(reply, Refusal), reply
    return reply.kind, reply.message


def test_a_changed_job_is_as_if_it_had_been_submitted_so() -> None:
    other = (
        a_job("other")
        .cpus(3)
        .memory(2**30)
        .queue("long")
        .terms(walltime=60 * SECOND, estimate=30 * SECOND)
        .between(deadline=2**62)
    )
    world = World(load)
    world.submit(a_job("job"), other)
    spec = other.spec()
    job = changed(
        world,
        "job",
        replace(spec, name="new"),
        "name",
        "queue",
        "resources",
        "walltime",
        "estimate",
        "deadline",
    )
    as_submitted = world.job("other")
    assert (job.kind, job.terms, job.extra.deadline) == (as_submitted.kind, as_submitted.terms, 2**62)
    assert (job.name, job.spec, list(world.state.called("new"))) == ("new", b"changed", ["job"])
    assert list(world.state.called("job")) == []
    (event,) = world.happened(JobChanged)
    assert str(event).startswith(
        "changed by ada: name new, queue long, 3 CPU, 1Gi, walltime 1m, estimate 30s, deadline "
    )
    assert world.engine.index.lane_of(job) is world.engine.index.lane_of(as_submitted)


def test_a_job_that_became_smaller_starts_at_once() -> None:
    world = World(load)
    world.agent("n1", cpus=2)
    world.submit(a_job("big").cpus(4), a_job("next").cpus(4))
    assert world.where("big") is None
    changed(world, "next", a_job("next").cpus(1), "resources")
    assert (world.where("next"), world.where("big")) == ("onprem/n1", None)


def test_a_job_that_became_larger_does_not_start_by_its_old_size() -> None:
    world = World(load)
    world.submit(a_job("job").cpus(1))
    changed(world, "job", a_job("job").cpus(4), "resources")
    world.agent("n1", cpus=2)
    assert world.where("job") is None


def test_a_job_of_another_size_gets_a_wait_of_its_own_and_keeps_its_place_in_the_queue() -> None:
    world = World(load, PolicySet(wait=Choice("never")))
    world.submit(a_job("job"))
    before = world.job("job")
    arrived, first = before.arrived, before.latest
    world.wait(seconds=30)
    job = changed(world, "job", a_job("job").cpus(2), "resources")
    assert (job.arrived, first is None, job.latest is None) == (arrived, False, False)
    (event,) = world.happened(JobChanged)
    assert event.again
    changed(world, "job", a_job("renamed").cpus(2), "name")
    *_, last = world.happened(JobChanged)
    assert not last.again


def test_new_dependencies_hold_a_job_and_their_removal_releases_it() -> None:
    world = World(load)
    world.submit(a_job("first"), a_job("job"))
    job = changed(world, "job", a_job("job"), "after", after=("first",))
    assert (job.state, [each.job for each in job.extra.after]) == (JobState.HELD, ["first"])
    assert changed(world, "job", a_job("job"), "after").state is JobState.QUEUED
    assert not world.state.waiters
    changed(world, "job", a_job("job"), "after", after=("first",))
    world.agent("n1", cpus=2)
    world.start("first")
    world.finish("first")
    assert world.where("job") is not None


def test_dependencies_that_make_a_cycle_or_can_never_be_met_are_refused() -> None:
    world = World(load)
    world.agent("n1", cpus=1)
    world.submit(a_job("a"), a_job("b").after("a"), a_job("c").after("b"), a_job("failed").cpus(100))
    world.cancel("failed")
    world.act(Act.HOLD, "c")
    world.submit(a_job("d"))
    assert refused(change(world, "d", a_job("d"), "after", after=("d",))) == (
        RefusalKind.INVALID,
        "`after` has a cycle: d -> d",
    )
    changed(world, "d", a_job("d"), "after", after=("c",))
    kind, told = refused(change(world, "c", a_job("c"), "after", after=("d",)))
    assert (kind, told) == (RefusalKind.INVALID, "`after` has a cycle: c -> d -> c")
    kind, told = refused(change(world, "d", a_job("d"), "after", after=("failed",)))
    assert kind is RefusalKind.INVALID
    assert told.startswith("it could never start: ")


def test_the_throttle_of_an_array_holds_and_releases_what_waits() -> None:
    world = World(load)
    world.agent("n1", cpus=4)
    world.submit(a_job("many").array(1, 20))
    array = a_job("many").array(1, 20)
    assert len(world.state.members[JobId("many")]) == 4
    job = changed(world, "many", array.at_a_time(3), "throttle")
    assert job.state is JobState.HELD
    world.finish("many.1")
    assert world.state_of("many") is JobState.HELD
    world.finish("many.2")
    assert len(world.state.members[JobId("many")]) == 3
    assert changed(world, "many", array.at_a_time(0), "throttle").state is JobState.QUEUED
    assert len(world.state.members[JobId("many")]) == 4


def test_members_that_run_keep_what_they_have() -> None:
    world = World(load)
    world.agent("n1", cpus=4)
    world.submit(a_job("many").array(1, 20))
    changed(
        world, "many", a_job("many").array(1, 20).cpus(2).terms(walltime=60 * SECOND), "resources", "walltime"
    )
    member = world.job("many.1")
    assert (member.kind.shape.resources.cpu, member.terms.walltime, member.spec) == (1000, None, b"spec")
    world.finish("many.1")
    world.finish("many.2")
    assert world.job("many.5").kind.shape.resources.cpu == 2000
    assert world.job("many.5").spec == b"changed"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("resources",), "job is RUNNING, so only its walltime can be changed, not resources"),
        (("walltime", "queue"), "job is RUNNING, so only its walltime can be changed, not queue"),
    ],
)
def test_of_a_running_job_only_the_walltime_changes(fields: tuple[str, ...], told: str) -> None:
    world = World(load)
    world.agent("n1", cpus=4)
    world.submit(a_job("job").terms(walltime=60 * SECOND))
    assert (
        refused(change(world, "job", a_job("job").terms(walltime=90 * SECOND), "walltime"))[0]
        is RefusalKind.CONFLICT
    )
    world.start("job")
    assert refused(change(world, "job", a_job("job").cpus(2).queue("x"), *fields)) == (
        RefusalKind.CONFLICT,
        told,
    )
    job = changed(world, "job", a_job("job").terms(walltime=90 * SECOND), "walltime")
    assert (job.terms.walltime, job.is_limited) == (90 * SECOND, True)


def test_a_longer_walltime_moves_the_alarm_of_the_server() -> None:
    world = World(load)
    world.agent("n1", cpus=4)
    world.submit(a_job("job").terms(walltime=60 * SECOND))
    world.start("job")
    changed(world, "job", a_job("job").terms(walltime=600 * SECOND), "walltime")
    world.wait(seconds=300)
    assert world.state_of("job") is JobState.RUNNING
    changed(world, "job", a_job("job").terms(walltime=100 * SECOND), "walltime")
    world.wait(seconds=60)
    phase = world.job("job").phase
    assert getattr(phase, "stopping", None) is not None


def test_what_has_ended_or_is_about_to_start_cannot_be_changed() -> None:
    world = World(load)
    world.agent("n1", cpus=1)
    world.submit(a_job("placed"), a_job("over").cpus(9), a_job("many").array(1, 3).cpus(9))
    world.cancel("over")
    kind, told = refused(change(world, "placed", a_job("placed").cpus(2), "resources"))
    assert (kind, told[:36]) == (RefusalKind.CONFLICT, "placed is PLACED and about to start;")
    kind, told = refused(change(world, "over", a_job("over"), "resources"))
    assert (kind, told) == (RefusalKind.CONFLICT, "over has ended (CANCELLED) and cannot be changed")
    was = world.job("many").spec
    proposal = ChangeJob(JobId("many.2"), was, a_job("many").spec(), b"x", ("resources",), "ada")
    assert (
        refused(world.propose(proposal))[1] == "many.2 has not been placed yet; change its array many instead"
    )
    stale = ChangeJob(JobId("many"), b"other", a_job("many").spec(), b"x", ("resources",), "ada")
    assert refused(world.propose(stale))[0] is RefusalKind.STALE
    kind, told = refused(change(world, "many", a_job("many").array(1, 3), "after", after=("nobody",)))
    assert kind is RefusalKind.STALE


def test_a_queue_checks_a_changed_job_like_a_new_one() -> None:
    short = QueueSpec("short", walltime=10 * MINUTE, total=QueueLimits(queued=1))
    usual = QueueSpec("default", default=True, defaults=QueueDefaults())
    world = World(load, queues=(usual, short))
    world.submit(a_job("first").queue("short"), a_job("job"))
    long = a_job("job").queue("short").terms(walltime=3600 * SECOND)
    assert refused(change(world, "job", long, "queue", "walltime")) == (
        RefusalKind.INVALID,
        "job: a walltime of 1h is more than the 10m of queue short",
    )
    brief = a_job("job").queue("short").terms(walltime=60 * SECOND)
    kind, _ = refused(change(world, "job", brief, "queue", "walltime"))
    assert kind is RefusalKind.QUEUE_FULL
    world.cancel("first")
    assert changed(world, "job", brief, "queue", "walltime").kind.queue == "short"


def test_a_change_keeps_what_a_job_has_learned_about_nodes() -> None:
    world = World(load)
    world.submit(a_job("job"))
    job = world.job("job")
    kept = replace(job.kind, shape=replace(job.kind.shape, needs=("tape",)))
    world.state.jobs[job.id].kind = kept
    after = changed(world, "job", a_job("job").cpus(2), "resources")
    assert after.kind.shape == Shape(Resources(2000), ("tape",), runs=job.kind.shape.runs)


def test_a_running_job_gets_no_more_time_than_its_budget_pays_for() -> None:
    cloud = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
    budget = Budget(Of.PROJECT, "default", Per.MONTH, 500 * MONEY)
    world = World(load, PolicySet(wait=Choice("zero")), (OWNED, cloud), budgets=(budget,))
    world.agent("v1", cpus=4, cluster=cloud.name)
    world.submit(a_job("job").terms(walltime=60 * SECOND))
    world.start("job")
    assert refused(change(world, "job", a_job("job").terms(walltime=90 * SECOND), "walltime")) == (
        RefusalKind.CONFLICT,
        "a budget pays for 1m of this attempt of job; write 1m or less",
    )
    job = changed(world, "job", a_job("job").terms(walltime=30 * SECOND), "walltime")
    assert job.walltime == 30 * SECOND


def test_a_running_job_does_not_reach_into_a_reservation_of_its_machine() -> None:
    world = World(load)
    world.agent("n1", cpus=4)
    world.submit(a_job("job").terms(walltime=60 * SECOND))
    world.start("job")
    assert isinstance(world.reserve("upgrade", "n1", after=600, lasting=600), Done)
    kind, told = refused(change(world, "job", a_job("job").terms(walltime=900 * SECOND), "walltime"))
    assert kind is RefusalKind.CONFLICT
    assert told.startswith("a node of job is reserved as upgrade from ")
    assert (
        changed(world, "job", a_job("job").terms(walltime=300 * SECOND), "walltime").walltime == 300 * SECOND
    )


def test_the_walltime_of_what_runs_elsewhere_than_on_agents_stays() -> None:
    kube = ClusterSpec(ClusterName("kube"), "kubernetes", Role.OWNED)
    world = World(load, clusters=(kube,))
    seen = SeenNode(NodeName("k1"), Resources(4000, 2**40), Resources(0))
    world.propose(SeeCluster(kube.name, ClusterHealth.READY))
    world.propose(SeeNodes(kube.name, (seen,), whole=True))
    world.submit(a_job("job").terms(walltime=60 * SECOND))
    world.start("job")
    kind, told = refused(change(world, "job", a_job("job").terms(walltime=90 * SECOND), "walltime"))
    assert (kind, told) == (
        RefusalKind.CONFLICT,
        "job runs on kube, which is no cluster of agents, so its walltime cannot be changed",
    )
