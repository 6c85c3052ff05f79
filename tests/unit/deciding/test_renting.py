"""Stories of pools: which machines the plan orders, how long they stay, and what it does when a provider refuses."""

import pytest
from msgspec.structs import replace

from spillover.core.events import (
    MachineGone,
    MachinesDraining,
    MachinesEnding,
    MachinesKept,
    PoolPaused,
)
from spillover.core.pool_proposals import (
    PausePool,
    ResumePool,
    SeeGone,
    SeeMade,
    SeeRefused,
    SeeUnwanted,
)
from spillover.core.proposals import (
    AgentGone,
    ClearedCluster,
    Done,
    DrainCluster,
    Jump,
    Reclaim,
    Refusal,
    RemoveCluster,
    ResumeCluster,
    StartEpoch,
    UpdateCluster,
)
from spillover.core.records.machines import PoolRecord, machine_cost
from spillover.deciding.explain.feasibility import too_large
from spillover.deciding.forward import as_expected, run_forward
from spillover.deciding.renting.money import first_held
from spillover.deciding.replay import Replay
from spillover.deciding.whatif import Snapshot
from spillover.model.budget import Per
from spillover.model.cluster import Billing, Leave, billed
from spillover.model.ids import JobId, NodeKey
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineId, MachineState, Pool, PoolBudget, RefusalCause, machine_id
from spillover.model.reasons import GangTooBig, TooBig
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.pools.worlds import (
    CLOUD,
    GIB,
    LARGE,
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


def test_a_job_that_may_be_rented_gets_a_machine_and_starts_when_it_is_ready() -> None:
    w = world()
    w.submit(rented("a"))
    assert wanted(w) == ["small/a/on-demand"]
    boot(w)
    assert w.where("a") == "cloud/cloud-1"
    assert len(wanted(w)) == 1


def test_a_job_that_fits_on_owned_machines_gets_none() -> None:
    w = world()
    w.agent("n1", cpus=4)
    w.submit(a_job("a").cpus(4))
    assert w.where("a") == "onprem/n1"
    assert wanted(w) == []


def test_jobs_that_fit_together_share_a_machine_and_those_that_come_later_use_it() -> None:
    w = world()
    w.submit(*[rented(f"a{number}", 1) for number in range(4)])
    assert len(wanted(w)) == 1
    w.submit(rented("b", 1))
    assert len(wanted(w)) == 2
    w.submit(rented("c", 1))
    assert len(wanted(w)) == 2, "the second machine has room for it"


def test_the_offer_is_chosen_by_cost_for_the_work_it_takes() -> None:
    few, many = world(SMALL, LARGE), world(SMALL, LARGE)
    few.submit(rented("a", 4))
    many.submit(*[rented(f"a{number}", 4) for number in range(4)])
    assert wanted(few) == ["small/a/on-demand"]
    assert wanted(many) == ["large/a/on-demand"]


def test_only_a_large_offer_takes_a_large_job() -> None:
    w = world(SMALL, LARGE)
    w.submit(rented("a", 8))
    assert wanted(w) == ["large/a/on-demand"]


def test_a_pool_never_has_more_than_max_machines() -> None:
    w = world(max=2)
    w.submit(*[rented(f"a{number}") for number in range(5)])
    assert len(wanted(w)) == 2
    boot(w)
    assert len(wanted(w)) == 2
    assert len(w.placed()) == 2


def test_a_job_whose_place_is_free_before_a_new_machine_were_ready_waits_for_it() -> None:
    w = world()
    w.submit(rented("a", minutes=10))
    boot(w)
    w.start("a")
    w.wait(seconds=9 * 60)
    w.submit(rented("b", minutes=10))
    assert len(wanted(w)) == 1
    w.submit(rented("c", minutes=10))
    assert len(wanted(w)) == 2, "the place is taken by b"


@pytest.mark.parametrize("late", [10, 600])
def test_a_job_does_not_wait_for_ever_for_one_that_runs_longer_than_expected(late: int) -> None:
    w = world(max=3)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60 + late)
    w.submit(rented("b", minutes=1))
    w.wait(seconds=300)
    assert len(wanted(w)) == 2
    assert replayed(w).difference is None


