"""A timeline gives nothing twice, and finds the first span that a naive calendar finds."""

from random import Random

import pytest
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import CPU, Wants
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.matching import choose
from spillover.deciding.capacity.profile import Profile, Profiles
from spillover.deciding.capacity.timeline import SpanRoom, Timeline
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from tests.support.tiers import few_of
from tests.support.timelines import PLACES, main, play


@pytest.mark.parametrize("first", few_of(4, range(0, 4000, 100)))
def test_a_timeline_answers_like_a_naive_calendar(first: int) -> None:
    for seed in range(first, first + 100):
        play(seed)


def test_long_stories_agree_too() -> None:
    assert main(["--seeds", "20", "--steps", "60"]) == 0


@pytest.mark.parametrize("seed", range(100))
def test_machines_that_share_a_profile_have_what_each_alone_would_have(seed: int) -> None:
    dice = Random(seed)
    cluster = Capacity(ClusterSpec(ClusterName("c"), "agents", Role.OWNED, gangs=True), 0)
    for number in range(6):
        cluster.refresh(
            Node(ClusterName("c"), NodeName(f"n{number}"), 1, Resources(8000), (), {}, 0, "ready")
        )
    few: list[list[tuple[int, Wants]]] = [[], [(5, ((CPU, 1000),))], [(5, ((CPU, 1000),)), (9, ((CPU, 10),))]]
    held = {machine: dice.choice(few) for machine in cluster.machines}
    started: dict[Machine, list[tuple[int, Wants]]] = {machine: [] for machine in cluster.machines}
    shared = Profiles(0, held.__getitem__)
    alone = {machine: Profile(0, machine.free, held[machine]) for machine in cluster.machines}
    for _ in range(12):
        one = dice.choice(cluster.machines)
        until, wants = dice.randint(1, 12), ((CPU, dice.choice([10, 500])),)
        # Machines get their profiles one after the other, and some when others like them have changed theirs.
        if dice.random() < 0.2 and shared.begin(one, until, wants):
            started[one].append((until, wants))
            alone[one] = Profile(0, one.free, [*held[one], *started[one]])
            continue
        asked = [one, *dice.sample(cluster.machines, 2)]
        same = list(dict.fromkeys([each for each in asked if shared.of(each) is shared.of(one)]))
        start, sign = dice.randint(0, until - 1), dice.choice([-1, 1])
        shared.change(same, start, until, wants, sign)
        for machine in same:
            alone[machine].change(start, until, wants, sign)
    for machine in cluster.machines:
        for at in range(14):
            assert shared.of(machine).at(at) == alone[machine].at(at)


@pytest.mark.parametrize("seed", range(100))
def test_a_gang_that_may_run_anywhere_gets_what_the_search_with_levels_gives(seed: int) -> None:
    dice = Random(seed)
    cluster = Capacity(ClusterSpec(ClusterName("c"), "agents", Role.OWNED, gangs=True), 0)
    for number in range(6):
        amount = Resources(dice.choice([1000, 2000, 4000]))
        cluster.refresh(Node(ClusterName("c"), NodeName(f"n{number}"), 1, amount, (), {}, 0, "ready"))
    shape = Shape(Resources(1000), tasks=dice.randint(1, 14))
    fitting = {machine: dice.randint(0, 3) for machine in dice.sample(cluster.machines, 5)}
    place, tasks = dice.choice(PLACES), dice.choice([0, 2, 12])
    timeline = Timeline(0, (), lambda _: ())
    plain = choose(
        fitting, replace(shape, topology=Topology()), cluster, SpanRoom(timeline, 0, 9, place), tasks
    )
    assert choose(fitting, shape, cluster, SpanRoom(timeline, 0, 9, place), tasks) == plain
