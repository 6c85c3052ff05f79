"""The book of rented machines: what observations mean, in every state, and what a machine costs."""

from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.events import (
    AgentForgotten,
    AnyEvent,
    Back,
    JobRequeued,
    MachineGone,
    MachineJoined,
    MachineMade,
    MachineRefused,
    MachinesDraining,
    MachinesEnding,
    MachinesHeld,
    MachinesWanted,
    PeriodRef,
    PoolOpened,
    PoolPaused,
    Wish,
)
from spillover.core.events.machines import MachineHeld
from spillover.core.pool_proposals import (
    OpenPool,
    PausePool,
    ResumePool,
    SeeGone,
    SeeMade,
    SeeNotice,
    SeePrices,
    SeeRefused,
    SeeUnwanted,
)
from spillover.core.proposals import Outcome, Refusal, Register
from spillover.core.records.jobs import Queued
from spillover.core.records.machines import KEPT, machine_cost
from spillover.core.state import State
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import (
    JoinTerms,
    MachineId,
    MachineState,
    Offer,
    OfferKey,
    Pool,
    RefusalCause,
    machine_id,
)
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import START, World
from spillover.wire.journal import changed_records, load_state

CLOUD = ClusterName("cloud")
SMALL = Offer("small", Resources(4000, 2**40), 1_000_000, "a", family="small")
SPOT = replace(SMALL, spot=True, hour=250_000)
LARGE = Offer("large", Resources(16000, 2**40), 4_000_000, "a", family="large")
POOL = Pool("process", (SMALL, replace(SMALL, zone="b"), SPOT, LARGE), max=8)
SPEC = ClusterSpec(CLOUD, "agents", Role.RENTED, Price(), Billing(step=HOUR), gangs=True, pool=POOL)
M1, M2 = machine_id("cloud", 1), machine_id("cloud", 2)


def world(spec: ClusterSpec = SPEC) -> World:
    return World(load, PolicySet(wait=Choice("zero")), (spec,))


def order(w: World, *machines: MachineId, offer: Offer = SMALL, group: str = "") -> None:
    tell(
        w,
        MachinesWanted(
            CLOUD, w.now, tuple([Wish(each, offer, w.now + 10 * MINUTE, group=group) for each in machines])
        ),
    )


def tell(w: World, *events: AnyEvent) -> None:
    """Write events of a plan into the state."""
    for event in events:
        w.engine.apply(event)
        w.events.append(event)


def state_of(w: World, machine: MachineId = M1) -> MachineState:
    return w.state.machines[machine].state


def ready(w: World, machine: MachineId = M1, cpus: float = 4) -> None:
    w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.agent(machine, cpus=cpus, cluster="cloud")


def restored(w: World) -> State:
    """Return the state as a restart finds it in a checkpoint."""
    records = changed_records(w.state, w.state.dirty)
    return load_state([(kind, key, body) for (kind, key), body in records.items() if body is not None])


def seen(w: World, kind: type[Any]) -> list[Any]:
    return [event for event in w.events if type(event) is kind]


def test_a_machine_is_wanted_then_boots_then_is_ready() -> None:
    w = world()
    order(w, M1)
    assert state_of(w) is MachineState.WANTED
    w.propose(SeeMade(CLOUD, M1, "i-1", w.now))
    assert state_of(w) is MachineState.BOOTING
    w.wait(seconds=40)
    w.agent(M1, cpus=4, cluster="cloud")
    assert state_of(w) is MachineState.READY
    assert w.state.pools[CLOUD].boots == {SMALL.key: (40 * SECOND,)}


def test_an_answer_that_comes_after_the_agent_joined_only_adds_the_id() -> None:
    w = world()
    order(w, M1)
    w.agent(M1, cpus=4, cluster="cloud")
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    assert state_of(w) is MachineState.READY
    assert len(seen(w, MachineMade)) == 1