def test_by_earlier_rules_such_a_job_waited_for_ever() -> None:
    w = world(max=3)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.engine.rules = 6
    w.submit(rented("b", minutes=1))
    w.wait(seconds=3600)
    assert len(wanted(w)) == 1
    assert replayed(w).difference is None


def test_a_fixed_load_comes_to_a_fixed_point() -> None:
    w = world()
    w.submit(*[rented(f"a{number}", 2) for number in range(9)])
    boot(w)
    for number in range(9):
        w.start(f"a{number}")
    orders = len(wanted(w))
    w.wait(seconds=1500)
    assert orders == len(wanted(w)) == 5


@pytest.mark.parametrize(("step", "stays"), [(SECOND, 90), (HOUR, 3600 - 60 - 90 - 60)])
def test_an_empty_machine_stays_for_a_boot_time_or_to_the_end_of_what_is_paid(step: int, stays: int) -> None:
    w = world(billing=Billing(step))
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=stays - 1)
    assert in_state(w, MachineState.READY) == ["cloud-1"]
    w.wait(seconds=1)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    w.wait(seconds=2)
    assert in_state(w, MachineState.ENDING) == ["cloud-1"]
    end(w)
    assert not list(w.state.agents)


def test_a_machine_that_boots_fast_and_had_a_job_stays_for_its_short_boot_time() -> None:
    w = world(boot=2 * SECOND)
    w.submit(rented("a", minutes=1 / 60))
    boot(w, seconds=2)
    w.start("a")
    w.wait(seconds=1)
    w.finish("a", ran=1)
    w.wait(seconds=1)
    assert in_state(w, MachineState.READY) == ["cloud-1"]
    w.wait(seconds=1)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]


def test_a_new_machine_that_no_job_took_is_not_drained_at_once() -> None:
    w = world(idle=SECOND)
    w.submit(rented("a"))
    (machine,) = in_state(w, MachineState.WANTED)
    w.propose(SeeMade(CLOUD, machine, "i-1", w.now))
    w.cancel("a")
    w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud")
    w.wait(seconds=9)
    assert in_state(w, MachineState.READY) == [machine]
    w.wait(seconds=1)
    assert in_state(w, MachineState.DRAINING) == [machine]


def test_machines_that_boot_count_as_they_were_ordered_when_their_offer_has_changed_since() -> None:
    w = world()
    w.submit(rented("a", 4))
    bigger = replace(SMALL, resources=Resources(8000, 16 * GIB))
    w.propose(UpdateCluster(cluster(bigger), "ada"))
    w.submit(rented("b", 8))
    assert len(wanted(w)) == 2, "the first machine is too small for it"
    w.wait(seconds=10)
    assert len(wanted(w)) == 2, "the second one is large enough"


@pytest.mark.parametrize("minutes", [10, 30, 70])
def test_a_machine_whose_paid_step_ended_in_a_jump_of_the_clock_stays_to_the_end_of_the_next(
    minutes: int,
) -> None:
    """Whether the clock was wrong before, or the server stood still: the hour that has begun is paid."""
    w = world(billing=Billing(HOUR))
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=52 * 60)
    made = w.state.machines[machine_id("cloud", 1)].made_at
    assert made is not None
    w.now += minutes * MINUTE
    w.propose(Jump(minutes * MINUTE))
    end_of_step = made + billed(Billing(HOUR), w.now - made)
    assert end_of_step > made + HOUR
    assert in_state(w, MachineState.READY) == ["cloud-1"]
    w.wait(seconds=(end_of_step - w.now) / SECOND - 61)
    assert in_state(w, MachineState.READY) == ["cloud-1"]
    w.wait(seconds=1)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    w.wait(seconds=2)
    end(w)
    (gone,) = w.happened(MachineGone)
    assert gone.paid == (end_of_step - made) // HOUR * SMALL.hour
    assert len(wanted(w)) == 1


