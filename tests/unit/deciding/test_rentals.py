"""What renting a job now would mean on machines of pools, and what break_even makes of it."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.events import MachinesWanted
from spillover.core.pool_proposals import SeeMade
from spillover.core.proposals import UpdateCluster
from spillover.core.records.machines import PoolRecord
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.protocols import Case, Rental
from spillover.deciding.renting.rentals import Rentals
from spillover.deciding.replay import Replay
from spillover.model.cluster import Billing, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineState, Offer, Pool
from spillover.model.reasons import NotInTime, RoomPaid
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, RENTED, World

CLOUD = ClusterName("cloud")
GIB = 2**30
BOOT = 120 * SECOND
FOUR = Offer("four", Resources(4000, 64 * GIB), 4_000_000, "a")
"""Four CPUs, for 1 a CPU and hour."""
UNIT = 1_000_000
HOURLY = Billing(step=HOUR)


def cluster(*offers: Offer, billing: Billing | None = None, **pool: Any) -> ClusterSpec:
    chosen = Pool("process", offers or (FOUR,), **{"max": 10, "boot": BOOT, **pool})
    spec = ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(chosen), billing or Billing(), gangs=True)
    return replace(spec, pool=chosen)


def world(*offers: Offer, coefficient: float = 0.5, backfill: str = "out_of_order", **pool: Any) -> World:
    """A lab with one owned CPU, and a pool of machines of four."""
    wait = Choice("break_even", {"coefficient": coefficient})
    policies = PolicySet(order=Choice("priority"), backfill=Choice(backfill), wait=wait)
    w = World(load, policies, (OWNED, cluster(*offers, **pool)))
    w.agent("n1", cpus=1)
    return w


def rented(name: str, cpus: float = 1, minutes: float = 60) -> JobBuilder:
    """A job that runs on rented machines whatever they cost."""
    return a_job(name).cpus(cpus).burst(Burst.ALWAYS).expected(minutes=minutes)


def make(w: World) -> list[str]:
    """Let the provider make all machines that were ordered."""
    ordered = [each.id for each in w.state.machines.values() if each.state is MachineState.WANTED]
    for machine in ordered:
        w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    return [*ordered]


def boot(w: World, seconds: float = 120) -> None:
    """Let all machines that were ordered be made now, and join after a time."""
    ordered = make(w)
    w.wait(seconds=seconds)
    for machine in ordered:
        w.agent(machine, cpus=4, memory=64 * GIB, cluster="cloud")


def machines(w: World) -> int:
    return sum(len(event.wishes) for event in w.happened(MachinesWanted))


def rental(w: World, job: JobBuilder, minutes: float) -> Rental | None:
    """What renting a job would mean now that asked to start tomorrow, so that no cycle touches it."""
    (waiting,) = w.submit(job.between(not_before=w.now + DAY))
    found = Rentals(Draft(w.state, w.now, 0), w.engine.index, w.engine.policies)
    return found.of(w.state.jobs[waiting], int(minutes * MINUTE))


# --- what renting means


def test_a_slot_on_a_machine_where_others_run_for_longer_costs_nothing() -> None:
    w = world()
    w.submit(rented("long", minutes=120))
    boot(w)
    assert rental(w, a_job("short"), 90) == Rental(0, 0, 0, 3 * UNIT // 2)


def test_beyond_the_time_of_the_others_a_job_pays_its_share() -> None:
    w = world()
    w.submit(rented("long", minutes=60))
    boot(w)
    assert rental(w, a_job("longer"), 90) == Rental(0, 0, UNIT // 2, 3 * UNIT // 2)


def test_a_machine_that_is_paid_to_the_end_of_its_hour_is_free_until_then() -> None:
    w = world(billing=HOURLY)
    w.submit(rented("short", minutes=10))
    boot(w)
    w.wait(seconds=600)
    w.finish("short")
    paid = rental(w, a_job("fits").cpus(4), 40)
    beyond = rental(w, a_job("beyond").cpus(4), 50)
    assert paid == Rental(0, 0, 0, 4 * UNIT * 40 // 60, idle=True)
    assert beyond is not None
    assert beyond.price == 4 * UNIT, "another hour of all of the machine"


def test_an_empty_machine_that_is_paid_by_the_second_costs_what_it_runs_beyond_its_stay() -> None:
    w = world()
    w.submit(rented("short", minutes=10))
    boot(w)
    w.wait(seconds=600)
    w.finish("short")
    found = rental(w, a_job("next").cpus(4), 60)
    assert found is not None
    # It stays empty for one boot time from now in any case; later, after the job as much as before it.
    assert found.price == 4 * UNIT


def test_a_machine_that_is_always_there_costs_nothing() -> None:
    w = world(min=1)
    boot(w)
    assert rental(w, a_job("a").cpus(4), 600) == Rental(0, 0, 0, 40 * UNIT, idle=True)


def test_without_room_a_machine_must_boot_and_is_paid_in_whole_steps() -> None:
    by_second, by_hour = world(), world(billing=HOURLY)
    assert rental(by_second, a_job("a"), 58) == Rental(BOOT, BOOT, UNIT, UNIT * 58 // 60)
    assert rental(by_hour, a_job("a"), 30) == Rental(BOOT, BOOT, UNIT, UNIT // 2)


def test_learned_boot_times_count() -> None:
    w = world()
    seconds = [60, 70, 80, 90, 100, 110, 120, 130, 140, 600]
    boots = {FOUR.key: tuple([each * SECOND for each in seconds])}
    w.state.pools[CLOUD] = replace(w.state.pools.get(CLOUD, PoolRecord(CLOUD)), boots=boots)
    found = rental(w, a_job("a"), 60)
    assert found is not None
    assert (found.boot, found.boot_p90) == (110 * SECOND, 600 * SECOND)


def test_a_machine_that_is_coming_has_room_for_more_and_is_there_sooner() -> None:
    w = world()
    w.submit(rented("first", minutes=60))
    make(w)
    w.wait(seconds=50)
    assert rental(w, a_job("beside"), 30) == Rental(70 * SECOND, 70 * SECOND, 0, UNIT // 2)
    assert rental(w, a_job("large").cpus(4), 28) == Rental(BOOT, BOOT, 2 * UNIT, 4 * UNIT * 28 // 60)


def test_a_pool_that_may_not_order_more_rents_nothing_out() -> None:
    w = world(max=1)
    w.submit(rented("all", cpus=4))
    boot(w)
    assert rental(w, a_job("a"), 60) is None


def test_a_gang_pays_for_all_of_its_machines() -> None:
    w = world()
    found = rental(w, a_job("gang").cpus(3).tasks(2), 58)
    assert found == Rental(BOOT, BOOT, 6 * UNIT, 6 * UNIT * 58 // 60)


def test_rented_capacity_of_another_cluster_that_has_room_costs_what_it_says() -> None:
    w = World(load, PolicySet(wait=Choice("break_even", {"coefficient": 0.5})), (OWNED, RENTED))
    w.agent("v1", cpus=8, cluster="cloud")
    assert rental(w, a_job("a"), 60) == Rental(0, 0, 3_600_000, 3_600_000)


# --- where jobs are placed


@pytest.mark.parametrize(("rules", "where"), [(4, "cloud/cloud-2"), (5, "cloud/cloud-1")])
def test_a_job_goes_to_the_machine_to_whose_bill_it_adds_least(rules: int, where: str) -> None:
    w = world(coefficient=0.01)
    w.submit(rented("long", cpus=2, minutes=120))
    w.submit(rented("short", cpus=3, minutes=30))
    boot(w)
    w.engine.rules = rules
    w.submit(rented("next", minutes=60))  # the second machine would be the better fit, but leave sooner
    assert w.where("next") == where


def test_jobs_of_one_plan_share_the_time_that_the_first_adds() -> None:
    w = world(min=3, max=3)
    boot(w)
    w.propose(UpdateCluster(cluster(max=3, idle=HOUR), "ada"))
    w.submit(*[rented(f"a{number}", minutes=600) for number in range(4)])
    assert {w.where(f"a{number}") for number in range(4)} == {"cloud/cloud-1"}


# --- what break_even makes of it


def with_an_hour_left(w: World) -> None:
    """Let a machine be empty that is paid for another 46 minutes, and let the owned one be busy for ten."""
    w.submit(rented("short", minutes=12))
    boot(w)
    w.wait(seconds=720)
    w.finish("short")
    w.submit(a_job("owned").expected(minutes=10))


def test_an_empty_machine_that_is_paid_is_used_at_once_even_if_owned_capacity_is_near() -> None:
    w = world(billing=HOURLY)
    with_an_hour_left(w)
    w.submit(a_job("patient").expected(minutes=30))
    assert w.where("patient") == "cloud/cloud-1"
    assert w.placed_because("patient") == RoomPaid(0)


def test_each_paid_slot_is_taken_once() -> None:
    w = world(billing=HOURLY)
    with_an_hour_left(w)
    w.submit(*[a_job(f"a{number}").expected(minutes=30) for number in range(5)])
    assert [w.where(f"a{number}") for number in range(5)] == ["cloud/cloud-1"] * 4 + [None]
    assert machines(w) == 1


@pytest.mark.parametrize(("minutes", "where"), [(14, None), (16, "cloud/cloud-1")])
def test_beside_tasks_that_run_longer_half_of_the_patience_counts(minutes: int, where: str | None) -> None:
    w = world()
    w.submit(rented("long", minutes=120))
    boot(w)
    w.submit(a_job("owned").expected(minutes=minutes))
    w.submit(a_job("patient").expected(minutes=60))  # its patience is 30 minutes
    assert w.where("patient") == where
    if where is not None:
        assert w.placed_because("patient") == RoomPaid(15 * MINUTE)


def test_members_of_an_array_take_paid_slots_and_the_others_wait() -> None:
    w = world()
    w.submit(rented("long", cpus=2, minutes=120))
    boot(w)
    w.submit(a_job("owned").expected(minutes=5))
    w.submit(a_job("array").array(0, 2).expected(minutes=60))
    assert w.where("array.0") == w.where("array.1") == "cloud/cloud-1"
    assert machines(w) == 1
    w.wait(seconds=300)
    w.finish("owned")
    assert w.where("array.2") == "onprem/n1"


def test_a_job_is_not_rented_if_owned_capacity_is_free_before_a_machine_is_ready() -> None:
    w = world(coefficient=0.01)
    w.submit(a_job("running").expected(seconds=100))
    w.submit(a_job("next").expected(minutes=30))  # its patience is 18 s
    assert machines(w) == 0
    w.wait(seconds=100)
    w.finish("running")
    assert w.where("next") == "onprem/n1"


def test_a_job_is_rented_if_a_machine_is_ready_long_before_owned_capacity_is_free() -> None:
    w = world(coefficient=0.01)
    w.submit(a_job("running").expected(minutes=30))
    w.submit(a_job("next").cpus(1).expected(minutes=30))
    assert machines(w) == 1
    boot(w)
    assert isinstance(w.placed_because("next"), NotInTime)


@pytest.mark.parametrize(("jobs", "ordered"), [(1, 0), (4, 1)])
def test_a_job_waits_longer_if_it_would_pay_for_all_of_a_machine(jobs: int, ordered: int) -> None:
    w = world()
    w.submit(a_job("running").expected(minutes=50))
    # Each has a patience of 30 minutes; alone on a machine, renting costs four times as much.
    w.submit(*[a_job(f"a{number}").expected(minutes=60) for number in range(jobs)])
    assert machines(w) == ordered


def test_nobody_waits_longer_than_three_times_the_patience_and_a_boot() -> None:
    w = world(coefficient=0.1)
    w.submit(a_job("running").expected(minutes=13))
    w.submit(a_job("alone").expected(minutes=60))
    assert machines(w) == 0
    w.wait(seconds=3 * 6 * 60 + 119)
    assert machines(w) == 0
    w.wait(seconds=2)
    assert machines(w) == 1


@pytest.mark.parametrize("backfill", ["out_of_order", "easy", "conservative"])
def test_a_journal_with_pools_leads_to_the_same_plans(backfill: str) -> None:
    w = world(billing=HOURLY, backfill=backfill)
    for number in range(30):
        w.submit(
            a_job(f"a{number}")
            .cpus(1 + number % 3)
            .priority(number % 4)
            .expected(minutes=5 + 7 * (number % 9))
        )
        if number % 5 == 4:
            boot(w)
        w.wait(seconds=240)
        for each in [*w.state.jobs.values()]:
            if w.where(each.id) is not None and (int(each.id.removeprefix("a")) + number) % 3 == 0:
                w.finish(each.id, ran=240)
    assert any(isinstance(event.why, RoomPaid) for event in w.events if hasattr(event, "why"))
    replay = Replay(load)
    for revision, event in enumerate(w.events, 1):
        assert replay.take(revision, event), replay.difference
    replay.end(len(w.events))
    assert replay.difference is None


def test_plans_of_earlier_rules_do_not_know_what_renting_means() -> None:
    w = world()
    w.engine.rules = 4
    w.submit(rented("long", minutes=120))
    boot(w)
    w.submit(a_job("owned").expected(minutes=20))
    w.submit(a_job("patient").expected(minutes=60))
    assert w.where("patient") is None


class Thrifty:
    """Rents what costs nothing."""

    def wait(self, case: Case) -> int:
        return 0 if case.rental is not None and not case.rental.price else HOUR


def test_policies_of_packages_see_what_renting_means() -> None:
    loading = partial(load, more={"wait.thrifty": Thrifty})
    w = World(loading, PolicySet(wait=Choice("thrifty")), (OWNED, cluster()))
    w.submit(rented("long", cpus=3, minutes=120))
    boot(w)
    w.submit(*[a_job(name).expected(minutes=60) for name in ("free", "dear")])
    assert (w.where("free"), w.where("dear")) == ("cloud/cloud-1", None)
    assert machines(w) == 1
    assert [guard.failures for guard in w.engine.policies.guards] == [0]