def test_a_machine_that_was_given_up_and_exists_after_all_is_to_be_destroyed() -> None:
    w = world()
    order(w, M1)
    w.propose(SeeRefused(CLOUD, M1, RefusalCause.LOST, "in no listing"))
    assert state_of(w) is MachineState.REFUSED
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    assert state_of(w) is MachineState.ENDING
    w.propose(SeeGone(CLOUD, M1))
    assert state_of(w) is MachineState.GONE


def test_an_agent_of_a_machine_that_ends_may_not_join() -> None:
    w = world()
    order(w, M1)
    tell(w, MachinesEnding(CLOUD, w.now, (M1,), "not needed"))
    reply = w.propose(Register(CLOUD, NodeName(M1), 9, Resources(4000), (), {}, 0, ()))
    assert isinstance(reply, Refusal)
    assert "is ending" in reply.message
    assert not seen(w, MachineJoined)


def test_no_capacity_closes_one_offer_for_longer_each_time_and_success_opens_it() -> None:
    w = world()
    until = []
    for number in range(1, 7):
        order(w, machine := machine_id("cloud", number))
        w.propose(SeeRefused(CLOUD, machine, RefusalCause.CAPACITY, "no room"))
        until.append((w.state.pools[CLOUD].closed[SMALL.key].until - w.now) // MINUTE)
        w.now = w.state.pools[CLOUD].closed[SMALL.key].until
    assert until == [3, 6, 12, 24, 30, 30]
    assert list(w.state.pools[CLOUD].closed) == [SMALL.key]
    order(w, machine := machine_id("cloud", 9))
    w.propose(SeeMade(CLOUD, machine, "i-9"))
    assert not w.state.pools[CLOUD].closed


@pytest.mark.parametrize("cause", [RefusalCause.CAPACITY, RefusalCause.QUOTA])
def test_refusals_of_machines_that_were_ordered_together_close_their_offer_once(cause: RefusalCause) -> None:
    w = world()
    machines = [machine_id("cloud", number) for number in range(1, 6)]
    order(w, *machines)
    for machine in machines:
        w.propose(SeeRefused(CLOUD, machine, cause, "no room"))
    assert w.state.pools[CLOUD].closed[SMALL.key].until == w.now + 3 * MINUTE
    assert all(w.state.machines[each].state is MachineState.REFUSED for each in machines)


def test_a_quota_closes_all_zones_of_the_family_in_that_market() -> None:
    w = world()
    order(w, M1)
    w.propose(SeeRefused(CLOUD, M1, RefusalCause.QUOTA, "VcpuLimitExceeded"))
    assert sorted(w.state.pools[CLOUD].closed) == ["small/a/on-demand", "small/b/on-demand"]


@pytest.mark.parametrize("cause", [RefusalCause.AUTH, RefusalCause.INVALID])
def test_a_refusal_that_every_order_would_meet_pauses_the_pool(cause: RefusalCause) -> None:
    w = world()
    order(w, M1)
    w.propose(SeeRefused(CLOUD, M1, cause, "bad credentials"))
    assert "bad credentials" in w.state.pools[CLOUD].paused
    w.propose(ResumePool(CLOUD, "ada"))
    assert not w.state.pools[CLOUD].paused


def test_one_refusal_ends_the_other_machines_of_a_gang() -> None:
    w = world()
    order(w, M1, M2, group="g")
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    w.propose(SeeRefused(CLOUD, M2, RefusalCause.QUOTA, "no more"))
    assert state_of(w, M1) is MachineState.ENDING
    assert state_of(w, M2) is MachineState.REFUSED


def test_machines_of_a_gang_that_are_made_after_one_was_refused_do_not_open_the_offer() -> None:
    """Otherwise the gang would be ordered again and again, and each time a part of it be paid."""
    w = world()
    order(w, M1, M2, group="g")
    w.propose(SeeRefused(CLOUD, M2, RefusalCause.QUOTA, "no more"))
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    assert w.state.pools[CLOUD].is_closed(SMALL.key, w.now)


def test_a_machine_that_nobody_remembers_is_found_once() -> None:
    w = world()
    for _ in range(2):
        w.propose(SeeUnwanted(CLOUD, "i-77", "cloud-77"))
        w.propose(SeeUnwanted(CLOUD, "i-78"))
    assert [each.state for each in w.state.machines.values()] == [MachineState.ENDING] * 2


def test_a_machine_that_is_found_after_it_seemed_to_be_gone_is_paid_once() -> None:
    w = world()
    order(w, M1)
    ready(w)
    w.wait(seconds=600)
    w.propose(SeeGone(CLOUD, M1))
    w.propose(SeeUnwanted(CLOUD, f"i-{M1}", M1, None))
    assert state_of(w) is MachineState.ENDING
    w.wait(seconds=3600)
    w.propose(SeeGone(CLOUD, M1))
    assert [(each.paid, each.before) for each in seen(w, MachineGone)] == [
        (SMALL.hour, 0),
        (SMALL.hour, SMALL.hour),
    ]
    assert w.state.machines[M1].cost == 2 * SMALL.hour
    (spend,) = w.state.spends.values()
    assert (spend.machines, spend.paid) == (1, 2 * SMALL.hour)
    assert restored(w).machines == w.state.machines


def test_another_machine_with_the_tags_of_one_that_is_gone_is_paid_in_full() -> None:
    w = world()
    order(w, M1)
    ready(w)
    w.wait(seconds=600)
    w.propose(SeeGone(CLOUD, M1))
    w.propose(SeeUnwanted(CLOUD, "i-another", M1, w.now))
    w.wait(seconds=600)
    w.propose(SeeGone(CLOUD, M1))
    first, second = seen(w, MachineGone)
    assert (second.paid, second.boot, second.before) == (SMALL.hour, SMALL.hour, 0)
    (spend,) = w.state.spends.values()
    assert (spend.machines, spend.paid) == (2, first.paid + second.paid)


def test_tasks_pay_their_share_and_the_rest_is_boot_and_idle_time() -> None:
    w = world()
    order(w, M1)
    w.propose(SeeMade(CLOUD, M1, "i-1", w.now))
    w.wait(seconds=360)
    w.agent(M1, cpus=4, cluster="cloud")
    w.submit(a_job("a").cpus(2).burst(Burst.ALWAYS))
    w.start("a")
    w.wait(seconds=1800)
    w.finish("a", ran=1800)
    assert w.job("a").cost == 250_000  # half of the machine for half an hour
    tell(w, MachinesEnding(CLOUD, w.now, (M1,), "empty"))
    w.propose(SeeGone(CLOUD, M1))
    (gone,) = seen(w, MachineGone)
    assert (gone.paid, gone.boot, gone.useful, gone.interrupted) == (1_000_000, 100_000, 250_000, 0)
    assert gone.idle == 650_000
    (spend,) = w.state.spends.values()
    assert (spend.machines, spend.paid, spend.idle) == (1, 1_000_000, 650_000)


def test_tasks_together_never_pay_more_than_the_machine_costs() -> None:
    w = world(replace(SPEC, pool=replace(POOL, offers=(Offer("m", Resources(4000, 4 * 2**30), 1_000_000),))))
    order(w, M1, offer=Offer("m", Resources(4000, 4 * 2**30), 1_000_000))
    w.agent(M1, cpus=4, memory=4 * 2**30, cluster="cloud")
    w.submit(a_job("wide").cpus(3).memory(2**30).burst(Burst.ALWAYS))
    w.submit(a_job("deep").cpus(1).memory(3 * 2**30).burst(Burst.ALWAYS))
    hours = [w.job(name).extra.placed_on.price.job_hour for name in ("wide", "deep")]  # type: ignore[union-attr]
    assert hours == [750_000, 250_000]


def test_a_machine_that_is_taken_back_returns_its_jobs_without_using_retries() -> None:
    w = world()
    order(w, M1, offer=SPOT)
    ready(w)
    w.submit(a_job("a").burst(Burst.ALWAYS))
    w.start("a")
    w.propose(SeeNotice(CLOUD, M1, w.now + 120 * SECOND))
    assert state_of(w) is MachineState.DRAINING
    assert w.state.agents["cloud/cloud-1"].status == "draining"
    w.finish("a", outcome=Outcome.STOPPED)
    job = w.job("a")
    assert isinstance(job.phase, Queued)
    assert (job.lost, job.extra.interrupted) == (0, 1)


def test_a_machine_that_vanishes_busy_gives_its_jobs_back() -> None:
    w = world()
    order(w, M1, M2)
    ready(w, M1)
    ready(w, M2)
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS))
    w.submit(a_job("b").cpus(4).burst(Burst.ALWAYS))
    w.start("a")
    w.start("b")
    w.wait(seconds=600)
    w.propose(SeeGone(CLOUD, M1, "terminated"))
    w.propose(SeeGone(CLOUD, M2, "spot interruption", interrupted=True))
    assert [(w.job(each).lost, w.job(each).extra.interrupted) for each in "ab"] == [(1, 0), (0, 1)]
    assert [event.why for event in seen(w, JobRequeued)] == [Back.LOST, Back.INTERRUPTED]
    assert len(seen(w, AgentForgotten)) == 2
    assert not w.state.agents
    first, second = seen(w, MachineGone)
    assert second.interrupted > 0
    assert first.paid == first.boot + first.useful + first.interrupted + first.idle