def test_a_jump_of_the_clock_beyond_what_is_held_ends_machines_that_the_budget_does_not_pay_for() -> None:
    w = world(budget=PoolBudget(Per.EVER, 800_000), billing=Billing(HOUR))
    w.submit(rented("a"), rented("b"))
    boot(w)
    w.start("a")
    w.start("b")
    w.now += 70 * MINUTE
    w.propose(Jump(70 * MINUTE))
    assert len(in_state(w, MachineState.ENDING)) == 2
    assert [each.why for each in w.happened(MachinesEnding)] == ["the budget of the pool is used up"]
    end(w)
    w.wait(seconds=3600)
    assert len(wanted(w)) == 2, "it orders again, although it has spent more than its budget"


def test_a_machine_that_is_not_destroyed_holds_what_it_costs_and_nothing_is_ordered_with_that_money() -> None:
    w = world(budget=PoolBudget(Per.EVER, 2 * SMALL.hour), billing=Billing(HOUR))
    w.submit(rented("a"))
    boot(w)
    w.cancel("a")
    w.propose(PausePool(CLOUD, "ada", end=True))
    w.propose(ResumePool(CLOUD, "ada"))
    (ending,) = in_state(w, MachineState.ENDING)
    w.wait(seconds=3 * 3600)
    (period,) = w.state.budget_periods.values()
    assert period.held == w.state.machines[ending].bill(Billing(HOUR), w.now) == 4 * SMALL.hour
    w.submit(rented("b"))
    assert wanted(w) == [SMALL.key]
    assert "the budget of the pool of cloud" in why(w, "b")
    end(w)
    (gone,) = w.happened(MachineGone)
    assert gone.paid == 4 * SMALL.hour
    assert (period.held, period.spent, period.over) == (0, 4 * SMALL.hour, 0)


def test_what_a_machine_costs_that_nothing_wants_counts_against_the_budget() -> None:
    w = world(budget=PoolBudget(Per.EVER, 10 * SMALL.hour), billing=Billing(HOUR))
    w.propose(SeeUnwanted(CLOUD, "i-9", MachineId("cloud-9"), w.now))
    w.submit(rented("a"))
    boot(w)
    w.wait(seconds=30 * 60)
    w.propose(SeeGone(CLOUD, machine_id("cloud", 1)))
    w.propose(SeeUnwanted(CLOUD, "i-cloud-1", machine_id("cloud", 1), w.now))
    w.wait(seconds=3600)
    end(w)
    (period,) = w.state.budget_periods.values()
    assert (period.spent, period.over) == (2 * SMALL.hour, 0)


def test_a_new_job_undoes_a_drain() -> None:
    w = world()
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=90)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    w.submit(rented("b"))
    assert len(list(w.happened(MachinesKept))) == 1
    assert w.where("b") == "cloud/cloud-1"
    assert len(wanted(w)) == 1


def restarted(w: World) -> None:
    """Let another server begin, whose agents have not found it yet."""
    w.propose(StartEpoch(w.state.facts.epoch + 1, (OWNED, cluster()), PolicySet(wait=Choice("zero"))))


def test_a_job_waits_for_the_agents_of_machines_that_have_not_found_the_new_server_yet() -> None:
    w = world()
    w.submit(rented("a"), rented("b"))
    boot(w)
    w.start("a")
    w.start("b")
    w.finish("b")
    restarted(w)
    w.submit(rented("c"))
    w.wait(seconds=5)
    assert len(wanted(w)) == 2, "an empty machine was there"
    held = (w.job("a").lease,)
    for machine in in_state(w, MachineState.READY):
        leases = held if w.where("a") == f"cloud/{machine}" else ()
        w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud", held=leases)
    assert w.where("c") != w.where("a")
    assert len(wanted(w)) == 2


