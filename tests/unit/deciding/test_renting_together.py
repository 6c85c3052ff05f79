"""Stories of pools in which several things happen to one machine, or to machines of one plan, at the same moment."""

from msgspec.structs import replace

from spillover.core.events import AgentDraining, MachinesDraining, MachinesEnding, MachinesKept
from spillover.core.pool_proposals import SeeMade
from spillover.core.proposals import StartEpoch
from spillover.model.budget import Per
from spillover.model.cluster import Billing
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineState, PoolBudget
from spillover.model.topology import Level, Topology
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.world import OWNED, World
from tests.support.pools.worlds import (
    CLOUD,
    SMALL,
    boot,
    cluster,
    end,
    in_state,
    rented,
    replayed,
    wanted,
    why,
    world,
)


def drained(**pool: object) -> World:
    """A pool whose only machine has just been drained."""
    w = world(**pool)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=90)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    return w


def test_a_machine_that_a_job_undoes_the_drain_of_is_not_ended_at_the_same_moment() -> None:
    w = drained()
    w.now += 10 * SECOND  # no plan came when its drain was over
    w.submit(rented("b"))
    assert list(w.happened(MachinesKept))
    assert not list(w.happened(MachinesEnding))
    assert w.where("b") == "cloud/cloud-1"
    assert len(wanted(w)) == 1


def test_a_drain_is_not_undone_for_a_machine_that_the_server_has_not_heard_of_since_it_started() -> None:
    w = drained()
    w.propose(StartEpoch(2, (OWNED, cluster()), PolicySet(wait=Choice("zero"))))
    w.submit(rented("b"))
    assert not list(w.happened(MachinesKept))
    assert len(wanted(w)) == 2


def test_a_machine_is_ended_once_although_its_budget_is_used_up_too() -> None:
    w = world(budget=PoolBudget(Per.DAY, 140_000), billing=Billing(SECOND), boot=90 * SECOND)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=90)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    w.now += HOUR
    w.step()
    assert [each.machines for each in w.happened(MachinesEnding)] == [("cloud-1",)]
    assert replayed(w).difference is None


def test_a_machine_that_does_not_join_is_ended_once_although_its_budget_is_used_up_too() -> None:
    w = world(min=1, budget=PoolBudget(Per.DAY, 100_000), billing=Billing(SECOND), join_within=12 * MINUTE)
    w.step()
    w.propose(SeeMade(CLOUD, in_state(w, MachineState.WANTED)[0], "i-1", w.now))
    w.wait(seconds=12 * 60)
    assert [each.machines for each in w.happened(MachinesEnding)] == [("cloud-1",)]


def test_an_empty_machine_whose_budget_ends_is_drained_once() -> None:
    w = world(budget=PoolBudget(Per.DAY, 200_000), billing=Billing(SECOND), idle=HOUR)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.finish("a", ran=60)
    w.now += 2 * HOUR
    w.step()
    assert len(list(w.happened(AgentDraining))) == 1
    assert len(in_state(w, MachineState.ENDING)) == 1


def test_a_gang_of_more_machines_than_the_rate_allows_in_a_minute_is_ordered_at_once() -> None:
    w = world(rate=2)
    w.submit(rented("a"))
    w.submit(rented("g").tasks(4))
    assert len(wanted(w)) == 1, "one machine of this minute is ordered already"
    w.wait(seconds=61)
    assert len(wanted(w)) == 5
    boot(w)
    assert len(w.job("g").tasks) == 4


def test_machines_that_are_drained_do_not_count_among_those_that_are_always_there() -> None:
    w = world(min=1, idle=10 * MINUTE)
    w.submit(rented("a", minutes=1), rented("b", minutes=1))
    boot(w)
    w.start("a")
    w.start("b")
    w.finish("a", ran=60)
    w.wait(seconds=1)
    w.finish("b", ran=60)
    w.wait(seconds=3600)
    assert [len(each.machines) for each in w.happened(MachinesDraining)] == [1]
    end(w)
    assert len(wanted(w)) == 2, "one machine stays, and none has to come back"


def test_a_job_that_wants_a_machine_for_itself_shares_no_imagined_machine() -> None:
    w = world()
    w.submit(rented("alone", 1).together(Topology(exclusive=True)), rented("other", 1))
    assert len(wanted(w)) == 2
    w.step()
    boot(w)
    assert {w.where("alone"), w.where("other")} == {"cloud/cloud-1", "cloud/cloud-2"}
    assert len(wanted(w)) == 2


def test_no_machines_are_ordered_for_a_gang_that_could_not_start_on_them() -> None:
    zones = (Level("zone", "spillover.dev/zone"),)
    w = world(SMALL, replace(SMALL, zone="b"), levels=zones)
    w.submit(rented("g").tasks(2).together(Topology(spread="zone")))
    assert wanted(w) == []
    assert "cloud" in why(w, "g")


def test_why_says_how_many_machines_a_gang_needs_and_the_pool_may_have() -> None:
    w = world(max=3)
    w.submit(rented("a", minutes=600), rented("b", minutes=600))
    boot(w)
    w.submit(rented("g").tasks(2))
    assert why(w, "g") == (
        "it needs 2 machines, and the pool of cloud has 2 of the 3 that it may have; raise `max`, or wait"
    )
    poor = world(budget=PoolBudget(Per.DAY, 500_000), billing=Billing(HOUR))
    poor.submit(rented("g").tasks(2))
    assert "has 0.50 of 0.50 left, too little for the 2 machines that it needs" in why(poor, "g")