def test_pausing_with_end_stops_everything_and_orders_nothing() -> None:
    w = world()
    order(w, M1, M2)
    ready(w, M1)
    w.submit(a_job("a").burst(Burst.ALWAYS))
    w.start("a")
    w.propose(PausePool(CLOUD, "ada", end=True))
    assert [state_of(w, each) for each in (M1, M2)] == [MachineState.ENDING] * 2
    assert len(seen(w, PoolPaused)) == 1
    w.finish("a", outcome=Outcome.STOPPED)
    assert isinstance(w.job("a").phase, Queued)


def test_there_is_no_pool_to_pause_where_none_is_configured() -> None:
    w = world()
    reply = w.propose(PausePool(ClusterName("onprem"), "ada"))
    assert isinstance(reply, Refusal)
    assert reply.message == "there is no pool 'onprem'; clusters with a pool: cloud"


def test_spot_prices_count_only_for_spot_offers_and_only_when_they_change() -> None:
    w = world()
    told = ((SPOT.key, 300_000), (SMALL.key, 5), (OfferKey("other"), 6))
    w.propose(SeePrices(CLOUD, told))
    w.propose(SeePrices(CLOUD, told))
    assert w.state.pools[CLOUD].prices == {SPOT.key: 300_000}
    assert w.state.pools[CLOUD].hour(SPOT) == 300_000
    assert w.state.pools[CLOUD].hour(SMALL) == 1_000_000