def test_an_empty_machine_is_not_given_back_before_its_agent_found_the_new_server() -> None:
    w = world()
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=80)
    restarted(w)
    w.submit(rented("b"))
    w.wait(seconds=60)
    assert not list(w.happened(MachinesDraining))
    assert len(wanted(w)) == 1
    node = w.state.agents[NodeKey("cloud/cloud-1")]
    w.propose(AgentGone(CLOUD, node.name, node.incarnation))
    assert len(wanted(w)) == 2, "its agent is lost, so b gets another machine"
    w.wait(seconds=11 * 60)
    assert "cloud-1" in in_state(w, MachineState.ENDING)


def test_a_machine_that_does_not_answer_is_not_kept_for_jobs_that_wait() -> None:
    w = world(max=1)
    w.submit(rented("a"), rented("b"))
    boot(w)
    w.start("a")
    node = w.state.agents[NodeKey("cloud/cloud-1")]
    w.propose(AgentGone(CLOUD, node.name, node.incarnation))
    w.propose(Reclaim(node.key, (w.job("a").lease,)))
    w.wait(seconds=11 * 60)
    assert not list(w.happened(MachinesKept))
    assert in_state(w, MachineState.ENDING) == ["cloud-1"]


def test_a_gang_gets_new_machines_when_one_of_its_machines_is_gone() -> None:
    w = world()
    w.submit(rented("g").tasks(2))
    first, second = in_state(w, MachineState.WANTED)
    w.propose(SeeMade(CLOUD, first, "i-1", w.now))
    w.agent(first, cpus=4, memory=16 * GIB, cluster="cloud")
    w.propose(SeeGone(CLOUD, second, "vanished"))
    boot(w)
    assert len(w.job("g").tasks) == 2


def test_a_spot_machine_is_not_kept_for_a_job_that_must_not_use_it() -> None:
    spot = replace(SMALL, spot=True, hour=100_000)
    w = world(spot, SMALL)
    w.submit(rented("a", minutes=1))
    boot(w)
    w.start("a")
    w.wait(seconds=60)
    w.finish("a", ran=60)
    w.wait(seconds=90)
    assert in_state(w, MachineState.DRAINING) == ["cloud-1"]
    w.submit(rented("hurried", minutes=30).between(deadline=w.now + 80 * MINUTE))
    assert not list(w.happened(MachinesKept))
    assert wanted(w)[-1] == "small/a/on-demand"


def test_min_machines_are_always_there_and_come_back() -> None:
    w = world(min=2)
    w.step()
    assert len(wanted(w)) == 2
    boot(w)
    w.wait(seconds=7200)
    assert not list(w.happened(MachinesDraining))
    w.propose(SeeGone(CLOUD, in_state(w, MachineState.READY)[0], "vanished"))
    assert len(wanted(w)) == 3


def test_the_next_offer_is_tried_at_once_when_one_has_no_capacity() -> None:
    w = world(replace(SMALL, spot=True, hour=100_000), SMALL, replace(SMALL, zone="b"))
    w.submit(rented("a"))
    for expected in ("small/a/spot", "small/a/on-demand", "small/b/on-demand"):
        assert wanted(w)[-1] == expected
        w.propose(SeeRefused(CLOUD, in_state(w, MachineState.WANTED)[0], RefusalCause.CAPACITY, "none left"))
    assert len(wanted(w)) == 3
    w.wait(seconds=181)
    assert wanted(w)[-1] == "small/a/spot", "it opens after three minutes"


def test_a_paused_pool_orders_nothing_and_a_resumed_one_does() -> None:
    w = world()
    w.propose(PausePool(CLOUD, "ada"))
    w.submit(rented("a"))
    assert wanted(w) == []
    w.propose(ResumePool(CLOUD, "ada"))
    assert len(wanted(w)) == 1


def test_three_boots_that_never_join_pause_the_pool() -> None:
    w = world(join_within=5 * MINUTE)
    w.submit(rented("a"))
    for number in range(1, 4):
        w.propose(SeeMade(CLOUD, in_state(w, MachineState.WANTED)[0], f"i-{number}"))
        w.wait(seconds=300)
        end(w)
    assert len(wanted(w)) == 3
    (paused,) = w.happened(PoolPaused)
    assert paused.why == "3 machines in a row did not join within 5m"
    w.wait(seconds=7200)
    assert len(wanted(w)) == 3


