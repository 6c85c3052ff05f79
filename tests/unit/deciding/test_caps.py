"""Jobs that a cap concerns: what is held, what waits and why, and when it is tried again."""

from msgspec.structs import replace

from spillover.core.events import CostHeld, JobEnded
from spillover.core.proposals import Outcome, Reclaim, StartEpoch, Submit
from spillover.core.records.jobs import Running
from spillover.deciding.budgets.check import REFUSALS
from spillover.deciding.explain.explain import explain
from spillover.deciding.forecast.costs import quote
from spillover.deciding.whatif import Snapshot, Trial, try_jobs
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK, Burst, Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoom, OverBudget, OverMaxCost, PastCap, TooDear
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
"""1 a second, for each CPU."""
ZERO = PolicySet(wait=Choice("zero"))
BEYOND = 40
"""Seconds that a task may run past its walltime: its grace, and the slack of its agent."""


def a_world(*budgets: Budget, rented: tuple[ClusterSpec, ...] = (CLOUD,), cpus: float = 4) -> World:
    """Owned capacity that is full, and rented capacity with room."""
    world = World(load, ZERO, (OWNED, *rented), budgets=budgets)
    world.agent("n1", cpus=1)
    world.submit(a_job("full").burst(Burst.NEVER))
    for spec in rented:
        world.agent("v1", cpus=cpus, cluster=spec.name)
    return world


def per(period: Per, limit: int, name: str = "default", of: Of = Of.PROJECT) -> Budget:
    return Budget(of, name, period, limit * MONEY)


def limited(name: str, seconds: int) -> JobBuilder:
    return a_job(name).terms(walltime=seconds * SECOND)