def test_the_budget_of_a_pool_counts_what_machines_hold_and_cost() -> None:
    w = world()
    order(w, M1)
    today, tomorrow = PeriodRef("pool/cloud/day/x", START), PeriodRef("pool/cloud/day/y", START + HOUR)
    tell(w, MachinesHeld(CLOUD, w.now, (MachineHeld(M1, 700_000, w.now + HOUR, today),)))
    tell(w, MachinesHeld(CLOUD, w.now, (MachineHeld(M1, 2_000_000, w.now + 2 * HOUR, tomorrow),)))
    ready(w)
    w.wait(seconds=1)
    w.propose(SeeGone(CLOUD, M1))
    periods = w.state.budget_periods
    assert [(each.held, each.spent) for each in periods.values()] == [(0, 700_000), (0, 300_000)]


def test_boot_times_are_those_configured_until_enough_were_seen() -> None:
    w = world()
    for number, took in enumerate([20, 30, 100, 25], 1):
        order(w, machine := machine_id("cloud", number))
        w.wait(seconds=took)
        w.agent(machine, cluster="cloud")
        if number == 2:
            assert w.state.pools[CLOUD].boot(POOL, SMALL.key) == 90 * SECOND
    assert w.state.pools[CLOUD].boot(POOL, SMALL.key) == 30 * SECOND
    assert w.state.pools[CLOUD].boot(POOL, SMALL.key, 90) == 100 * SECOND


