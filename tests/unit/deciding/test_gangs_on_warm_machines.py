"""Stories of gangs on pools that have machines already: a gang is ordered only what it needs besides them."""

import pytest
from msgspec.structs import replace

from spillover.control.views.pools import planned_views
from spillover.core.events import Decided, MachinesDraining, MachinesEarmarked
from spillover.core.pool_proposals import PausePool, ResumePool, SeeGone, SeeMade, SeeNotice, SeeRefused
from spillover.core.proposals import Act
from spillover.deciding.explain.explain import reason_of
from spillover.deciding.whatif import Snapshot
from spillover.model.cluster import Billing
from spillover.model.pools import MachineId, MachineState, Offer, RefusalCause
from spillover.model.reasons import FreeSoon, MachineComing, PoolAtMost
from spillover.model.topology import Level, Topology
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.world import World
from tests.support.pools.worlds import CLOUD, GIB, SMALL, boot, in_state, rented, replayed, wanted, why, world

SMALL_B = replace(SMALL, zone="b")


def warm(*offers: Offer, machines: int = 2, **pool: object) -> World:
    """A pool that always has some machines, all of them ready."""
    w = world(*offers, min=machines, **pool)
    w.step()
    boot(w)
    assert len(in_state(w, MachineState.READY)) == machines
    return w


def busy(w: World, job: str, minutes: float) -> str:
    """Let a job run on a whole machine; return the machine."""
    w.submit(rented(job, minutes=minutes))
    w.start(job)
    return str(w.where(job)).removeprefix("cloud/")


def kept(w: World) -> list[tuple[str, ...]]:
    """Return the machines that were kept for gangs, by plan."""
    return [each.machines for each in w.happened(MachinesEarmarked)]


def on(w: World, gang: str) -> set[str]:
    """Return the machines that a gang runs on."""
    return {task.node for task in w.job(gang).tasks}


def test_a_gang_is_ordered_only_the_machines_that_are_missing() -> None:
    w = warm(max=3)
    other = busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2))
    (free,) = {"cloud-1", "cloud-2"} - {other}
    assert kept(w) == [(free,)]
    assert len(wanted(w)) == 3
    boot(w)
    assert on(w, "g") == {free, "cloud-3"}
    assert replayed(w).difference is None


def test_by_earlier_rules_such_a_gang_waited_for_ever_for_new_machines_alone() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=600)
    w.engine.rules = 6
    w.submit(rented("g").tasks(2))
    w.wait(seconds=3600)
    assert len(wanted(w)) == 2
    assert not kept(w)
    assert [each.rules for each in w.happened(Decided)][-1] == 6
    assert replayed(w).difference is None


def test_a_gang_waits_for_a_machine_that_is_free_before_a_new_one_were_ready() -> None:
    w = warm(max=5)
    busy(w, "a", minutes=1)
    w.submit(rented("g").tasks(2))
    assert len(wanted(w)) == 2, "a new machine would take 90 seconds"
    assert kept(w) == [("cloud-2", "cloud-1")]
    w.submit(rented("b"))
    assert w.where("b") is None, "the free machine is kept for the gang"
    w.wait(seconds=60)
    w.finish("a", ran=60)
    assert on(w, "g") == {"cloud-1", "cloud-2"}
    assert replayed(w).difference is None


def test_a_full_pool_keeps_machines_that_end_soon_for_a_gang_that_is_first() -> None:
    """Otherwise each machine that becomes free would go to the next job, and the gang would wait for ever."""
    w = warm(max=2)
    busy(w, "a", minutes=1)
    busy(w, "b", minutes=1.2)
    w.submit(rented("g").tasks(2))
    w.submit(*[rented(f"c{number}", minutes=5) for number in range(4)])
    w.wait(seconds=60)
    w.finish("a", ran=60)
    assert w.where("c0") is None
    w.wait(seconds=12)
    w.finish("b", ran=72)
    assert on(w, "g") == {"cloud-1", "cloud-2"}


def test_machines_are_not_kept_for_a_gang_beyond_the_time_when_they_should_be_free() -> None:
    w = warm(max=2)
    busy(w, "a", minutes=1)
    w.submit(rented("g").tasks(2))
    w.submit(rented("b", minutes=600))
    assert w.where("b") is None
    w.wait(seconds=119)
    assert w.where("b") is None
    w.wait(seconds=2)
    assert w.where("b") == "cloud/cloud-2", "a runs for longer than expected, and nobody knows for how long"
    w.wait(seconds=600)
    assert len(kept(w)) == 1


