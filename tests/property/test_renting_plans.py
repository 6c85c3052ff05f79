"""Plans of machines look only at what could matter: they decide the same as if they looked at everything."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.pool_proposals import SeeGone, SeeMade
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.deciding.renting import plan
from spillover.deciding.renting.demand import Demand
from spillover.deciding.renting.giving_back import GivenBack, give_back
from spillover.deciding.renting.room import Room, room_of
from spillover.model.cluster import Billing, ClusterSpec
from spillover.model.pools import MachineState
from spillover.model.topology import Topology
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.world import World
from tests.support.pools.worlds import CLOUD, LARGE, SMALL, in_state, rented, replayed, world
from tests.support.tiers import few_of

SEEDS = range(1, 101)


class BothRooms:
    """The room that a plan uses, and the room of all machines."""

    def __init__(self, fast: Room, plain: Room, counts: Counter[str]) -> None:
        self._fast, self._plain, self._counts = fast, plain, counts

    @property
    def used(self) -> dict[str, int]:
        """See Room."""
        return self._fast.used

    @property
    def starts(self) -> int:
        """See Room."""
        return self._fast.starts

    def take(self, demand: Sequence[Demand], latest: Callable[[Demand], int]) -> None:
        """Let jobs take what becomes free, in both ways."""
        others = [replace(each) for each in demand]
        before = sum(each.count for each in demand)
        self._plain.take(others, latest)
        self._fast.take(demand, latest)
        assert [each.count for each in demand] == [each.count for each in others]
        assert self._fast.used == self._plain.used
        self._counts["rooms"] += 1
        self._counts["taken"] += before - sum(each.count for each in demand)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let each plan of machines be made in both ways; count what was compared."""
    found: Counter[str] = Counter()

    def both_rooms(
        state: State, index: Any, now: int, earmarks: Any, wanted: Any, *, longer: bool
    ) -> BothRooms:
        fast = room_of(state, index, now, earmarks, wanted, longer=longer)
        plain = room_of(state, index, now, earmarks, longer=longer)
        return BothRooms(fast, plain, found)

    def both_ways(
        state: State,
        spec: ClusterSpec,
        machines: Sequence[RentedMachine],
        needed: dict[str, None],
        now: int,
        *,
        busy: int,
        steady: bool,
    ) -> GivenBack:
        fast = give_back(state, spec, machines, needed, now, busy=busy, steady=steady)
        looked = {each.id for each in machines}
        every = [each for each in state.live_machines(spec.name) if each.id in looked or each.is_busy]
        plain = give_back(state, spec, every, needed, now, steady=steady)
        assert fast == plain
        found["given back"] += bool(fast.drained or fast.ended)
        found["left out"] += len(every) - len(machines)
        return fast

    monkeypatch.setattr(plan, "room_of", both_rooms)
    monkeypatch.setattr(plan, "give_back", both_ways)
    return found


@pytest.mark.parametrize("seed", few_of(10, SEEDS))
def test_a_plan_decides_the_same_as_one_that_looks_at_all_machines(seed: int, counts: Counter[str]) -> None:
    dice = Random(seed)
    billing = Billing(dice.choice([SECOND, 10 * MINUTE, HOUR]))
    w = world(SMALL, LARGE, max=dice.randint(3, 12), min=dice.choice([0, 0, 1]), billing=billing)
    for number in range(60):
        happen(w, dice, number)
    assert counts["rooms"] > 5
    assert replayed(w).difference is None


def happen(w: World, dice: Random, number: int) -> None:
    """Let jobs come and end, machines boot and vanish, and time pass."""
    if dice.random() < 0.6:
        cpus, minutes = dice.choice([0.5, 1, 2, 4, 8, 16]), dice.choice([0.5, 2, 10, 60])
        job = rented(f"job{number}", cpus, minutes).memory(dice.choice([1, 4, 12, 40]) * 2**30)
        if dice.random() < 0.2:
            job = job.together(Topology(exclusive=True))
        w.submit(job.tasks(dice.choice([1, 1, 1, 3])))
    for machine in in_state(w, MachineState.WANTED):
        if dice.random() < 0.5:
            w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    for machine in in_state(w, MachineState.BOOTING):
        if dice.random() < 0.5:
            offer = w.state.machines[machine].offer
            cpus, memory = offer.resources.cpu / 1000, offer.resources.memory
            w.agent(machine, cpus=cpus, memory=memory, cluster="cloud", labels=offer.agent_labels)
    for name in w.placed():
        if dice.random() < 0.5:
            w.start(name)
            if dice.random() < 0.3:
                w.finish(name)
    ready = in_state(w, MachineState.READY)
    if ready and dice.random() < 0.1:
        w.propose(SeeGone(CLOUD, dice.choice(ready), "vanished"))
    for machine in in_state(w, MachineState.ENDING):
        w.propose(SeeGone(CLOUD, machine))
    w.wait(seconds=dice.choice([1, 30, 120, 600]))


def test_the_stories_meet_what_they_are_to_compare(counts: Counter[str]) -> None:
    for seed in range(1, 6):
        dice = Random(seed)
        w = world(SMALL, LARGE, max=8)
        for number in range(60):
            happen(w, dice, number)
    assert min(counts["taken"], counts["given back"], counts["left out"]) > 20, counts