def held(world: World) -> list[tuple[str, int, int | None]]:
    return [(event.job, event.amount // MONEY, event.limit) for event in world.happened(CostHeld)]


def reason_of(world: World, job: str) -> object:
    return explain(world.engine, world.job(job)).reason


def test_what_a_job_can_cost_at_its_walltime_is_held_and_settled_by_what_it_cost() -> None:
    world = a_world(per(Per.MONTH, 500))
    world.submit(limited("a", 60))
    assert held(world) == [("a", 60 + BEYOND, None)]
    (period,) = world.state.budget_periods.values()
    assert (period.spent, period.held) == (0, 100 * MONEY)
    world.start("a")
    world.finish("a", ran=20)
    assert (period.spent, period.held, period.over) == (20 * MONEY, 0, 0)
    assert world.job("a").extra.hold is None


def test_jobs_that_no_cap_concerns_hold_nothing() -> None:
    world = a_world(per(Per.MONTH, 500, "vision"))
    world.submit(limited("a", 60))
    assert world.where("a") == "cloud/v1"
    assert held(world) == []


def test_a_job_that_would_pass_a_budget_waits_for_owned_capacity_and_says_so_with_the_numbers() -> None:
    world = a_world(per(Per.MONTH, 150))
    world.submit(limited("a", 60), limited("b", 60))
    assert world.where("a") == "cloud/v1"
    assert world.where("b") is None
    said = explain(world.engine, world.job("b"))
    assert isinstance(said.reason, OverBudget)
    assert (said.reason.cost, said.reason.left, said.reason.limit) == (100 * MONEY, 50 * MONEY, 150 * MONEY)
    assert str(said.reason) == (
        "renting it could cost up to 100.00 (1m walltime, 10s grace, 30s to confirm its end); project "
        "default has 50.00 of 150.00 per month left until "
        "2027-02-01 00:00:00 UTC; it waits for owned capacity or the budget"
    )
    assert [verdict.reason for verdict in said.verdicts if verdict.role is Role.RENTED] == [said.reason]
    world.start("full")
    world.finish("full")
    assert world.where("b") == "onprem/n1"


def test_what_a_hold_leaves_when_it_is_settled_goes_to_the_next_at_once() -> None:
    world = a_world(per(Per.DAY, 150))
    world.submit(limited("a", 60), limited("b", 60))
    world.start("a")
    world.finish("a", ran=10)
    assert world.where("b") == "cloud/v1"


def test_a_hold_that_is_let_go_on_a_machine_that_is_gone_lets_others_be_rented_elsewhere() -> None:
    spot = replace(CLOUD, name=ClusterName("spot"), price=Price(cpu_hour=7200 * MONEY))
    world = a_world(per(Per.DAY, 150), rented=(CLOUD, spot), cpus=1)
    world.submit(limited("a", 60), limited("b", 10).terms(retry=Retry(0, 0)))
    world.start("a")
    assert world.where("b") is None
    world.agent("v1", cpus=0.5, cluster="cloud")  # comes back without its task, and with no room for another
    assert world.where("b") == "spot/v1"


def test_when_a_period_ends_what_waited_for_its_budget_is_rented_without_anybody_asking() -> None:
    world = a_world(per(Per.DAY, 150))
    world.submit(limited("a", 60), limited("b", 60))
    world.start("a")
    midnight = (world.now // DAY + 1) * DAY
    assert world.engine.next_time() <= midnight
    world.wait(seconds=(midnight - world.now) / SECOND - 1)
    assert world.where("b") is None
    world.wait(seconds=1)
    assert world.where("b") == "cloud/v1"
    assert [period.key.rpartition("/")[2] for period in world.state.budget_periods.values()] == [
        "2027-01-15",
        "2027-01-16",
    ]


def test_a_job_that_may_never_be_rented_does_not_keep_those_behind_it_waiting_past_the_period() -> None:
    world = a_world(per(Per.DAY, 110))
    world.submit(limited("spends", 60), limited("dear", 60).max_cost(MONEY), limited("behind", 60))
    assert (world.where("spends"), world.where("dear"), world.where("behind")) == ("cloud/v1", None, None)
    assert isinstance(reason_of(world, "dear"), OverMaxCost)
    midnight = (world.now // DAY + 1) * DAY
    world.wait(seconds=(midnight - world.now) / SECOND)
    assert (world.where("dear"), world.where("behind")) == (None, "cloud/v1")


def test_a_job_behind_many_that_their_max_cost_refuses_is_looked_at_when_the_period_ends() -> None:
    world = a_world(per(Per.DAY, 150))
    dear = [limited(f"dear{number}", 60).max_cost(MONEY) for number in range(REFUSALS)]
    world.submit(limited("first", 60), *dear, limited("behind", 60))
    assert world.where("behind") is None
    assert world.engine.next_time() == (world.now // DAY + 1) * DAY


def test_an_old_period_is_forgotten_once_nothing_is_held_in_it() -> None:
    world = a_world(per(Per.DAY, 1000))
    world.submit(limited("a", 60))
    world.start("a")
    world.wait(seconds=DAY / SECOND)
    assert len(world.state.budget_periods) == 1
    world.finish("a", ran=60)
    assert not world.state.budget_periods


def test_a_job_without_a_walltime_is_given_the_one_that_the_rest_of_its_cap_pays_for() -> None:
    world = a_world()
    world.submit(a_job("a").max_cost(1000 * MONEY))
    assert held(world) == [("a", 1000, (1000 - BEYOND) * SECOND)]
    world.start("a")
    assert world.job("a").walltime == 960 * SECOND
    world.wait(seconds=960 + BEYOND)
    phase = world.job("a").phase
    assert isinstance(phase, Running)
    assert phase.stopping == "walltime"
    world.finish("a", outcome=Outcome.STOPPED, ran=1000)
    (ending,) = world.happened(JobEnded)
    assert ending.why == PastCap(960 * SECOND)
    assert ending.cost == 1000 * MONEY


def test_what_is_given_is_whole_steps_of_billing() -> None:
    spec = replace(CLOUD, billing=Billing(step=MINUTE, minimum=5 * MINUTE))
    world = a_world(rented=(spec,))
    world.submit(a_job("a").max_cost(1000 * MONEY))
    assert held(world) == [("a", 960, (960 - BEYOND) * SECOND)]


def test_less_than_a_minute_or_than_what_is_expected_is_not_worth_renting() -> None:
    world = a_world()
    world.submit(a_job("short").max_cost((59 + BEYOND) * MONEY))
    world.submit(a_job("long").max_cost(1000 * MONEY).expected(minutes=30))
    assert held(world) == []
    reason = reason_of(world, "long")
    assert isinstance(reason, OverMaxCost)
    assert (reason.runs, reason.cost, reason.limit) == (30 * MINUTE, (1800 + BEYOND) * MONEY, 1000 * MONEY)
    assert str(reason) == (
        "renting it could cost at least 1840.00 (30m at least, 10s grace, 30s to confirm its end); "
        "its max_cost is 1000.00; it waits for owned capacity"
    )


def test_earlier_attempts_count_against_max_cost() -> None:
    world = a_world()
    world.submit(limited("a", 60).max_cost(150 * MONEY).terms(retry=Retry(1, 0)))
    world.start("a")
    world.finish("a", 1, ran=60)
    assert world.job("a").cost == 60 * MONEY
    reason = reason_of(world, "a")
    assert isinstance(reason, OverMaxCost)
    assert reason.left == 90 * MONEY
    assert "of which 90.00 is left" in str(reason)
    assert [(paid.cluster, paid.amount) for paid in world.job("a").extra.paid] == [("cloud", 60 * MONEY)]


def test_max_cost_is_for_each_member_of_an_array_and_a_budget_for_all_of_them() -> None:
    world = a_world(per(Per.MONTH, 250))
    world.submit(limited("a", 60).max_cost(100 * MONEY).array(1, 4))
    assert held(world) == [("a.1", 100, None), ("a.2", 100, None)]
    assert isinstance(reason_of(world, "a"), OverBudget)


def test_a_smaller_job_behind_one_that_is_too_dear_is_rented() -> None:
    world = a_world(per(Per.MONTH, 250))
    world.submit(limited("big", 600), limited("small", 60))
    assert world.where("big") is None
    assert world.where("small") == "cloud/v1"


def test_a_user_has_a_budget_over_all_projects() -> None:
    world = a_world(per(Per.EVER, 150, "ada", Of.USER))
    world.submit(limited("a", 60).project("p"), limited("b", 60).project("q"))
    assert world.where("b") is None
    reason = reason_of(world, "b")
    assert isinstance(reason, OverBudget)
    assert "user ada has 50.00 of 150.00 left; it waits" in str(reason)


def test_a_job_that_only_rented_clusters_could_run_and_no_cap_ever_pays_for_never_runs() -> None:
    world = a_world(per(Per.MONTH, 150))
    world.submit(limited("a", 60).burst(Burst.ALWAYS).max_cost(99 * MONEY))
    world.submit(limited("b", 600).burst(Burst.ALWAYS))
    dear = reason_of(world, "a")
    assert isinstance(dear, TooDear)
    assert str(dear) == (
        "only cloud could run it, and renting it could cost up to 100.00 (1m walltime, 10s grace, 30s to "
        "confirm its end); its max_cost is 99.00"
    )
    other = reason_of(world, "b")
    assert isinstance(other, TooDear)
    assert other.cap == "the budget of project default"
    verdicts = explain(world.engine, world.job("b")).verdicts
    assert str(verdicts[-1].reason).endswith(
        "150.00 per month left until 2027-02-01 00:00:00 UTC, which is never enough"
    )


def test_a_job_that_must_be_rented_is_not_told_to_wait_for_owned_capacity() -> None:
    world = a_world(per(Per.MONTH, 150))
    world.submit(limited("a", 60), limited("b", 60).burst(Burst.ALWAYS))
    reason = reason_of(world, "b")
    assert isinstance(reason, OverBudget)
    assert not reason.owned
    assert str(reason).endswith("2027-02-01 00:00:00 UTC; it waits for the budget")


def test_the_most_that_is_quoted_is_what_would_be_held() -> None:
    world = a_world(per(Per.MONTH, 500))
    tried = try_jobs(Snapshot(world.engine), world.now, Submit((limited("a", 60).build(),), "ada"))
    assert isinstance(tried, Trial)
    ((job, said),) = tried.jobs.values()
    quoted = quote(world.engine.index, job, said.estimate.runtime)
    assert quoted is not None
    world.submit(limited("a", 60))
    assert held(world) == [("a", (quoted.at_walltime or 0) // MONEY, None)]


def test_a_gang_is_quoted_where_gangs_run() -> None:
    gangs = replace(
        CLOUD, name=ClusterName("gangs"), price=Price(cpu_hour=2 * CLOUD.price.cpu_hour), gangs=True
    )
    for rented, told in (((CLOUD, gangs), "gangs"), ((CLOUD,), None)):
        world = a_world(per(Per.MONTH, 500), rented=rented)
        tried = try_jobs(
            Snapshot(world.engine), world.now, Submit((limited("a", 60).tasks(2).build(),), "ada")
        )
        assert isinstance(tried, Trial)
        ((job, said),) = tried.jobs.values()
        quoted = quote(world.engine.index, job, said.estimate.runtime)
        assert (quoted.cluster if quoted is not None else None) == told


def test_no_room_is_the_reason_while_another_cluster_could_take_it_within_the_cap() -> None:
    cheap = replace(CLOUD, name=ClusterName("cheap"), price=Price(cpu_hour=MONEY))
    world = a_world(per(Per.MONTH, 150), rented=(CLOUD, cheap), cpus=1)
    world.submit(limited("a", 60))
    assert world.where("a") == "cheap/v1"
    world.submit(limited("b", 600))
    reason = reason_of(world, "b")
    assert isinstance(reason, NoRoom)
    assert reason.clusters == ("onprem", "cheap")


def test_a_lost_task_costs_no_more_than_the_agent_lets_it_run() -> None:
    world = a_world(per(Per.MONTH, 500))
    world.submit(limited("a", 60))
    world.start("a")
    job = world.job("a")
    assert isinstance(job.phase, Running)
    world.now += HOUR
    world.propose(Reclaim(job.phase.key, (job.lease,)))
    assert world.job("a").cost == (60 + BEYOND) * MONEY
    assert world.state.facts.overruns == 0


def test_an_agent_that_does_not_keep_to_the_walltime_is_booked_with_the_truth_and_counted() -> None:
    world = a_world(per(Per.MONTH, 500))
    world.submit(limited("a", 60))
    world.start("a")
    world.finish("a", ran=130)
    (period,) = world.state.budget_periods.values()
    assert (period.spent, period.over) == (130 * MONEY, 30 * MONEY)
    assert world.state.facts.overruns == 1


def test_what_nobody_can_pay_for_is_looked_at_once_for_a_whole_lane() -> None:
    world = a_world(per(Per.MONTH, 1))
    world.submit(*(limited(f"j{number}", 60) for number in range(200)))
    assert not list(world.happened(CostHeld))
    assert isinstance(reason_of(world, "j199"), OverBudget)


def test_free_clusters_are_rented_whatever_the_cap() -> None:
    free = ClusterSpec(ClusterName("free"), "agents", Role.RENTED)
    world = a_world(per(Per.MONTH, 0), rented=(free,))
    world.submit(a_job("a"))
    assert world.where("a") == "free/v1"
    assert held(world) == []


def test_egress_is_held_with_the_rest() -> None:
    spec = replace(CLOUD, price=Price(cpu_hour=3600 * MONEY, egress_gb=MONEY))
    world = a_world(rented=(spec,))
    world.submit(limited("a", 60).data(5 * 10**9).max_cost(200 * MONEY))
    assert held(world) == [("a", 60 + BEYOND + 5, None)]
    world.start("a")
    world.finish("a", ran=60)
    assert world.job("a").cost == 65 * MONEY


def test_the_slack_that_is_held_for_is_the_one_that_the_server_gives() -> None:
    assert 10 * SECOND + WALLTIME_SLACK == BEYOND * SECOND


def test_a_gang_is_held_for_as_a_whole() -> None:
    spec = replace(CLOUD, gangs=True)
    world = a_world(per(Per.MONTH, 500), rented=(spec,))
    world.submit(limited("a", 60).tasks(3), limited("b", 60).tasks(3))
    assert held(world) == [("a", 3 * (60 + BEYOND), None)]
    assert isinstance(reason_of(world, "b"), OverBudget)
    world.start("a")
    world.finish("a", ran=20)
    assert world.job("a").cost == 60 * MONEY
    assert held(world)[1:] == [("b", 300, None)]


def test_a_dry_run_says_what_a_cap_would_say_and_holds_nothing() -> None:
    world = a_world(per(Per.MONTH, 150))
    proposal = Submit((limited("a", 60).build(), limited("b", 60).build()), "ada")
    tried = try_jobs(Snapshot(world.engine), world.now, proposal)
    assert isinstance(tried, Trial)
    assert [hold.amount for _, hold in tried.plan.holds] == [100 * MONEY]
    assert not world.state.budget_periods
    assert tried.plan.digest() != replace(tried.plan, holds=()).digest()


def test_budgets_that_are_changed_at_a_start_hold_at_once() -> None:
    world = a_world(per(Per.MONTH, 50))
    world.submit(limited("a", 60), limited("b", 60))
    assert held(world) == []
    world.propose(StartEpoch(2, (OWNED, CLOUD), ZERO, 0, (per(Per.MONTH, 150),)))
    world.agent("v1", cpus=4, cluster="cloud")
    assert held(world) == [("a", 100, None)]
