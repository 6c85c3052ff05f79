"""Gangs on pools that have machines: no plan orders more than is missing, and what it counts on comes true."""

from collections import Counter
from random import Random

import pytest

from spillover.core.events import MachinesEarmarked, MachinesWanted
from spillover.core.pool_proposals import SeeMade
from spillover.core.records.jobs import Placed, Running
from spillover.core.records.machines import PoolRecord
from spillover.deciding.renting.offers import OpenOffer
from spillover.deciding.renting.reusing import _counted, _matched, _There
from spillover.model.pools import MachineId, MachineState
from spillover.model.units import SECOND
from spillover.testing.world import World
from tests.support.pools.worlds import CLOUD, GIB, SMALL, boot, cluster, in_state, rented, replayed, world
from tests.support.tiers import few_of

SEEDS = range(1, 201)
BOOT = 90 * SECOND


def warmed(dice: Random) -> World:
    """A pool with some machines, on which jobs run whose ends are known."""
    warm = dice.randint(1, 4)
    w = world(min=warm, max=warm + dice.randint(0, 4))
    w.step()
    boot(w, seconds=BOOT / SECOND)
    for number in range(dice.randint(0, 6)):
        w.submit(rented(f"a{number}", dice.choice([1, 2, 4]), dice.choice([0.5, 1, 20, 60])))
        if w.where(f"a{number}") is None:
            w.cancel(f"a{number}")
        else:
            w.start(f"a{number}")
    return w


def join(w: World, machine: MachineId) -> None:
    """Let a machine be made and join."""
    w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud")


def run_on(w: World, until: int) -> None:
    """Let time pass as forecasts have it: machines boot, and jobs end when they are expected to."""
    while w.now < until:
        w.wait(seconds=1)
        for machine in in_state(w, MachineState.WANTED):
            if w.now >= w.state.machines[machine].wanted_at + BOOT:
                join(w, machine)
        for job in list(w.state.jobs.values()):
            if isinstance(job.phase, Placed) and not job.id.startswith("g"):
                w.start(job.id)
            elif isinstance(job.phase, Running) and not job.id.startswith("g"):
                ran = w.now - job.phase.since
                if ran >= (job.terms.estimate or 0):
                    w.finish(job.id, ran=ran / SECOND)


def free_by(w: World, until: int, cpus: int) -> int:
    """Return how many tasks of so many CPUs the machines that are there, or come in time, could hold at a time."""
    free = {each.id: 4000 for each in w.state.machines.values() if until > w.now or not each.is_coming}
    for job in w.state.jobs.values():
        if isinstance(job.phase, Running) and job.phase.since + (job.terms.estimate or 0) > until:
            free[MachineId(job.phase.node)] -= job.shape.resources.cpu
    return sum(each // (cpus * 1000) for each in free.values())


def played(seed: int, found: Counter[str]) -> World:
    """Play one story of a gang, and check it."""
    dice = Random(seed)
    w = warmed(dice)
    tasks, cpus = dice.randint(2, 8), dice.choice([1, 2, 4])
    before = len(list(w.state.machines))
    room, pool = free_by(w, w.now + BOOT, cpus), w.state.clusters[CLOUD].pool
    assert pool is not None
    now = free_by(w, w.now, cpus)
    w.submit(rented("g", cpus).tasks(tasks))
    ordered = sum(len(each.wishes) for each in w.happened(MachinesWanted)) - before
    if now >= tasks:
        found["at once"] += 1
        assert w.where("g") is not None
        assert not ordered
        return w
    missing = -(-max(0, tasks - room) // (4 // cpus))
    if missing > pool.max - before:
        found["too large"] += 1
        assert not ordered
        assert not list(w.happened(MachinesEarmarked))
        return w
    assert ordered == missing
    found["soon free" if not missing else "ordered"] += 1
    found["besides"] += bool(missing and list(w.happened(MachinesEarmarked)))
    w.submit(*[rented(f"later{number}", dice.choice([1, 4]), 30) for number in range(3)])
    run_on(w, w.now + BOOT + 5 * SECOND)
    assert w.where("g") is not None, "others took what was kept for it"
    return w


@pytest.mark.parametrize("seed", few_of(25, SEEDS))
def test_a_gang_is_ordered_what_is_missing_and_starts_when_that_is_ready(seed: int) -> None:
    w = played(seed, Counter())
    assert replayed(w).difference is None


def test_the_stories_meet_what_they_are_to_check() -> None:
    found: Counter[str] = Counter()
    for seed in range(1, 41):
        played(seed, found)
    assert min(found[each] for each in ("at once", "too large", "soon free", "ordered", "besides")) > 1, found


@pytest.mark.parametrize("seed", few_of(50, range(1, 1001)))
def test_counting_tasks_finds_as_few_new_machines_as_placing_them_does(seed: int) -> None:
    dice, spec = Random(seed), cluster()
    assert spec.pool is not None
    tasks, cpus = dice.randint(2, 12), dice.choice([1, 2, 3, 4])
    shape = rented("g", cpus).tasks(tasks).spec().shape
    offer = OpenOffer(spec, spec.pool, PoolRecord(CLOUD), SMALL)
    names = [MachineId(f"cloud-{number}") for number in range(dice.randint(0, 4))]
    there = [_There(name, offer, offer.empty(), dice.randint(0, 9), empty=True) for name in names]
    counted = _counted(there, shape, 4 // cpus)
    placed = next(
        found
        for new in range(tasks + 1)
        if (found := _matched(spec, shape, there, [offer.node(at + 1) for at in range(new)])) is not None
    )
    assert counted.new == placed.new
    assert len(counted.machines) <= len(placed.machines)
