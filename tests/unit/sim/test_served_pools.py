"""Back-tests of a server with pools: its machines are rented anew, as far as the server tells how."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from spillover.control.controllers.archiving import finished_of
from spillover.control.views.clusters import agent_view, cluster_view
from spillover.control.views.past import past_job
from spillover.control.views.pools import pool_views
from spillover.core.apply import apply
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.proposals import StartEpoch
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.renting.offers import ASSUMED
from spillover.forms.policystring import read_policies
from spillover.model.budget import Per
from spillover.model.cluster import Billing, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst, Shape
from spillover.model.pools import Offer, OfferKey, Pool, PoolBudget
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.sim.estimates import Told
from spillover.sim.pools import Boots, SimulatedPool
from spillover.sim.runner import simulate
from spillover.sim.setting import FleetMachine, Scene, Site
from spillover.sim.studies.backtest import run
from spillover.sim.studies.past import PastJobs, from_journal
from spillover.sim.studies.served import Ruling, site_from
from spillover.sim.studies.served_pools import assumed
from spillover.sim.trace import Own, TraceJob
from spillover.wire.api import AgentView, ClusterView, PastJob, PoolView

T = TypeVar("T")
BEGIN = 20_000 * DAY
ONPREM, CLOUD = ClusterName("onprem"), ClusterName("cloud")
GIB = 2**30
SMALL = Offer("small", Resources(4000, 16 * GIB), 400_000, "a", words=("fast",), labels={"rack": "r1"})
SPOT = Offer("small", Resources(4000, 16 * GIB), 130_000, "b", spot=True)
POOL = Pool(
    "process",
    (SMALL, SPOT),
    max=6,
    boot=2 * MINUTE,
    join_within=20 * MINUTE,
    idle=5 * MINUTE,
    budget=PoolBudget(Per.DAY, 9 * MONEY),
    rate=4,
)
ZERO = read_policies("wait=zero")


def a_cluster(pool: Pool, name: ClusterName = CLOUD, kind: str = "agents") -> ClusterSpec:
    billing = Billing(MINUTE, 5 * MINUTE)
    return ClusterSpec(name, kind, Role.RENTED, pool_price(pool), billing, gangs=True, pool=pool)


def a_site(pool: Pool = POOL, **provider: Any) -> Site:
    machine = FleetMachine(ONPREM, NodeName("n1"), Resources(4000, 16 * GIB))
    clusters = ClusterSpec(ONPREM, "agents", Role.OWNED), a_cluster(pool)
    return Site(clusters, (machine,), pools={CLOUD: SimulatedPool(pool, **provider)})


def some_jobs(needs: tuple[str, ...] = ()) -> list[TraceJob]:
    """Jobs of an hour and a half, of which one machine takes a part."""
    shape = Shape(Resources(2000, GIB), needs, burst=Burst.AUTO)
    own = Own(shape, "train", "default", 0)
    return [
        TraceJob(
            str(at), BEGIN + at * MINUTE, (3 + at % 7) * MINUTE, 0, 2000, 0, GIB, "ada", "vision", own=own
        )
        for at in range(90)
    ]


class Server:
    """What a server would tell that did what a simulation did."""

    def __init__(self, site: Site, jobs: Sequence[TraceJob], *, until: int = 10**19) -> None:
        self.state = State()
        self._told: list[PastJob] = []
        self._until = until
        simulate(jobs, Scene(site, ZERO, begin=BEGIN), self._hear)

    def _hear(self, now: int, events: Sequence[AnyEvent]) -> None:
        if now > self._until:
            return
        for event in events:
            apply(self.state, event)
            if isinstance(event, JobEnded) and (row := finished_of(self.state.jobs[event.job])) is not None:
                self._told.append(past_job(row))

    @property
    def pools(self) -> list[PoolView]:
        return _over_the_wire(pool_views(self.state, self.state.facts.now), list[PoolView])

    @property
    def clusters(self) -> list[ClusterView]:
        views = [cluster_view(self.state, each) for each in self.state.facts.clusters]
        return _over_the_wire(views, list[ClusterView])

    @property
    def agents(self) -> list[AgentView]:
        views = [agent_view(self.state, each, None, None) for each in self.state.agents.values()]
        return _over_the_wire(views, list[AgentView])

    @property
    def site(self) -> Site:
        return site_from(self.clusters, self.agents, self.pools)

    def history(self, site: Site | None = None) -> PastJobs:
        self._told.sort(key=lambda job: -int(job.id))
        return from_journal(_over_the_wire(self._told, list[PastJob]), self.site if site is None else site)


def _over_the_wire(views: list[Any], kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(views), type=kind)


def earlier(views: Sequence[PoolView]) -> list[PoolView]:
    """The same as a server of an earlier release tells it."""
    told = msgspec.to_builtins(list(views))
    for view in told:
        for name in ("join_within_s", "idle_s", "rate", "budget", "budget_per"):
            del view[name]
        for offer in view["offers"]:
            del offer["offers"], offer["labels"]
    return msgspec.convert(told, list[PoolView])


def test_a_pool_is_simulated_as_its_server_tells() -> None:
    server = Server(a_site(), [])
    found = server.site.pools[CLOUD].pool
    offers = tuple([replace(each, words=tuple(sorted({*each.words, *ASSUMED}))) for each in POOL.offers])
    labelled = tuple([replace(each, labels=each.agent_labels) for each in offers])
    assert found == replace(POOL, offers=labelled)
    (_, cloud) = server.site.clusters
    assert (cloud.pool, cloud.billing, cloud.gangs) == (found, Billing(MINUTE, 5 * MINUTE), True)
    assert cloud.price == pool_price(found)


def test_what_the_server_did_with_its_pool_happens_again() -> None:
    server = Server(a_site(), some_jobs())
    history = server.history()
    found = run(history, Ruling(ZERO), [("wait=never", read_policies("wait=never"))], Told.THEN)
    pool = found.really.statistics.pool
    assert pool is not None
    assert pool.machines > 0
    assert found.really.statistics.never_ran == 0
    rented, before = found.really.statistics.rented_jobs, found.happened.statistics.rented_jobs
    assert abs(rented - before) < before / 5
    # Bills of machines are more than the shares that jobs pay, and only shares can be compared with what happened.
    assert found.really.statistics.rented_cost > found.happened.statistics.rented_cost
    assert found.error.cost_share is not None
    assert abs(found.error.cost_share) < 0.2
    assert abs(found.error.mean_wait_s) < 60
    assert found.policies[0].statistics.rented_cost == 0


def test_machines_of_the_pool_that_are_up_now_are_no_machines_of_the_site() -> None:
    server = Server(a_site(), some_jobs(), until=BEGIN + 30 * MINUTE)
    up = [each for each in server.agents if each.cluster == CLOUD]
    assert len(up) > 1
    assert [(each.cluster, each.name) for each in server.site.machines] == [(ONPREM, "n1")]
    remarks = server.history().remarks
    assert not [each for each in remarks if "no longer exist" in each or "without machines" in each]


def test_a_machine_that_joined_the_cluster_of_a_pool_by_hand_stays() -> None:
    server = Server(a_site(), some_jobs(), until=BEGIN + 30 * MINUTE)
    agents = [*server.agents, msgspec.structs.replace(server.agents[0], name="byhand", cluster="cloud")]
    machines = site_from(server.clusters, agents, server.pools).machines
    assert [(each.cluster, each.name) for each in machines] == [(ONPREM, "n1"), (CLOUD, "byhand")]


def test_boot_times_that_were_learned_are_those_of_the_simulation() -> None:
    server = Server(a_site(boots={SMALL.key: Boots(10 * MINUTE, 14 * MINUTE)}), some_jobs())
    (view,) = server.pools
    told = {each.type + each.zone: each for each in view.offers}
    assert told["smalla"].boot_p50_s == 120, "spot machines are cheaper, so none was seen"
    pool = replace(POOL, offers=(SMALL,))
    slow = Server(a_site(pool, boots={SMALL.key: Boots(10 * MINUTE, 14 * MINUTE)}), some_jobs())
    boots = slow.site.pools[CLOUD].boots[SMALL.key]
    assert 8 * MINUTE < boots.half < 12 * MINUTE
    assert boots.half < boots.late < 20 * MINUTE
    simulated = slow.site.pools[CLOUD].pool
    assert simulated.boot == boots.half
    assert simulated.join_within >= 4 * boots.late, "a slow boot is no failed one"


def test_the_words_of_machines_that_joined_decide_where_jobs_run() -> None:
    needy = some_jobs(("fast",))
    pool = replace(POOL, offers=(SMALL,))
    told = Server(a_site(pool), needy).history()
    assert run(told, Ruling(ZERO), [], Told.THEN).really.statistics.never_ran == 0


def test_a_server_of_an_earlier_release_is_simulated_with_what_it_tells() -> None:
    pool = replace(POOL, offers=(SMALL,))
    server = Server(a_site(pool), some_jobs(("fast",)), until=BEGIN + 40 * MINUTE)
    views = earlier(server.pools)
    site = site_from(server.clusters, server.agents, views)
    found = site.pools[CLOUD].pool
    assert (found.idle, found.budget, found.rate, found.max, found.boot) == (
        None,
        None,
        0,
        6,
        site.pools[CLOUD].boots[SMALL.key].half,
    )
    assert found.offers[0].words == ("fast",), "those of the machines that are up"
    history = server.history(site)
    assert run(history, Ruling(ZERO), [], Told.THEN).really.statistics.never_ran == 0
    assert "this server is of an earlier release and does not tell all about its pools" in " ".join(
        assumed(views)
    )


def test_a_server_without_pools_is_simulated_as_before() -> None:
    server = Server(Site((ClusterSpec(ONPREM, "agents", Role.OWNED),), a_site().machines), some_jobs())
    assert server.site == site_from(server.clusters, server.agents)
    assert server.site.pools == {}
    assert list(assumed([])) == []


def test_whole_clusters_are_simulated_as_machines_and_those_that_are_up_are_left_out() -> None:
    node = Offer("std", Resources(4000, 16 * GIB), 400_000, nodes=4, least=1, cluster_hour=100_000)
    template = a_cluster(Pool("fake", (node,), max=2), ClusterName("burst"), "kubernetes")
    made = replace(template, name=ClusterName("burst-1"), pool=None)
    engine = Engine(State(), load)
    engine.step(BEGIN, [StartEpoch(1, (template, made), ZERO)])
    state = engine.state
    pools = _over_the_wire(pool_views(state, BEGIN), list[PoolView])
    ours, theirs = (cluster_view(state, each) for each in (template, made))
    assert len(site_from([ours, theirs], [], pools).clusters) == 2, "spill.yaml has a cluster of that name"
    site = site_from([ours, msgspec.structs.replace(theirs, configured=False)], [], pools)
    assert [each.name for each in site.clusters] == ["burst"]
    pool = site.pools[ClusterName("burst")].pool
    assert (pool.max, pool.offers[0].nodes, pool.offers[0].hour) == (8, 0, 425_000)
    assert site.clusters[0].kind == "agents"
    told = " ".join(assumed(pools))
    assert "nodes of whole clusters are simulated as machines that boot and end alone" in told


def test_the_report_says_what_was_assumed_of_pools() -> None:
    server = Server(a_site(), [])
    first, second = assumed(server.pools)
    assert first == (
        "machines of pools are rented anew (cloud), from none at the beginning, at the prices of now; they boot as the last "
        "ones did, all of them join, no order is refused and no spot machine is taken back"
    )
    assert second.startswith("the cost of simulations is that of whole machines of pools")


@pytest.mark.parametrize(("half", "late"), [(90, 90), (90, 180), (0, 0)])
def test_simulated_boots_vary_as_those_that_were_seen(half: int, late: int) -> None:
    boots = {OfferKey("small/a/on-demand"): Boots(half * SECOND, late * SECOND)}
    pool = replace(POOL, offers=(SMALL,), max=200, rate=0, budget=None)
    server = Server(a_site(pool, boots=boots), some_jobs())
    known = sorted(server.state.pool(CLOUD).boots.get(SMALL.key, ()))
    assert known
    assert known[0] <= half * SECOND * 1.2
    if late > half:
        assert known[-1] > known[0] * 1.2
    assert known[-1] <= max(1, late) * 4 * SECOND < HOUR


def test_machines_that_are_always_there_are_paid_until_the_last_job_ends() -> None:
    pool = replace(POOL, offers=(SMALL,), min=2, budget=None)
    found = run(Server(a_site(pool), some_jobs()).history(a_site(pool)), Ruling(ZERO), [], Told.THEN).really
    numbers = found.statistics.pool
    assert numbers is not None
    first, last = BEGIN, max(each.end for each in found.outcomes)
    assert numbers.paid_hours >= 2 * (last - first) / HOUR
    parts = numbers.useful_hours + numbers.boot_hours + numbers.idle_hours + numbers.interrupted_hours
    assert parts == pytest.approx(numbers.paid_hours)
