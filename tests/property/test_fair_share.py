"""Projects that compete get their shares; lanes ranked by project come in the order that sorting all of them gives."""

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.core.learned.usage import Meter
from spillover.core.proposals import Archived
from spillover.core.records.jobs import Kind
from spillover.deciding.explain.explain import explain
from spillover.deciding.queue.lanes import Entry, Lane
from spillover.deciding.queue.ranking import RankedJobQueue, Ranking
from spillover.model.ids import JobId
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.tiers import examples


def fair(shares: str = "", *, backfill: str = "out_of_order", half_life: int = 60 * MINUTE) -> PolicySet:
    order = Choice("fair_share", {"half_life": half_life, "shares": shares})
    return PolicySet(order=order, backfill=Choice(backfill), wait=Choice("never"))


ALWAYS = 4
"""Jobs of each project that wait."""


def compete(world: World, runtimes: dict[str, int], minutes: int) -> dict[str, int]:
    """Each project always has jobs waiting, and each job runs so many minutes; returns the minutes that each got."""
    ends: dict[str, int] = {}
    got = dict.fromkeys(runtimes, 0)
    numbers = count()
    for minute in range(minutes):
        ended = [job for job, end in ends.items() if end <= minute]
        for job in ended:
            got[world.job(job).kind.project] += runtimes[world.job(job).kind.project]
            world.finish(job)
            del ends[job]
        world.propose(Archived(tuple(map(JobId, ended))))  # or every step would check all jobs that ever ran
        for project in runtimes:
            waiting = [job for job in world.state.jobs.values() if job.state == "QUEUED"]
            missing = ALWAYS - sum(job.kind.project == project for job in waiting)
            new = [a_job(f"{project}-{next(numbers)}").project(project) for _ in range(missing)]
            if new:
                world.submit(*new)
        for job in world.placed():
            ends.setdefault(job, minute + runtimes[world.job(job).kind.project])
        world.wait(seconds=60)
    return got


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(
    weights=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    runtimes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    cpus=st.integers(1, 3),
    backfill=st.sampled_from(["out_of_order", "strict"]),
)
def test_projects_that_compete_get_their_shares(
    weights: tuple[int, int], runtimes: tuple[int, int], cpus: int, backfill: str
) -> None:
    first, second = weights
    world = World(load, fair(f"p={first};q={second}", backfill=backfill))
    world.agent("n1", cpus=cpus)
    got = compete(world, {"p": runtimes[0], "q": runtimes[1]}, 360)
    share = got["p"] / (got["p"] + got["q"])
    assert share == pytest.approx(first / (first + second), abs=0.06)
    meter = Meter(world.state, world.now)
    assert meter.used("p") * second == pytest.approx(meter.used("q") * first, rel=0.6)


def test_a_project_that_used_nothing_comes_first_and_within_it_priority() -> None:
    world = World(load, fair())
    world.agent("n1", cpus=1)
    world.submit(*[a_job(f"p-{number}").project("p") for number in range(3)])
    world.wait(seconds=120)
    world.submit(a_job("q-0").project("q"), a_job("q-1").project("q").priority(3))
    world.finish("p-0")
    assert world.placed() == ["q-1"]
    ahead = {
        job.id: explain(world.engine, job).ahead for job in world.state.jobs.values() if job.state == "QUEUED"
    }
    assert ahead == {"q-0": 0, "p-1": 1, "p-2": 2}


def test_only_projects_that_have_jobs_waiting_are_ranked() -> None:
    world = World(load, fair())
    world.agent("n1", cpus=100)
    world.submit(*[a_job(f"once-{number}").project(f"p{number}") for number in range(50)])
    world.wait(seconds=60)
    for number in range(50):
        world.finish(f"once-{number}")
    world.submit(a_job("large").project("q").cpus(99), a_job("waits").project("r").cpus(99))
    ranking = world.engine.index.ranking
    assert ranking is not None
    assert sorted(ranking.ranks) == ["q", "r"]
    world.submit(a_job("more").project("p7").cpus(99))
    assert explain(world.engine, world.job("more")).ahead == 1
    assert sorted(ranking.ranks) == ["p7", "r"]
    world.wait(seconds=600)
    assert len(ranking.ranks) <= 2


def test_in_strict_order_a_project_moves_up_by_time_alone() -> None:
    """A large job that does not fit holds its project's place only until the other project has used less of its share."""
    world = World(load, fair("p=1;q=1", backfill="strict"))
    world.agent("n1", cpus=3)
    world.submit(a_job("q-runs").project("q"))
    world.wait(seconds=600)
    world.finish("q-runs")
    world.submit(a_job("p-runs").project("p"))
    world.submit(a_job("p-large").project("p").cpus(3), a_job("q-small").project("q"))
    assert world.placed() == ["p-runs"], "p has used less, and its next job does not fit"
    world.wait(seconds=900)
    assert world.placed() == ["p-runs", "q-small"]


keys = st.integers(-2, 2)
lanes = st.lists(st.tuples(st.sampled_from("pqrs"), st.lists(keys, max_size=4)), max_size=12)


@settings(max_examples=examples(100))
@given(
    lanes=lanes,
    many=st.booleans(),
    gone=st.lists(st.integers(0, 40), max_size=20),
    ranks=st.dictionaries(st.sampled_from("pqrs"), st.integers(0, 2)),
)
def test_ranked_lanes_come_as_if_all_were_sorted(
    lanes: list[tuple[str, list[int]]], many: bool, gone: list[int], ranks: dict[str, int]
) -> None:
    world = World(load, fair())
    ranking = Ranking(world.state, world.engine.policies)
    alive: dict[str, None] = {}
    line = RankedJobQueue(lambda _, entry: entry[2] in alive, ranking)
    numbers = count()
    entries: list[tuple[str, Lane, Entry]] = []
    for serial, (project, keys) in enumerate(lanes * (20 if many else 1)):
        lane = Lane(Kind(Shape(Resources(serial)), "default", project), serial)
        for key in keys:
            number = next(numbers)
            entry = (key, number, JobId(f"job-{number}"))
            alive[entry[2]] = None
            entries.append((project, lane, entry))
            line.push(lane, entry)
    for number in gone:
        if number < len(entries):
            _, lane, entry = entries[number]
            alive.pop(entry[2], None)
            line.settle(lane)
    ranking.ranks |= dict.fromkeys("pqrs", 0) | ranks
    left = sorted(
        (((ranks.get(project, 0), entry[0]), *entry[1:]), lane)
        for project, lane, entry in entries
        if entry[2] in alive
    )
    heads = {lane: entry for entry, lane in reversed(left)}
    assert list(line.lanes()) == sorted((entry, lane) for lane, entry in heads.items())
    assert line.awake() == list(line.lanes())
    for lane in heads:
        assert list(line.jobs(lane)) == [entry for entry, each in left if each is lane]


def test_what_is_past_the_end_of_the_queue_is_rented_first_of_those_who_used_most() -> None:
    order = Choice("fair_share", {"half_life": 30 * MINUTE})
    wait = Choice("constant", {"wait": 3600 * SECOND, "max_queue": 2})
    world = World(load, PolicySet(order=order, wait=wait))
    world.agent("n1", cpus=1)
    world.agent("v1", cpus=8, cluster="cloud")
    world.submit(a_job("p-0").project("p"))
    world.wait(seconds=120)
    world.submit(a_job("p-1").project("p"), a_job("q-0").project("q"), a_job("q-1").project("q"))
    assert {job: world.where(job) for job in ("p-1", "q-0", "q-1")} == {
        "p-1": "cloud/v1",
        "q-0": None,
        "q-1": None,
    }
