"""What rented machines cost, and for what: machines are billed, tasks pay their shares, and the rest is shown."""

from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.views.costs import cost_report
from spillover.control.views.machine_costs import machine_costs, paid_for_machines
from spillover.core.pool_proposals import SeeGone, SeeMade
from spillover.core.proposals import Act, Change, StartEpoch
from spillover.model.cluster import Billing, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import Offer, Pool, machine_id
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, SECOND
from spillover.policies.loading import load
from spillover.server.metrics import Metrics
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.api import MachineCostView
from spillover.wire.journal import load_state
from tests.support.inside import Inside

CLOUD = ClusterName("cloud")
POOL = Pool("process", (Offer("small", Resources(4000, 2**34), 3_600_000),), max=4)
"""A machine costs 0.001 a second."""
BY_THE_SECOND = Billing(SECOND)


def rented(billing: Billing) -> ClusterSpec:
    return ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(POOL), billing, pool=POOL)


def world(billing: Billing = BY_THE_SECOND) -> World:
    return World(load, PolicySet(wait=Choice("zero")), (OWNED, rented(billing)))


def booted(w: World, number: int = 1, seconds: int = 100) -> None:
    """Order a machine for a job that takes half of it, and let it boot."""
    w.submit(a_job("a").cpus(2).burst(Burst.ALWAYS))
    w.propose(SeeMade(CLOUD, machine_id("cloud", number), f"i-{number}", w.now))
    w.wait(seconds=seconds)
    w.agent(f"cloud-{number}", cpus=4, cluster="cloud")
    w.start("a")


def costs(w: World, by: str = "pool", since: int | None = None) -> list[MachineCostView]:
    return machine_costs(w.state, by, since, w.now, "USD").rows  # type: ignore[arg-type]


def test_a_machine_that_exists_shows_what_it_would_have_cost_if_it_were_gone_now() -> None:
    w = world()
    booted(w)
    w.wait(seconds=50)
    (row,) = costs(w)
    assert row == MachineCostView("cloud", 1, 0.15, 0.025, 0.1, 0.025, 0.0, 1, 0.15)


def test_a_machine_that_is_gone_counts_once_with_what_was_useful_boot_idle_and_interrupted() -> None:
    w = world()
    booted(w)
    w.wait(seconds=50)
    w.finish("a", ran=50)
    w.submit(a_job("b").cpus(4).burst(Burst.ALWAYS))
    w.start("b")
    w.wait(seconds=30)
    before = costs(w)[0]
    w.propose(SeeGone(CLOUD, machine_id("cloud", 1), "taken back", interrupted=True))
    row = costs(w)[0]
    assert (row.machines, row.paid, row.live, row.so_far) == (1, before.paid, 0, 0.0)
    assert (row.paid, row.boot, row.useful, row.interrupted, row.idle) == (0.18, 0.1, 0.025, 0.03, 0.025)


def test_a_machine_that_never_joined_cost_nothing_but_boot() -> None:
    w = world()
    w.submit(a_job("a").cpus(2).burst(Burst.ALWAYS))
    assert costs(w) == []
    w.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1", w.now))
    w.wait(seconds=70)
    (row,) = costs(w)
    assert (row.paid, row.boot, row.idle) == (0.07, 0.07, 0.0)


def test_an_hour_that_is_paid_counts_whole_and_the_rest_of_it_is_idle() -> None:
    w = world(Billing(HOUR))
    booted(w)
    (row,) = costs(w)
    assert (row.paid, row.boot, row.idle) == (3.6, 0.1, 3.5)