def test_machines_that_are_gone_are_dropped_but_for_the_last_ones() -> None:
    w = world()
    for number in range(1, KEPT + 11):
        order(w, machine := machine_id("cloud", number))
        w.propose(SeeRefused(CLOUD, machine, RefusalCause.CAPACITY, "no"))
    assert list(w.state.machines) == [machine_id("cloud", number) for number in range(11, KEPT + 11)]


def test_a_checkpoint_has_all_of_it() -> None:
    w = world()
    order(w, M1, M2)
    ready(w)
    w.submit(a_job("a").burst(Burst.ALWAYS))
    w.propose(SeeRefused(CLOUD, M2, RefusalCause.CAPACITY, "no"))
    again = restored(w)
    assert again.machines == w.state.machines
    assert again.pools == w.state.pools
    w.propose(SeeGone(CLOUD, M1))
    assert restored(w).spends == w.state.spends


@pytest.mark.parametrize("seconds", [1, 60, 3600, 3601])
def test_a_machine_costs_every_started_step(seconds: int) -> None:
    hours = -(-seconds // 3600)
    assert machine_cost(SMALL, Billing(step=HOUR), seconds * SECOND) == hours * 1_000_000


def test_a_late_refusal_of_a_machine_that_was_ended_is_its_end() -> None:
    w = world()
    order(w, M1)
    tell(w, MachinesEnding(CLOUD, w.now, (M1,), "not needed"))
    w.propose(SeeRefused(CLOUD, M1, RefusalCause.CAPACITY, "no"))
    assert state_of(w) is MachineState.GONE
    assert seen(w, MachineRefused)


def test_what_is_known_of_other_clusters_is_left_alone() -> None:
    w = world()
    order(w, M1)
    other = ClusterName("elsewhere")
    for each in (SeeMade(other, M1, "i"), SeeGone(other, M1), SeeNotice(other, M1, 1)):
        w.propose(each)
    assert state_of(w) is MachineState.WANTED
    assert not seen(w, MachinesDraining)


def test_a_pool_keeps_its_first_key_and_its_machines_the_terms_of_their_order() -> None:
    w = world()
    order(w, M1)
    first, second = JoinTerms("10.0.0.1:7071", "ab" * 32), JoinTerms("10.0.0.2:7071")
    w.propose(OpenPool(CLOUD, b"one", first, "mine"))
    order(w, M2)
    w.propose(OpenPool(CLOUD, b"two", first, "other"))
    w.propose(OpenPool(CLOUD, b"two", second, "other"))
    assert (w.state.pools[CLOUD].key, w.state.pools[CLOUD].terms) == (b"one", second)
    assert w.state.facts.identity == "mine"
    assert [w.state.machines[each].terms for each in (M1, M2)] == [first, first]
    assert len(seen(w, PoolOpened)) == 2
    assert restored(w).machines == w.state.machines


def test_a_node_elsewhere_with_the_name_of_a_machine_is_another_one() -> None:
    owned = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED)
    w = World(load, PolicySet(wait=Choice("never")), (owned, SPEC))
    order(w, M1)
    ready(w)
    empty = w.state.machines[M1].empty_since
    w.agent(M1, cpus=4, cluster="onprem")
    w.submit(a_job("a"))
    w.start("a")
    w.wait(seconds=30)
    w.finish("a", ran=30)
    assert w.state.machines[M1].empty_since == empty