def jump(w: World, hours: float) -> None:
    """Let the clock jump, as after an outage of the server."""
    w.propose(Jump(int(hours * HOUR)))
    w.now += int(hours * HOUR)
    w.step()


def test_machines_that_boot_while_the_server_is_away_for_a_night_have_time_to_join() -> None:
    w = world(join_within=5 * MINUTE)
    w.submit(*[rented(f"a{number}") for number in range(3)])
    for machine in in_state(w, MachineState.WANTED):
        w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.wait(seconds=60)
    jump(w, 9)
    assert not list(w.happened(MachinesEnding))
    assert not list(w.happened(PoolPaused))
    w.wait(seconds=200)
    w.agent("cloud-1", cpus=4, memory=16 * GIB, cluster="cloud")
    assert w.where("a0") == "cloud/cloud-1"
    assert w.state.pools[CLOUD].boots == {}, "nobody knows how long it booted"
    w.wait(seconds=41)
    assert len(in_state(w, MachineState.ENDING)) == 2, "their five minutes are over"
    assert w.state.pools[CLOUD].failed_boots == 2
    assert replayed(w).difference is None


def test_machines_do_not_wait_for_ever_for_a_server_that_was_away() -> None:
    w = world(join_within=5 * MINUTE)
    w.submit(*[rented(f"a{number}") for number in range(3)])
    jump(w, 72)
    assert len(in_state(w, MachineState.ENDING)) == 3
    assert not list(w.happened(PoolPaused)), "which says nothing about machines"
    assert len(in_state(w, MachineState.WANTED)) == 3


def test_a_clock_jump_ended_machines_in_plans_of_earlier_releases() -> None:
    w = world(join_within=5 * MINUTE)
    w.engine.rules = 3
    w.submit(rented("a"))
    jump(w, 1)
    assert len(list(w.happened(MachinesEnding))) == 1
    assert replayed(w).difference is None


def test_a_gang_gets_all_its_machines_in_one_zone_or_none() -> None:
    w = world(SMALL, replace(SMALL, zone="b"), max=4)
    w.submit(rented("g", 4).tasks(4))
    assert wanted(w) == ["small/a/on-demand"] * 4
    boot(w)
    assert w.where("g") == "cloud/cloud-1"
    too_large = world(max=3)
    too_large.submit(rented("g", 4).tasks(4))
    assert wanted(too_large) == []


def test_a_refusal_in_the_middle_of_a_gang_moves_all_of_it_to_another_zone() -> None:
    w = world(SMALL, replace(SMALL, zone="b"), max=8)
    w.submit(rented("g", 4).tasks(3))
    first = in_state(w, MachineState.WANTED)
    w.propose(SeeMade(CLOUD, first[0], "i-1"))
    w.propose(SeeRefused(CLOUD, first[1], RefusalCause.CAPACITY, "none left"))
    assert wanted(w)[3:] == ["small/b/on-demand"] * 3
    assert sorted(in_state(w, MachineState.ENDING)) == sorted([first[0], first[2]])


def test_a_quota_in_the_middle_of_a_gang_ends_all_of_it_and_later_tries_all_of_it_again() -> None:
    w = world(SMALL, replace(SMALL, zone="b"), max=8)
    w.submit(rented("g", 4).tasks(3))
    first = in_state(w, MachineState.WANTED)
    w.propose(SeeMade(CLOUD, first[0], "i-1"))
    w.agent(first[0], cpus=4, memory=16 * GIB, cluster="cloud")
    w.propose(SeeRefused(CLOUD, first[1], RefusalCause.QUOTA, "VcpuLimitExceeded"))
    assert sorted(in_state(w, MachineState.ENDING)) == sorted([first[0], first[2]])
    assert len(wanted(w)) == 3, "no zone of the family has a quota left"
    assert "VcpuLimitExceeded" in why(w, "g")
    end(w)
    w.wait(seconds=3 * 60 - 1)
    assert len(wanted(w)) == 3
    w.wait(seconds=1)
    assert wanted(w)[3:] == ["small/a/on-demand"] * 3
    boot(w)
    assert sorted(map(str, [task.node for task in w.job("g").tasks])) == sorted(
        in_state(w, MachineState.READY)
    )
    assert len(in_state(w, MachineState.READY)) == 3


