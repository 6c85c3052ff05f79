"""What people see of pools: machines, offers, pauses, and what would happen now."""

from typing import Any

from msgspec.structs import replace

from spillover.control.views.clusters import agent_view, cluster_view
from spillover.control.views.pools import planned_views, pool_summaries, pool_views
from spillover.core.pool_proposals import PausePool, SeeMade, SeeRefused
from spillover.deciding.whatif import Snapshot
from spillover.model.cluster import Billing, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import Offer, Pool, RefusalCause, machine_id
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.api import RentedView
from tests.support.pools.worlds import boot, rented
from tests.support.pools.worlds import world as pool_world

CLOUD = ClusterName("cloud")
SMALL = Offer("small", Resources(4000, 2**34), 400_000, "a")


def world(**pool: Any) -> World:
    chosen = Pool("process", (SMALL, replace(SMALL, zone="b")), **{"max": 4, **pool})
    spec = ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(chosen), Billing(HOUR), pool=chosen)
    return World(load, PolicySet(wait=Choice("zero")), (OWNED, spec))


def test_a_pool_shows_its_machines_with_what_they_cost_and_when_they_come_and_go() -> None:
    w = world()
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS))
    (pool,) = pool_views(w.state, w.now)
    (machine,) = pool.machines
    assert (pool.cluster, pool.provider, pool.state, pool.paused) == ("cloud", "process", "open", None)
    assert (machine.id, machine.state, machine.node, machine.cost) == ("cloud-1", "wanted", None, 0.0)
    assert machine.ready_at is not None
    w.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1", w.now))
    w.wait(seconds=90)
    w.agent("cloud-1", cpus=4, cluster="cloud")
    w.start("a")
    (machine,) = pool_views(w.state, w.now)[0].machines
    assert (machine.state, machine.node, machine.tasks, machine.cost) == ("ready", "cloud-1", 1, 0.4)
    assert (machine.ready_at, machine.leaves_at) == (None, None)
    w.finish("a")
    (machine,) = pool_views(w.state, w.now)[0].machines
    assert machine.leaves_at is not None


def test_a_machine_that_is_always_there_is_not_said_to_be_given_back() -> None:
    w = world(min=1)
    w.step()
    w.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1", w.now))
    w.agent("cloud-1", cpus=4, cluster="cloud")
    (machine,) = pool_views(w.state, w.now)[0].machines
    assert (machine.leaves_at, machine.reason) == (None, "empty; the pool always has 1 machine")


def test_a_machine_that_is_kept_for_a_gang_says_so() -> None:
    w = pool_world(min=2, max=3)
    w.step()
    boot(w)
    w.submit(rented("a", minutes=60))
    w.submit(rented("g").tasks(2))
    shown = {each.id: (each.leaves_at, each.reason) for each in pool_views(w.state, w.now)[0].machines}
    assert shown["cloud-2"] == (None, "kept for g, until it starts")


def test_a_cluster_without_agents_is_empty_until_machines_are_coming() -> None:
    w = world()
    assert [cluster_view(w.state, spec).state for spec in w.state.facts.clusters] == ["EMPTY", "EMPTY"]
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS))
    assert [cluster_view(w.state, spec).state for spec in w.state.facts.clusters] == ["EMPTY", "PROVISIONING"]


def test_a_pool_shows_which_offers_are_closed_and_why_it_is_paused() -> None:
    w = world()
    w.submit(a_job("a").burst(Burst.ALWAYS))
    w.propose(SeeRefused(CLOUD, machine_id("cloud", 1), RefusalCause.CAPACITY, "none left"))
    (pool,) = pool_views(w.state, w.now)
    assert [each.reason for each in pool.offers] == ["capacity: none left", ""]
    w.propose(PausePool(CLOUD, "ada", "too dear"))
    (pool,) = pool_views(w.state, w.now)
    assert (pool.state, pool.paused) == ("paused", "too dear")


def test_a_plan_shows_what_a_paused_pool_would_order_and_changes_nothing() -> None:
    w = world()
    w.propose(PausePool(CLOUD, "ada"))
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS), a_job("b").cpus(4).burst(Burst.ALWAYS))
    (order,) = planned_views(Snapshot(w.engine), w.now)
    assert (order.action, order.offer, order.machines) == (
        "order",
        "small/a/on-demand",
        ["cloud-1", "cloud-2"],
    )
    assert order.hour == 0.8
    assert not w.state.machines
    assert w.state.pools[CLOUD].paused


def test_an_overview_counts_machines_by_state_with_what_they_cost_an_hour() -> None:
    w = world()
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS), a_job("b").cpus(4).burst(Burst.ALWAYS))
    w.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1", w.now))
    w.agent("cloud-1", cpus=4, cluster="cloud")
    (pool,) = pool_summaries(w.state, w.now)
    assert (pool.cluster, pool.state, pool.machines, pool.hour) == (
        "cloud",
        "open",
        {"wanted": 1, "ready": 1},
        0.8,
    )
    w.propose(PausePool(CLOUD, "ada", "too dear"))
    (pool,) = pool_summaries(w.state, w.now)
    assert (pool.state, pool.paused) == ("paused", "too dear")


def test_an_agent_shows_the_machine_that_was_rented_for_it() -> None:
    w = world()
    w.submit(a_job("a").cpus(4).burst(Burst.ALWAYS))
    w.agent("cloud-1", cpus=4, cluster="cloud")
    w.agent("n1", cpus=4)
    rented, own = [agent_view(w.state, node, None, None) for node in w.state.agents.values()]
    assert rented.machine == RentedView("small", "a", False, "ready", 0.4)
    assert own.machine is None
