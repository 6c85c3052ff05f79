"""A timeline gives nothing twice, and finds the first span that a naive calendar finds."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from random import Random

import pytest
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity import gang_spans
from spillover.deciding.capacity.amounts import CPU, Wants, fits
from spillover.deciding.capacity.calendar import SpanRoom
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.counts import opened
from spillover.deciding.capacity.future import Group, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.matching import choose
from spillover.deciding.capacity.profile import Profile, Profiles
from spillover.deciding.capacity.spans import Ask, Booking, Release
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.protocols import Place
from spillover.model.cluster import ClusterSpec, Role, Taint
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.policies.place import WorstFit
from tests.support.tiers import few_of
from tests.support.timelines import PLACES, main, play


@pytest.mark.parametrize("first", few_of(4, range(0, 4000, 100)))
def test_a_timeline_answers_like_a_naive_calendar(first: int) -> None:
    for seed in range(first, first + 100):
        play(seed)


@pytest.mark.parametrize("seed", [5, 433, 1231])
def test_stories_agree_that_once_did_not(seed: int) -> None:
    play(seed, 30)


def lone(cluster: ClusterSpec, *nodes: Node) -> tuple[Capacity, Timeline]:
    """Machines on which nothing runs, and their future."""
    capacity = Capacity(cluster, 0)
    for node in nodes:
        capacity.refresh(node)
    return capacity, Timeline(0, [], lambda _: [])


AGENTS = ClusterSpec(ClusterName("c"), "agents", Role.OWNED, gangs=True)


def test_a_job_that_wants_a_whole_machine_waits_for_one_that_is_large_enough() -> None:
    small = Node(ClusterName("c"), NodeName("small"), 1, Resources(8000, 1), (), {}, 0, number=1)
    large = Node(ClusterName("c"), NodeName("large"), 1, Resources(8000, 4), (), {}, 0, number=2)
    cluster, timeline = lone(AGENTS, small, large)
    one = Shape(Resources(1000, 3), topology=Topology(exclusive=True))

    def earliest(shape: Shape, duration: int) -> Booking:
        found = timeline.earliest([Ask(Candidates(cluster, shape))], duration, PLACES[0], 0)
        assert found is not None
        timeline.take(found)
        return found

    assert [share.machine.name for share in earliest(Shape(Resources(8000, 1)), 3).shares] == ["small"]
    for start in (0, 5):
        found = earliest(one, 5)
        assert (found.start, [share.machine.name for share in found.shares]) == (start, ["large"])


def test_long_stories_agree_too() -> None:
    assert main(["--seeds", "20", "--steps", "60"]) == 0


@pytest.mark.parametrize("seed", range(200))
def test_machines_that_share_a_profile_have_what_each_alone_would_have(seed: int) -> None:
    dice = Random(seed)
    cluster = Capacity(ClusterSpec(ClusterName("c"), "agents", Role.OWNED, gangs=True), 0)
    for number in range(6):
        amount, status = Resources(dice.choice([8000, 8000, 9000])), dice.choice(["ready", "ready", "lost"])
        node = Node(ClusterName("c"), NodeName(f"n{number}"), 1, amount, (), {}, 0, status)
        node.taints = dice.choice([(), (), (), (Taint("k", "v", "NoSchedule"),)])
        cluster.refresh(node)
    few: list[list[tuple[int, Wants]]] = [[], [(5, ((CPU, 1000),))], [(5, ((CPU, 1000),)), (9, ((CPU, 10),))]]
    held = {machine: dice.choice(few) for machine in cluster.machines}
    started: dict[Machine, list[tuple[int, Wants]]] = {machine: [] for machine in cluster.machines}
    shared = Profiles(
        0, held.__getitem__, lambda machines: len({str(held[machine]) for machine in machines}) == 1
    )
    alone = {machine: Profile(0, opened(machine), held[machine]) for machine in cluster.machines}
    for _ in range(12):
        one = dice.choice(cluster.machines)
        until, wants = dice.randint(1, 12), ((CPU, dice.choice([10, 500])),)
        # Machines get their profiles one after the other, and some when others like them have changed theirs.
        if dice.random() < 0.2 and shared.begin(one, until, wants):
            started[one].append((until, wants))
            alone[one] = Profile(0, opened(one), [*held[one], *started[one]])
            continue
        asked = list(dict.fromkeys([one, *dice.sample(cluster.machines, 2)]))
        if dice.random() < 0.5:
            assert list(shared.of_all(asked)) == list(dict.fromkeys([shared.of(each) for each in asked]))
            continue
        start, sign = dice.randint(0, until - 1), dice.choice([-1, 1])
        shared.change(asked, start, until, wants, sign)
        for machine in asked:
            alone[machine].change(start, until, wants, sign)
    for machine in cluster.machines:
        profile = shared.of(machine)
        assert profile.takes_any == (machine.ready and not machine.taints)
        assert profile.machines.count(machine) == 1
        assert all(shared.of(each) is profile for each in profile.machines)
        for at in range(14):
            assert profile.at(at) == alone[machine].at(at)


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


@pytest.mark.parametrize("first", few_of(2, range(0, 2000, 100)))
def test_a_gang_gets_the_same_machines_whether_machines_or_profiles_are_counted(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 100):
        for found, plain in _searches(Random(seed), monkeypatch):
            assert (found is None) == (plain is None), seed
            if found is not None and plain is not None:
                assert (found.start, found.end, found.cluster) == (plain.start, plain.end, plain.cluster), (
                    seed
                )
                assert found.shares == plain.shares, seed


def _searches(dice: Random, patch: pytest.MonkeyPatch) -> Iterator[tuple[Booking | None, Booking | None]]:
    """Book and start gangs among others that run; yield what both ways to search find each time."""
    clusters = [_busy(dice, number) for number in range(dice.randint(1, 2))]
    held = [each for _, running in clusters for each in running]
    on: dict[Machine, list[tuple[int, Wants]]] = {}
    for until, group in held:
        for machine in group.machines:
            on.setdefault(machine, []).append((until, group.wants))

    def same_on(machines: Sequence[Machine]) -> bool:
        here = [on.get(machine, []) for machine in machines]
        return here.count(here[0]) == len(here)

    timeline = Timeline(
        0,
        [Release(until, group) for until, group in sorted(held, key=itemgetter(0))],
        lambda machine: on.get(machine, ()),
        same_on,
    )
    place = dice.choice([*PLACES, WorstFit()])
    sizes = [(dice.choice([500, 1000, 4000]), dice.randint(2, 12)) for _ in range(4)]
    asks = [
        [Ask(Candidates(cluster, Shape(Resources(cpu), tasks=tasks))) for cluster, _ in clusters]
        for cpu, tasks in sizes
    ]
    for _ in range(10):
        ask, duration = dice.choice(asks), dice.randint(1, 12)
        now = dice.random() < 0.5
        with patch.context() as plainly:
            plainly.setattr(gang_spans, "runs_anywhere", lambda _: False)
            plain = _search(timeline, ask, duration, place, now=now)
        found = _search(timeline, ask, duration, place, now=now)
        yield found, plain
        if found is None:
            continue
        if found.start == 0:
            for share in found.shares:
                found.cluster.take(share.machine, share.wants, share.tasks)
                timeline.begin(HeldCapacity(found.cluster, share.machine, share.held), found.end)
        else:
            timeline.take(found)


def _search(timeline: Timeline, asks: list[Ask], duration: int, place: Place, *, now: bool) -> Booking | None:
    """The first span from now on, without what earlier searches have found, or the one that starts now."""
    if now:
        return timeline.now_on(asks[0], duration, place)
    timeline._floors.clear()  # each of the two ways has to find its span by itself
    return timeline.earliest(asks, duration, place, 0)


def _busy(dice: Random, number: int) -> tuple[Capacity, list[tuple[int, Group]]]:
    """A cluster with gangs on it, of which each holds the same on its machines."""
    cluster = Capacity(ClusterSpec(ClusterName(f"c{number}"), "agents", Role.OWNED, gangs=True), 0)
    for each in range(dice.randint(3, 12)):
        taints = (Taint("k", "v", "NoSchedule"),) if dice.random() < 0.1 else ()
        node = Node(cluster.name, NodeName(f"n{each}"), 1, Resources(4000), (), {}, 0, number=each + 1)
        node.status, node.taints = dice.choice(["ready", "ready", "ready", "ready", "lost"]), taints
        cluster.refresh(node)
    running: list[tuple[int, Group]] = []
    for _ in range(dice.randint(0, 8)):
        wants = cluster.layout.wants(Resources(dice.choice([1000, 2000, 4000])))
        room = [machine for machine in cluster.machines if fits(wants, machine.free)]
        chosen = tuple(dice.sample(room, min(len(room), dice.randint(1, 6))))
        if chosen:
            for machine in chosen:
                cluster.take(machine, wants)
            running.append((dice.randint(1, 12), Group(cluster, chosen, wants)))
    return cluster, running