def test_a_quota_in_the_middle_of_a_gang_moves_all_of_it_to_another_family() -> None:
    w = world(SMALL, replace(SMALL, type="other", hour=500_000), max=8)
    w.submit(rented("g", 4).tasks(3))
    first = in_state(w, MachineState.WANTED)
    w.propose(SeeRefused(CLOUD, first[2], RefusalCause.QUOTA, "VcpuLimitExceeded"))
    assert wanted(w)[3:] == ["other/a/on-demand"] * 3
    assert sorted(in_state(w, MachineState.ENDING)) == sorted(first[:2])


def test_a_job_that_was_interrupted_twice_gets_no_spot_machine() -> None:
    spot = replace(SMALL, spot=True, hour=100_000)
    w = world(spot, SMALL)
    w.submit(rented("a"))
    for _ in range(2):
        assert wanted(w)[-1] == "small/a/spot"
        boot(w)
        w.start("a")
        w.propose(SeeGone(CLOUD, in_state(w, MachineState.READY)[0], "taken back", interrupted=True))
    assert wanted(w)[-1] == "small/a/on-demand"
    w.submit(rented("b"))
    spot_machine = in_state(w, MachineState.WANTED)[-1]
    w.agent(spot_machine, cpus=4, memory=16 * GIB, cluster="cloud", labels=spot.agent_labels)
    assert w.where("b") == f"cloud/{spot_machine}", (
        "a does not take the spot machine, although it comes first"
    )


def test_a_job_that_has_no_time_to_run_again_gets_no_spot_machine() -> None:
    w = world(replace(SMALL, spot=True, hour=100_000), SMALL)
    w.submit(rented("hurried", minutes=30).between(deadline=w.now + 80 * MINUTE))
    w.submit(rented("calm", minutes=30).between(deadline=w.now + 100 * MINUTE))
    assert wanted(w) == ["small/a/on-demand", "small/a/spot"]


def test_no_machine_is_ordered_for_a_job_that_would_miss_its_deadline_on_it() -> None:
    w = world()
    w.submit(rented("late", minutes=30).between(deadline=w.now + 31 * MINUTE))
    assert wanted(w) == []
    w.submit(rented("in time", minutes=30).between(deadline=w.now + 32 * MINUTE))
    assert len(wanted(w)) == 1


def test_the_budget_of_a_pool_bounds_what_is_ordered() -> None:
    hour = PoolBudget(Per.DAY, 800_000)
    w = world(budget=hour, billing=Billing(HOUR))
    w.submit(*[rented(f"a{number}", minutes=30) for number in range(5)])
    assert len(wanted(w)) == 2
    (period,) = w.state.budget_periods.values()
    assert (period.held, period.spent) == (800_000, 0)


def test_the_least_budget_that_a_configuration_may_have_pays_for_one_machine() -> None:
    least = machine_cost(SMALL, Billing(), first_held(Billing(), 90 * SECOND))
    for limit, machines in ((least, 1), (least - 1, 0)):
        w = world(min=1, boot=90 * SECOND, budget=PoolBudget(Per.DAY, limit))
        w.step()
        assert len(wanted(w)) == machines


def test_a_machine_ends_before_the_budget_is_exceeded() -> None:
    w = world(budget=PoolBudget(Per.DAY, 400_000), billing=Billing(SECOND))
    w.submit(rented("a", minutes=10))
    boot(w)
    w.start("a")
    w.wait(seconds=7200)
    assert in_state(w, MachineState.ENDING) == ["cloud-1"]
    (ending,) = w.happened(MachinesEnding)
    assert ending.why == "the budget of the pool is used up"
    machine = w.state.machines[in_state(w, MachineState.ENDING)[0]]
    assert machine.bill(Billing(), ending.at + MINUTE) <= 400_000


