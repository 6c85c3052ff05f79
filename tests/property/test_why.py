"""Apply what `spill why` names, and the next plan starts the job; what it says can never run does not start."""

from itertools import count

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from spillover.core.events import JobState
from spillover.core.proposals import Act
from spillover.core.records.jobs import Job, Placed, Queued, Running
from spillover.deciding.explain.explain import Explanation, explain
from spillover.model.job import Burst, On
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import (
    AfterJobs,
    BehindOthers,
    BeyondDepth,
    BurstRefused,
    GangUnsupported,
    Held,
    NoRoom,
    NotBefore,
    NotObserved,
    NotOffered,
    NotRented,
    TooBig,
    WaitNotOver,
)
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.tiers import examples

NAMES = [f"job{letter}" for letter in "abcdefghijkl"]
ORDERS = [
    "fifo",
    "fifo",
    "priority",
    "priority",
    "lifo",
    "sjf",
    "ljf",
    "edf",
    "slack",
    "fair_share",
    "fair_share",
]
LARGE = 64
WAIT = 30 * SECOND


@st.composite
def builders(draw: st.DrawFn, name: str, earlier: list[str]) -> JobBuilder:
    job = (
        a_job(name)
        .project(draw(st.sampled_from("pq")))
        .cpus(draw(st.sampled_from([1, 1, 2, 3, 9])))
        .gpus(draw(st.sampled_from([0, 0, 0, 1])))
        .priority(draw(st.integers(0, 2)))
        .burst(draw(st.sampled_from([Burst.AUTO, Burst.AUTO, *Burst])))
        .needing(*draw(st.sampled_from([(), (), (), ("gpu:a",), ("container", "gpu:a")])))
        .tasks(draw(st.sampled_from([1, 1, 1, 1, 2])))
    )
    if earlier and draw(st.sampled_from([True, False, False, False])):
        job = job.after(draw(st.sampled_from(earlier)), On.ANY)
    return job


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few machines, a few jobs that run on them, and some that wait."""
    world = World(
        load,
        PolicySet(
            order=Choice(draw(st.sampled_from(ORDERS))),
            backfill=Choice(draw(st.sampled_from(["strict", "out_of_order"]))),
            wait=draw(st.sampled_from([Choice("never"), Choice("zero"), Choice("constant", {"wait": WAIT})])),
            depth=draw(st.sampled_from([1, 2, 1000])),
        ),
    )
    for node in range(draw(st.integers(0, 3))):
        cluster = draw(st.sampled_from(["onprem", "cloud"]))
        offers = draw(st.sampled_from([(), (), ("container",), ("gpu:a",)]))
        world.agent(
            f"n{node}",
            cpus=draw(st.integers(1, 4)),
            gpus=draw(st.integers(0, 1)),
            cluster=cluster,
            offers=offers,
        )
    earlier: list[str] = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        job = draw(builders(name, earlier))
        if draw(st.sampled_from([True, False, False, False, False, False])):
            job = job.between(not_before=world.now + 10 * SECOND)
        world.submit(job)
        earlier.append(name)
        if draw(st.sampled_from([True, False, False, False, False])):
            world.act(Act.HOLD, name)
    return world


def why(world: World, job: str) -> Explanation:
    return explain(world.engine, world.job(job))


def queue(world: World) -> list[Job]:
    """Queued jobs in the order they are tried."""
    queued = [job for job in world.state.jobs.values() if type(job.phase) is Queued]
    return sorted(queued, key=world.engine.index.spot)


def has_place(world: World, job: str) -> bool:
    return isinstance(world.job(job).phase, Placed | Running)


fresh = (f"new{number}" for number in count())


def add_machine(
    world: World, job: str, cluster: str, *, offers: bool = True, cpus: float | None = None
) -> str:
    """A fresh machine that has just what the job asks for."""
    shape = world.job(job).kind.shape
    name = next(fresh)
    world.agent(
        name,
        cpus=shape.resources.cpu / 1000 if cpus is None else cpus,
        gpus=shape.resources.gpu if cpus is None else LARGE,
        cluster=cluster,
        offers=shape.needs if offers else ("container",),
    )
    return f"{cluster}/{name}"


def remove_ahead(world: World, job: str) -> None:
    ahead = why(world, job).ahead
    before = queue(world)[:ahead]
    assert job not in [each.id for each in before]
    world.act(Act.HOLD, *(each.id for each in before))


def hold_others(world: World, job: str) -> None:
    """Nobody else is to take the room that is made."""
    for each in list(world.state.jobs.values()):
        if each.state in {JobState.QUEUED, JobState.HELD} and each.id != job:
            world.act(Act.HOLD, each.id)


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(worlds(), st.integers(0, 11), st.data())
def test_what_the_reason_names_starts_the_job(world: World, pick: int, data: st.DataObject) -> None:
    waiting = [job.id for job in world.state.jobs.values() if job.state in {JobState.HELD, JobState.QUEUED}]
    assume(waiting)
    job = waiting[pick % len(waiting)]
    for _ in range(6):  # held, after others, before its time: one reason after the other
        said = why(world, job)
        reason = said.reason
        assert reason is not None
        event(type(reason).__name__)
        match reason:
            case Held():
                world.act(Act.RELEASE, job)
            case AfterJobs(jobs):
                for each in jobs:
                    world.cancel(each)
                    if has_place(world, each):
                        world.finish(each)
            case NotBefore(at):
                world.wait(seconds=(at - 1 - world.now) / SECOND)
                world.now = at - 1
                world.step()
                assert why(world, job).reason == reason
                world.now = at
                world.step()
            case _:
                break
        if has_place(world, job):
            return
    match reason:
        case NoRoom(_, clusters):
            remove_ahead(world, job)
            if not has_place(world, job):
                where = add_machine(world, job, data.draw(st.sampled_from(clusters)))
                assert world.where(job) == where
            assert has_place(world, job)
        case NotObserved(clusters):
            remove_ahead(world, job)
            add_machine(world, job, data.draw(st.sampled_from(clusters)))
            assert has_place(world, job)
        case BehindOthers(head):
            assert head == queue(world)[0].id
            remove_ahead(world, job)
            assert has_place(world, job)
        case BeyondDepth():
            remove_ahead(world, job)
            assert has_place(world, job)
        case WaitNotOver(clusters, at):
            assert at == said.spills_at
            hold_others(world, job)
            add_machine(world, job, clusters[0])
            world.now = at - 1
            world.step()
            assert not has_place(world, job)
            world.now = at
            world.step()
            assert has_place(world, job)
        case TooBig() | NotOffered() | GangUnsupported() | BurstRefused() | NotRented():
            never_starts(world, job, reason)
        case _:
            raise AssertionError(reason)


def never_starts(world: World, job: str, reason: object) -> None:
    """Room of the kinds that are there does not help; what the reason names does."""
    remove_ahead(world, job)
    for node in list(world.state.nodes.values()):
        for _ in range(2):
            name = next(fresh)
            world.agent(
                name,
                cpus=node.capacity.cpu / 1000,
                gpus=node.capacity.gpu,
                cluster=node.cluster,
                offers=node.offers,
            )
    world.wait(seconds=60)
    assert not has_place(world, job)
    assert why(world, job).reason is not None
    match reason:
        case TooBig() | NotOffered():
            shape = world.job(job).kind.shape
            cluster = "cloud" if shape.burst is Burst.ALWAYS else "onprem"
            hold_others(world, job)  # ranks of projects may have changed meanwhile
            add_machine(world, job, cluster)
            assert has_place(world, job)
        case BurstRefused(burst):
            hold_others(world, job)
            add_machine(world, job, "onprem" if burst == "never" else "cloud")
            assert has_place(world, job)
        case NotRented():
            hold_others(world, job)
            add_machine(world, job, "onprem")
            assert has_place(world, job)
        case _:
            pass


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(worlds(), st.integers(0, 11))
def test_a_job_spills_over_when_why_says_so_and_not_before(world: World, pick: int) -> None:
    waiting = [job.id for job in queue(world) if why(world, job.id).spills_at is not None]
    assume(waiting)
    job = waiting[pick % len(waiting)]
    spills_at = why(world, job).spills_at
    assert spills_at is not None
    hold_others(world, job)
    assume(not has_place(world, job))
    where = add_machine(world, job, "cloud")
    world.now = spills_at - 1
    world.step()
    assert not has_place(world, job)
    world.now = spills_at
    world.step()
    assert world.where(job) in {where, *(f"cloud/n{node}" for node in range(3))}