def test_machines_that_boot_for_nobody_any_more_count() -> None:
    w = world(max=2)
    w.submit(rented("a"))
    w.act(Act.CANCEL, "a")
    w.submit(rented("g").tasks(2))
    assert kept(w) == [("cloud-1",)]
    assert len(wanted(w)) == 2
    boot(w)
    assert on(w, "g") == {"cloud-1", "cloud-2"}


def test_a_gang_leaves_machines_to_jobs_before_it() -> None:
    w = world(max=3)
    w.submit(rented("a"))
    w.submit(rented("g").tasks(2))
    assert not kept(w)
    assert len(wanted(w)) == 3, "the first one comes for a"
    boot(w)
    assert w.where("a") is not None
    assert len(w.job("g").tasks) == 2


def test_a_gang_does_not_take_the_last_new_machines_from_jobs_before_it() -> None:
    w = warm(max=3)
    busy(w, "x", minutes=600)
    w.propose(PausePool(CLOUD, "ada"))
    w.submit(rented("a", minutes=600).cpus(3.5), rented("b", minutes=600))
    w.submit(rented("g").tasks(2))
    w.propose(ResumePool(CLOUD, "ada"))
    assert [w.state.machines[each].job for each in in_state(w, MachineState.WANTED)] == ["b"]


def test_a_later_gang_gets_other_machines_than_an_earlier_one() -> None:
    w = warm(machines=3, max=5)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(3))
    w.submit(rented("h").tasks(3))
    assert len(kept(w)) == 1
    assert len(wanted(w)) == 4, "h would need three more, and the pool may have one more"
    boot(w)
    assert len(w.job("g").tasks) == 3


def test_machines_of_one_gang_are_in_one_zone() -> None:
    w = warm(SMALL, SMALL_B, machines=1, max=5)
    busy(w, "a", minutes=600)
    w.submit(rented("b", minutes=1))
    boot(w)
    w.start("b")
    w.wait(seconds=60)
    w.finish("b", ran=60)
    w.submit(rented("g").tasks(2))
    assert kept(w) == [("cloud-2",)]
    assert wanted(w)[2:] == ["small/a/on-demand"]
    (third,) = in_state(w, MachineState.WANTED)
    w.propose(SeeRefused(CLOUD, third, RefusalCause.CAPACITY, "none left"))
    assert wanted(w)[3:] == ["small/b/on-demand"] * 2, "the one in the other zone is of no use"


def test_a_gang_gets_other_machines_when_one_that_was_kept_for_it_is_gone() -> None:
    w = warm(max=4)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2))
    w.propose(SeeGone(CLOUD, MachineId("cloud-2"), "vanished"))
    assert kept(w)[1:] == [("cloud-3",)], "what comes for it counts, too"
    w.wait(seconds=1)
    boot(w)
    assert on(w, "g") >= {"cloud-3"}
    assert replayed(w).difference is None


def test_a_gang_gets_other_machines_when_the_provider_announces_the_end_of_a_kept_one() -> None:
    spot = replace(SMALL, spot=True, hour=100_000)
    w = warm(spot, SMALL, max=4)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2))
    assert kept(w) == [("cloud-2",)]
    w.propose(SeeNotice(CLOUD, MachineId("cloud-2"), w.now + 2 * MINUTE))
    assert kept(w)[1:] == [("cloud-3",)]


def test_machines_that_were_kept_are_free_for_others_when_the_gang_leaves_the_queue() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2))
    w.submit(rented("b"))
    assert w.where("b") is None
    w.act(Act.CANCEL, "g")
    assert w.where("b") == "cloud/cloud-2"


def test_a_kept_machine_is_not_given_back_while_the_others_boot() -> None:
    w = world(max=3, idle=30 * SECOND)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.submit(rented("g").tasks(3))
    assert kept(w) == [("cloud-1",)]
    w.wait(seconds=200)
    assert not list(w.happened(MachinesDraining))
    boot(w)
    assert on(w, "g") == {"cloud-1", "cloud-2", "cloud-3"}