def test_a_rate_spreads_orders_over_minutes() -> None:
    w = world(rate=2)
    w.submit(*[rented(f"a{number}") for number in range(5)])
    assert len(wanted(w)) == 2
    w.wait(seconds=61)
    assert len(wanted(w)) == 4


def test_short_jobs_share_the_hour_that_is_paid_anyway() -> None:
    spec = cluster(billing=Billing(HOUR))
    w = World(load, PolicySet(wait=Choice("constant", {"wait": 30 * MINUTE})), (OWNED, spec))
    w.submit(*[a_job(f"a{number}").cpus(4).expected(minutes=5) for number in range(4)])
    w.wait(seconds=1801)
    assert len(wanted(w)) == 1


def test_a_machine_that_turns_out_smaller_than_its_offer_is_not_ordered_again_and_again() -> None:
    w = world()
    w.submit(rented("a", 4))
    boot(w, cpus=2)
    w.wait(seconds=3600)
    end(w)
    w.wait(seconds=3600)
    assert len(wanted(w)) == 1


def test_a_replay_makes_the_same_plans() -> None:
    w = world(SMALL, LARGE, billing=Billing(HOUR))
    w.submit(*[rented(f"a{number}", 2) for number in range(9)])
    boot(w)
    for number in range(9):
        w.start(f"a{number}")
        w.finish(f"a{number}")
    w.wait(seconds=7200)
    end(w)
    again = Replay(load)
    for revision, event in enumerate(w.events, 1):
        assert again.take(revision, event), again.difference
    again.end(len(w.events))
    assert again.difference is None
    assert again.plans > 10


def test_nothing_is_planned_twice_by_the_same_state() -> None:
    w = world()
    w.submit(rented("a"))
    before = len(w.events)
    for _ in range(5):
        w.step()
    assert len(w.events) == before


def test_a_job_waits_for_a_slow_machine_that_was_ordered_although_others_boot_faster() -> None:
    w = world(SMALL, replace(SMALL, type="slow", hour=300_000))
    w.state.pools[CLOUD] = PoolRecord(CLOUD, boots={SMALL.key: (20 * SECOND,) * 3})
    w.submit(rented("a"))
    w.step()
    assert wanted(w) == ["slow/a/on-demand"]


def test_the_expected_start_of_a_job_includes_the_boot_of_its_machine() -> None:
    w = world()
    w.submit(rented("a"))
    w.wait(seconds=30)
    ahead = Snapshot(w.engine)
    starts = run_forward(ahead, w.now, [JobId("a")], as_expected(ahead), 1000)
    assert starts.at == {"a": w.now + 60 * SECOND}
    other = World(load, PolicySet(wait=Choice("constant", {"wait": 10 * MINUTE})), (OWNED, cluster()))
    other.submit(a_job("b").cpus(4).expected(minutes=5))
    ahead = Snapshot(other.engine)
    starts = run_forward(ahead, other.now, [JobId("b")], as_expected(ahead), 1000)
    assert starts.at == {"b": other.now + 10 * MINUTE + 90 * SECOND}
    assert not other.state.machines


def test_why_names_the_machine_that_a_job_waits_for() -> None:
    w = world()
    w.submit(rented("a"))
    assert why(w, "a").startswith("waits for machine cloud-1 (small) of cloud, which was ordered; expected")
    w.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1"))
    assert "which boots" in why(w, "a")


def test_why_says_what_keeps_a_pool_from_ordering() -> None:
    w = world(SMALL, max=1)
    w.submit(rented("a"), rented("b"))
    boot(w)
    assert why(w, "b") == (
        "the pool of cloud has 1 machine, the most that it may have; raise `max`, or wait for one"
    )
    refused = world()
    refused.submit(rented("a"))
    refused.propose(SeeRefused(CLOUD, machine_id("cloud", 1), RefusalCause.QUOTA, "VcpuLimitExceeded"))
    assert "the account may not have more: VcpuLimitExceeded" in why(refused, "a")
    refused.propose(PausePool(CLOUD, "ada", "too dear"))
    assert why(refused, "a") == (
        "the pool of cloud is paused: too dear; resume it with `spill pools resume cloud`"
    )
    poor = world(budget=PoolBudget(Per.DAY, 500_000), billing=Billing(HOUR))
    poor.submit(rented("a"), rented("b"))
    boot(poor)
    assert "the budget of the pool of cloud has 0.10 of 0.50 left" in why(poor, "b")


