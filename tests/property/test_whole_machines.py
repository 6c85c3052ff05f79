"""Forecasts that only count machines give the same answers as those that look at each machine."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity, grouped
from spillover.deciding.forecast.ends import End
from spillover.deciding.forecast.starts import Outlook, Waiter, latecomers
from spillover.deciding.forecast.whole import whole_latecomers
from spillover.model.ids import JobId, NodeName, task_key
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND
from spillover.policies.place import BestFit, FirstFit, WorstFit
from spillover.testing.world import OWNED as FLAT
from tests.support.tiers import examples

OWNED = replace(FLAT, gangs=True)
WHOLE = Resources(4000, 4 << 30)
NOW = 1000 * SECOND


def an_outlook(random: Random, *, odd: bool) -> tuple[Outlook, dict[JobId, int]]:
    """Jobs of whole machines that run and wait; with `odd`, some take less, or some machines are unlike the others."""
    count = random.randint(1, 12)
    nodes = [
        Node(OWNED.name, NodeName(f"n{number}"), 1, WHOLE, (), {}, 0, number=number + 1)
        for number in range(count)
    ]
    if odd:
        for node in nodes:
            match random.randint(0, 9):
                case 0:
                    node.capacity = Resources(8000, 4 << 30)
                case 1:
                    node.status = "draining"
                case 2:
                    node.gangs = False
                case _:
                    pass
    free = nodes.copy()
    running: list[tuple[list[Node], Resources]] = []
    random.shuffle(free)
    while free and (len(running) < 1 or random.random() < 0.95):
        size = min(len(free), random.choice((1, 1, 2, 4)))
        held = random.choice((WHOLE, WHOLE, Resources(4000), Resources(3000, 1 << 30)))
        if odd and random.random() < 0.2:
            held = Resources(2000, 1 << 30)
        mine, free = free[:size], free[size:]
        if odd and random.random() < 0.2:
            free += mine[:1]  # another job may share it
        for rank, node in enumerate(mine):
            node.used += held
            node.holding[task_key(JobId(f"r{len(running)}"), 1, rank)] = held
        running.append((mine, held))
    cluster = Capacity(OWNED, SECOND)
    for node in nodes:
        cluster.refresh(node)
    ends = []
    for number, (mine, held) in enumerate(running):
        parts = tuple(
            [HeldCapacity(cluster, cluster.by_name[node.name], cluster.layout.held(held, 1)) for node in mine]
        )
        if odd and random.random() < 0.1:
            parts = ()  # it was prefetched
        at, began = NOW + random.randint(-20, 200) * SECOND, NOW - random.randint(0, 500) * SECOND
        ends.append(End(at, number, JobId(f"r{number}"), began, parts, grouped(parts) if parts else ()))
    least = len(free) + 1  # what fits now has started, but for tests of odd cases
    asked: tuple[Resources, ...] = (WHOLE, Resources(3000, 4 << 30), Resources(4000))
    if odd:
        asked, least = (*asked, Resources(2000, 1 << 30)), random.choice((1, least))
    waiters = [
        Waiter(
            JobId(f"w{number}"),
            Shape(random.choice(asked), tasks=random.randint(least, max(least, 6))),
            random.choice((1, 20, 60)) * SECOND,
            known=True,
            arrived=0,
            latest=FOREVER,
            many=random.choice((1, 1, 3)) if least == 1 else 1,
            rentable=True,
        )
        for number in range(random.randint(1, 12))
    ]
    limits = {
        each.job: random.choice((FOREVER, NOW + random.randint(1, 400) * SECOND, NOW + 10**6 * SECOND))
        for each in waiters
    }
    place = random.choice((FirstFit(), BestFit(), WorstFit()))
    ends.sort()
    return Outlook(NOW, NOW, waiters, {}, ends, {cluster.name: cluster}, place, strict=False), limits


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=examples(300))
def test_counting_whole_machines_gives_the_same_latecomers_as_looking_at_each(seed: int, most: int) -> None:
    outlook, limits = an_outlook(Random(seed), odd=False)
    found = whole_latecomers(outlook, limits, most)
    assert found is not None, "the fast path was not taken"
    assert found == latecomers(outlook, limits, most)


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=examples(300))
def test_where_machines_are_shared_or_unlike_counting_gives_the_same_or_no_answer(
    seed: int, most: int
) -> None:
    outlook, limits = an_outlook(Random(seed), odd=True)
    found = whole_latecomers(outlook, limits, most)
    assert found is None or found == latecomers(outlook, limits, most)