def test_an_empty_machine_whose_hour_is_paid_counts() -> None:
    w = world(max=2, billing=Billing(HOUR))
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=600)
    w.finish("a", ran=60)
    w.submit(rented("g").tasks(2))
    assert kept(w) == [("cloud-1",)]
    assert len(wanted(w)) == 2


@pytest.mark.parametrize(("tasks", "keeps", "new"), [(3, 1, 1), (4, 0, 2), (5, 1, 2)])
def test_what_is_left_of_a_machine_counts_if_it_saves_a_new_one(tasks: int, keeps: int, new: int) -> None:
    w = warm(machines=1, max=3)
    w.submit(rented("a", 2, minutes=60))
    w.start("a")
    w.submit(rented("g", 2).tasks(tasks))
    assert len(kept(w)) == keeps
    assert len(wanted(w)) == 1 + new
    boot(w)
    assert len(w.job("g").tasks) == tasks


def test_a_gang_that_must_be_together_gets_machines_that_are_together() -> None:
    racked = replace(SMALL, labels={"rack": "r1"})
    w = world(racked, min=2, max=3, levels=(Level("rack", "rack"),))
    w.step()
    for machine in in_state(w, MachineState.WANTED):
        w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
        w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud", labels=racked.agent_labels)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2).together(Topology(within="rack")))
    assert kept(w) == [("cloud-2",)]
    assert len(wanted(w)) == 3
    assert replayed(w).difference is None


def test_parts_of_a_gang_that_differ_get_what_is_there_too() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=60)
    w.submit(rented("g", 4).tasks(2).together(Topology(exclusive=True)))
    assert kept(w) == [("cloud-2",)]
    assert len(wanted(w)) == 3


def test_a_gang_with_a_machine_that_is_smaller_than_its_offer_is_ordered_what_it_then_needs() -> None:
    w = world(max=4)
    w.submit(rented("g").tasks(2))
    first, second = in_state(w, MachineState.WANTED)
    for machine, cpus in ((first, 4), (second, 2)):
        w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
        w.agent(machine, cpus=cpus, memory=16 * GIB, cluster="cloud")
    w.wait(seconds=62)
    assert w.placed() == []
    assert len(wanted(w)) == 2, "machines of this offer have turned out to be too small"


def test_a_rate_counts_only_new_machines() -> None:
    w = warm(machines=2, max=6, rate=2)
    busy(w, "a", minutes=60)
    w.wait(seconds=61)
    w.submit(rented("g").tasks(3))
    assert kept(w) == [("cloud-2",)]
    assert len(wanted(w)) == 4


# --- what is told


def test_why_says_what_the_gang_and_others_wait_for() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=60)
    w.submit(rented("g").tasks(2))
    w.submit(rented("b"))
    gang = reason_of(w.engine, w.job("g"))
    assert isinstance(gang, MachineComing)
    assert (gang.machine, gang.count) == ("cloud-3", 1)
    assert reason_of(w.engine, w.job("b")) == PoolAtMost(CLOUD, 3, has=3)


def test_why_says_when_machines_will_be_free_that_are_kept() -> None:
    w = warm(max=2)
    busy(w, "a", minutes=1)
    w.submit(rented("g").tasks(2))
    assert reason_of(w.engine, w.job("g")) == FreeSoon(CLOUD, 2, w.now + MINUTE)
    assert why(w, "g").startswith("2 machines of cloud are kept for it, and are expected to be free at ")


def test_why_says_how_many_new_machines_a_gang_needs_besides_those_that_are_there() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=600)
    w.submit(rented("g").tasks(3))
    assert reason_of(w.engine, w.job("g")) == PoolAtMost(CLOUD, 3, needs=2, has=2, free=1)
    assert why(w, "g") == (
        "it needs 2 machines besides 1 with room, and the pool of cloud has 2 of the 3 that it may have; raise `max`, or wait"
    )


def test_the_plan_of_pools_tells_which_machines_it_would_keep() -> None:
    w = warm(max=3)
    busy(w, "a", minutes=60)
    w.propose(PausePool(CLOUD, "ada"))
    w.submit(rented("g").tasks(2))
    views = planned_views(Snapshot(w.engine), w.now)
    assert [(each.action, each.machines, each.jobs) for each in views] == [
        ("keep", ["cloud-2"], ["g"]),
        ("order", ["cloud-3"], ["g"]),
    ]
    assert views[0].reason == "they are kept for g, until it starts"