def test_machines_count_for_the_day_on_which_they_went_and_for_today_while_they_exist() -> None:
    w = world()
    booted(w)
    w.finish("a")
    first = w.now
    w.propose(SeeGone(CLOUD, machine_id("cloud", 1)))
    w.wait(seconds=3 * DAY // SECOND)
    w.submit(a_job("later").cpus(4).burst(Burst.ALWAYS))
    w.propose(SeeMade(CLOUD, machine_id("cloud", 2), "i-2", w.now))
    w.wait(seconds=10)
    assert [(row.key, row.machines, row.live) for row in costs(w, "day")] == [
        ("2027-01-15", 1, 0),
        ("2027-01-18", 1, 1),
    ]
    assert [row.key for row in costs(w, "week")] == ["2027-W02", "2027-W03"]
    assert [(row.key, row.machines) for row in costs(w, "month")] == [("2027-01", 2)]
    total = machine_costs(w.state, "pool", None, w.now, "USD").total
    assert (total.key, total.machines, total.so_far) == ("total", 2, 0.01)
    # A time counts from the beginning of its day, because the state adds machines up by day.
    assert [row.machines for row in costs(w, since=first + 1)] == [2]
    assert [row.machines for row in costs(w, since=first + DAY)] == [1]


def test_without_pools_there_is_no_cost_of_machines() -> None:
    w = World(load, PolicySet(wait=Choice("zero")), (OWNED,))
    assert paid_for_machines(w.state, None, w.now) is None
    assert paid_for_machines(world().state, None, w.now) == 0.0


async def test_costs_of_machines_are_kept_as_long_as_those_of_jobs_and_the_counter_never_decreases(
    control: Inside,
) -> None:
    specs = (OWNED, rented(BY_THE_SECOND))
    keeping = Keeping(
        control.loop, control.store.journal, control.store.archive, control.store.audit, Retention(30 * DAY)
    )
    await control.propose(StartEpoch(control.loop.epoch, specs, PolicySet(wait=Choice("zero")), 0))
    for number in range(1, 51):
        (job,) = await control.submit(f"job{number}", burst="always")
        await control.propose(SeeMade(CLOUD, machine_id("cloud", number), f"i-{number}", control.loop.now()))
        control.clock.pass_by(20)
        await control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
        await control.propose(SeeGone(CLOUD, machine_id("cloud", number)))
        control.clock.pass_by(DAY // SECOND - 20)
    before = counted(control)
    await keeping.sweep()
    state = control.loop.state
    assert len(state.spends) == 30 + 1, "and one sum of all days before"
    assert machine_costs(state, "pool", None, control.loop.now(), "USD").total.paid == 30 * 0.02
    assert before == counted(control) == 50 * 0.02
    applied = control.loop.applied
    await keeping.sweep()
    assert control.loop.applied == applied, "there is nothing more to drop"
    await control.loop.checkpoints.write()
    journal = control.store.journal
    pages = [page async for page in journal.records((await journal.load()).checkpoint)]
    assert load_state([record for page in pages for record in page]).spends == state.spends


def counted(control: Inside) -> float:
    """Return what the counter of all costs of machines shows."""
    registry = Metrics(control.loop).registry
    parts = [
        registry.get_sample_value("spill_machine_cost_total", {"pool": "cloud", "what": what})
        for what in ("useful", "boot", "idle", "interrupted")
    ]
    return round(sum([part or 0.0 for part in parts]), 6)


async def test_costs_of_tasks_say_what_the_machines_cost_and_do_not_count_it_again(control: Inside) -> None:
    specs = (OWNED, rented(BY_THE_SECOND))
    await control.propose(StartEpoch(control.loop.epoch, specs, PolicySet(wait=Choice("zero")), 0))
    await control.submit("a", burst="always")
    await control.propose(SeeMade(CLOUD, machine_id("cloud", 1), "i-1", control.loop.now()))
    control.clock.pass_by(20)
    report = await cost_report(control.loop, control.store.archive, "cluster", None, "USD")
    assert (report.machines, report.total.cost, report.total.running) == (0.02, 0.0, 0.0)
    limited = await cost_report(control.loop, control.store.archive, "cluster", None, "USD", "vision")
    assert limited.machines is None
