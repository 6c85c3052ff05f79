"""Decisions compare few machines of pools: they choose the same as if they computed the bill of each."""

from collections import Counter
from collections.abc import Collection, Iterator
from random import Random

import pytest
from msgspec.structs import replace

from spillover.core.pool_proposals import SeeGone, SeeMade
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.renting import slots
from spillover.deciding.renting.bills import Bills
from spillover.deciding.renting.slots import Slot, Slots
from spillover.model.cluster import Billing
from spillover.model.job import Burst, Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineId, MachineState
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, START, World
from tests.support.pools.worlds import CLOUD, LARGE, SMALL, cluster, in_state, replayed
from tests.support.tiers import few_of

SEEDS = range(1, 101)
SPOT = replace(SMALL, spot=True, hour=150_000)
STEPS = (SECOND, MINUTE, 10 * MINUTE, HOUR)


def plainly_cheapest(
    found: Slots, candidates: Candidates, shape: Shape, runs: int, closed: Collection[int]
) -> int | None:
    """Compute what the job adds to every bill."""
    spec, places = candidates.cluster.spec, candidates.cluster.slots
    each = [
        (fresh(found, found.of(spec, places[index])).adds(shape, runs), score, index)
        for index, score in candidates.scores.items()
        if index not in closed
    ]
    return min(each)[2] if each else None


def fresh(found: Slots, slot: Slot) -> Slot:
    """Return a slot alike that shares no bill with others."""
    machine, bills = slot._machine, Bills(found.bills.state, found.bills.now)
    return Slot(bills, slot.spec, slot._place, machine, slot.busy, slot.ready)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let each choice be made in both ways, also among few machines; count the choices."""
    counted: Counter[str] = Counter()
    cheapest, by_busy = Slots.cheapest, Slots.by_busy

    def both(
        self: Slots, candidates: Candidates, shape: Shape, runs: int, closed: Collection[int]
    ) -> int | None:
        chosen = cheapest(self, candidates, shape, runs, closed)
        assert chosen == plainly_cheapest(self, candidates, shape, runs, closed)
        counted["chosen"] += chosen is not None
        counted["of several"] += len(candidates.scores) > 1
        return chosen

    def both_orders(self: Slots, candidates: Candidates, closed: Collection[int]) -> Iterator[Slot]:
        spec, places = candidates.cluster.spec, candidates.cluster.slots
        fitting = [self.of(spec, places[each]) for each in candidates.scores if each not in closed]
        plain = sorted(fitting, key=lambda each: (-each.busy, each.index))
        found = list(by_busy(self, candidates, closed))
        assert found == plain
        counted["orders"] += len(found) > 1
        return iter(found)

    monkeypatch.setattr(slots, "FEW", 0)
    monkeypatch.setattr(Slots, "cheapest", both)
    monkeypatch.setattr(Slots, "by_busy", both_orders)
    return counted


def played(seed: int) -> World:
    """Let jobs of many lengths come to a pool whose machines are of several ages and prices."""
    dice = Random(seed)
    billing = Billing(dice.choice(STEPS), dice.choice([0, MINUTE, 7 * MINUTE]))
    idle = dice.choice([None, None, 3 * MINUTE])
    spec = cluster(SMALL, LARGE, SPOT, max=12, min=dice.choice([0, 2]), billing=billing, idle=idle)
    w = World(load, PolicySet(wait=Choice("break_even", {"coefficient": 0.5})), (OWNED, spec))
    w.agent("n1", cpus=2)
    for number in range(60):
        happen(w, dice, number)
    return w


def happen(w: World, dice: Random, number: int) -> None:
    """Let jobs come and end, machines boot and vanish, and time pass."""
    for at in range(dice.choice([0, 1, 1, 6])):
        job = a_job(f"job{number}-{at}").cpus(dice.choice([0.5, 1, 2, 4])).memory(2**30)
        job = job.expected(seconds=dice.choice([7, 45, 300, 301, 1800, 5000]))
        if dice.random() < 0.2:
            job = job.between(deadline=w.now + dice.choice([30, 120]) * MINUTE)
        w.submit(job.burst(dice.choice([Burst.AUTO, Burst.ALWAYS])))
    for machine in in_state(w, MachineState.WANTED):
        if dice.random() < 0.5:
            made_at = w.now - dice.choice([0, 0, 700_000_001])
            w.propose(SeeMade(CLOUD, machine, f"i-{machine}", made_at))
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
    if ready and dice.random() < 0.05:
        w.propose(SeeGone(CLOUD, dice.choice(ready), "vanished"))
    for machine in in_state(w, MachineState.ENDING):
        w.propose(SeeGone(CLOUD, machine))
    w.wait(seconds=dice.choice([1, 30, 120, 600]))


@pytest.mark.parametrize("seed", few_of(10, SEEDS))
@pytest.mark.usefixtures("counts")
def test_the_machine_that_a_job_gets_is_that_to_whose_bill_it_adds_least(seed: int) -> None:
    assert replayed(played(seed)).difference is None


def test_the_stories_meet_what_they_are_to_compare(counts: Counter[str]) -> None:
    for seed in range(1, 6):
        played(seed)
    assert min(counts["chosen"], counts["of several"], counts["orders"]) > 20, counts


@pytest.mark.parametrize("seed", few_of(30, range(1, 501)))
def test_a_bill_grows_from_when_it_says_and_by_no_less_than_it_says(seed: int) -> None:
    dice = Random(seed)
    step = dice.choice(STEPS)
    spec = cluster(
        billing=Billing(step, dice.choice([0, MINUTE, 7 * MINUTE])), idle=dice.choice([None, MINUTE])
    )
    assert spec.pool is not None
    now = START + dice.randint(0, 3 * HOUR)
    made, busy = now - dice.randint(0, 2 * HOUR), now + dice.choice([0, dice.randint(0, 2 * HOUR)])
    offer = replace(SMALL, hour=dice.choice([1, 400_000, 97_000_001]))
    machine = RentedMachine(
        MachineId("cloud-1"), CLOUD, offer, MachineState.READY, made, made, now, made_at=made, joined_at=made
    )
    bill = Bills(State(), now).of(spec, spec.pool, machine, busy)
    if bill.free_until > busy:
        assert bill.adds(bill.free_until) == 0
    assert bill.adds(bill.free_until + 1) >= (offer.hour >= 400_000)
    for _ in range(20):
        end = bill.free_until + dice.choice([1, SECOND, dice.randint(1, 5 * HOUR)])
        assert bill.adds(end) >= bill.least(end)