def test_a_job_is_too_large_only_if_no_offer_could_hold_it() -> None:
    w = world(SMALL, LARGE, max=3)
    w.submit(rented("a", 4))
    boot(w)
    capacity = w.engine.index.capacity.values()
    assert too_large(capacity, rented("b", 16).spec().shape) is None
    assert isinstance(too_large(capacity, rented("c", 17).spec().shape), TooBig)
    assert too_large(capacity, rented("d", 16).tasks(3).spec().shape) is None
    gang = too_large(capacity, rented("e", 16).tasks(4).spec().shape)
    assert isinstance(gang, GangTooBig)
    assert gang.most == 3
    w.submit(rented("x", 17))
    assert "17" in why(w, "x")
    assert w.job("x").extra.hold is None


def test_a_drained_cluster_gives_its_machines_back_as_they_become_empty() -> None:
    w = world(min=1)
    w.submit(rented("one"), rented("two"))
    boot(w)
    w.start("one")
    w.finish("two")
    w.propose(DrainCluster(CLOUD, "ada"))
    w.wait(seconds=10)
    assert len(in_state(w, MachineState.ENDING)) == 1
    assert len(in_state(w, MachineState.READY)) == 1
    w.finish("one")
    w.wait(seconds=10)
    assert len(in_state(w, MachineState.ENDING)) == 2
    end(w)
    w.propose(ResumeCluster(CLOUD, "ada"))
    assert len(in_state(w, MachineState.WANTED)) == 1


def test_machines_that_are_not_ready_are_given_up_when_their_cluster_is_drained() -> None:
    w = world()
    w.submit(rented("one"))
    w.propose(DrainCluster(CLOUD, "ada"))
    assert len(in_state(w, MachineState.ENDING)) == 1


def test_a_cluster_is_removed_only_when_its_machines_are_gone() -> None:
    w = world(min=1)
    boot(w)
    w.propose(RemoveCluster(CLOUD, "ada", Leave.FINISH, "{}"))
    w.wait(seconds=10)
    w.propose(ClearedCluster(CLOUD))
    assert CLOUD in w.state.clusters
    end(w)
    w.propose(ClearedCluster(CLOUD))
    assert CLOUD not in w.state.clusters
    assert CLOUD not in w.state.pools


def test_a_pool_with_machines_keeps_its_provider() -> None:
    w = world(min=1)
    spec = cluster(min=1)
    other = replace(spec, pool=Pool("aws", (SMALL,)))
    for changed in (replace(spec, pool=None), other):
        reply = w.propose(UpdateCluster(changed, "ada"))
        assert isinstance(reply, Refusal)
        assert "only that provider can end" in reply.message
    assert isinstance(w.propose(UpdateCluster(cluster(min=0), "ada")), Done)
    w.propose(PausePool(CLOUD, "ada", end=True))
    end(w)
    assert isinstance(w.propose(UpdateCluster(other, "ada")), Done)


def test_a_call_of_any_python_gets_a_machine_until_one_joined_with_another() -> None:
    w = world(SMALL)
    w.submit(rented("call").needing("python", "python:3.12"))
    assert len(wanted(w)) == 1
    (machine,) = in_state(w, MachineState.WANTED)
    w.propose(SeeMade(CLOUD, machine, "i-1", w.now))
    w.wait(seconds=90)
    w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud", offers=("python", "python:3.11"))
    w.wait(seconds=3600)
    assert (w.where("call"), len(wanted(w))) == (None, 1), "another machine would not help"
    w.submit(rented("other").needing("python", "python:3.11"))
    assert w.where("other") == f"cloud/{machine}" or len(wanted(w)) == 2
