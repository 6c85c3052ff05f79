"""The simulator is the engine on a virtual clock."""

import pytest
from msgspec import structs

from spillover.core.events import AnyEvent, Decided, JobRequeued, JobStopping, Stop
from spillover.forms.problems import BadForm
from spillover.model.cluster import Billing, Price
from spillover.model.ids import NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.sim.outcome import JobOutcome
from spillover.sim.runner import simulate
from spillover.sim.setting import OWNED, Fleet, FleetMachine, Rent, ReservedNodes, Setting
from spillover.sim.trace import TraceJob


def setting(
    wait: Choice, *, nodes: int = 1, gpus: int = 8, startup: int = 0, backfill: str = "out_of_order"
) -> Setting:
    return Setting(
        Fleet(nodes, Resources(10**9, 2**50, gpus), limits_cpu=False, limits_memory=False),
        Rent(Price(gpu_hour=1_000_000), Billing(step=1), startup),
        PolicySet(wait=wait, backfill=Choice(backfill), place=Choice("first_fit")),
    )


def a_job(name: str, at: float, runs: float, gpus: int = 1) -> TraceJob:
    """Times in hours."""
    return TraceJob(name, int(at * HOUR), int(runs * HOUR), gpus, estimate=int(runs * HOUR))


def by_name(jobs: list[TraceJob], outcomes: list[JobOutcome]) -> dict[str, JobOutcome]:
    return {jobs[each.job].id: each for each in outcomes}


def test_a_job_larger_than_one_machine_takes_whole_ones_and_the_rest() -> None:
    jobs = [a_job("gang", 0, 1, gpus=20), a_job("small", 0.5, 1, gpus=4), a_job("large", 0.5, 1, gpus=8)]
    found = by_name(jobs, simulate(jobs, setting(Choice("never"), nodes=3)))
    assert found["gang"].node == "n1+n2+n3"
    assert found["small"].start == jobs[1].submit
    assert found["small"].node == "n3"
    assert found["large"].start == HOUR


def test_plans_have_digests_where_somebody_keeps_them_and_are_the_same_without() -> None:
    jobs = [a_job(str(number), number / 4, 1, gpus=5) for number in range(20)]
    kept: list[AnyEvent] = []
    found = simulate(jobs, setting(Choice("constant", {"wait": HOUR})), lambda _, events: kept.extend(events))
    plans = [event for event in kept if isinstance(event, Decided)]
    assert plans
    assert all(len(event.plan) == len(event.policy) == 16 for event in plans)
    assert simulate(jobs, setting(Choice("constant", {"wait": HOUR}))) == found


def test_a_gang_that_does_not_fit_takes_nothing() -> None:
    jobs = [a_job("one", 0, 1), a_job("gang", 0.1, 1, gpus=16), a_job("two", 0.2, 1, gpus=8)]
    found = by_name(jobs, simulate(jobs, setting(Choice("never"), nodes=2)))
    assert found["two"].node == "n2"
    assert found["gang"].start == found["two"].end


def test_a_gang_on_rented_capacity_pays_for_all_of_its_tasks() -> None:
    jobs = [a_job("gang", 0, 2, gpus=20)]
    found = by_name(jobs, simulate(jobs, setting(Choice("zero"), nodes=2)))
    assert found["gang"].cluster == "rented"
    assert found["gang"].cost == 40_000_000


def test_what_waits_when_nothing_runs_any_more_is_rented_when_its_wait_is_over() -> None:
    jobs = [a_job("large", 0, 1, gpus=100)]
    (outcome,) = simulate(jobs, setting(Choice("constant", {"wait": 10 * MINUTE})))
    assert (outcome.cluster, outcome.start) == ("rented", 10 * MINUTE)


def test_what_can_never_run_does_not_keep_a_simulation_from_ending() -> None:
    jobs = [a_job("large", 0, 1, gpus=100), a_job("small", 0, 1)]
    assert [each.job for each in simulate(jobs, setting(Choice("never")))] == [1]


def test_a_machine_that_has_to_start_first_makes_a_rented_job_wait() -> None:
    jobs = [a_job("one", 0, 1, gpus=8), a_job("two", 0.5, 1)]
    found = by_name(jobs, simulate(jobs, setting(Choice("zero"), startup=90 * SECOND)))
    assert found["two"].start == jobs[1].submit + 90 * SECOND
    assert found["two"].end == found["two"].start + HOUR
    assert found["two"].cost == 1_000_000


def test_a_walltime_that_is_too_short_does_not_end_a_job_of_a_trace() -> None:
    jobs = [TraceJob("long", 0, HOUR, 1, walltime=MINUTE), TraceJob("rented", 0, HOUR, 16, walltime=MINUTE)]
    found = simulate(jobs, setting(Choice("zero"), startup=SECOND))
    assert [each.end - each.start for each in found] == [HOUR, HOUR]


def test_star_brings_a_long_job_back_once_and_rents_it_for_good_after_its_wait() -> None:
    star = Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 2})
    jobs = [a_job("full", 0, 10, gpus=8), a_job("brief", 1, 0.2), a_job("long", 1, 4)]
    events: list[AnyEvent] = []
    found = by_name(jobs, simulate(jobs, setting(star), lambda _, more: events.extend(more)))
    assert [each.why for each in events if isinstance(each, JobStopping)] == [Stop.RETURN]
    assert len([each for each in events if isinstance(each, JobRequeued)]) == 1
    assert found["brief"].start == HOUR
    # back after a quarter of an hour, then twice the three quarters that its GPU is worth beyond that
    assert found["long"].start == HOUR + 15 * MINUTE + 90 * MINUTE
    assert found["long"].cluster == "rented"
    assert found["long"].cost == 4_250_000
    assert found["long"].abandoned == 15 * MINUTE


def test_star_lets_a_job_that_came_back_run_on_owned_capacity_from_its_beginning() -> None:
    star = Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 1})
    jobs = [a_job("full", 0, 1.5, gpus=8), a_job("long", 1, 4)]
    found = by_name(jobs, simulate(jobs, setting(star)))
    assert (found["long"].cluster, found["long"].start) == ("owned", 90 * MINUTE)
    assert found["long"].end == 90 * MINUTE + 4 * HOUR
    assert found["long"].cost == 250_000


def test_in_strict_order_a_head_that_is_rented_makes_way_at_once() -> None:
    jobs = [a_job("runs", 0, 5, gpus=6), a_job("head", 1, 1, gpus=4), a_job("next", 1.1, 1, gpus=2)]
    where = setting(Choice("constant", {"wait": HOUR}), backfill="strict")
    found = by_name(jobs, simulate(jobs, where))
    assert (found["head"].cluster, found["head"].start) == ("rented", 2 * HOUR)
    assert (found["next"].cluster, found["next"].start) == ("owned", 2 * HOUR)


@pytest.mark.parametrize("shape", ["constant", "runtime", "resource", "compute"])
def test_budget_steers_the_waiting_of_all_jobs_to_its_share_of_their_runtime(shape: str) -> None:
    jobs = [
        a_job(f"j{number}", number * 0.11, 1 + number % 3, 1 + 3 * (number % 2)) for number in range(4000)
    ]
    where = setting(Choice("budget", {"b": 0.1, "shape": shape}), nodes=5)
    outcomes = simulate(jobs, where)[1000:]
    waited = sum(each.start - each.submit for each in outcomes)
    ran = sum(each.end - each.start for each in outcomes)
    assert 0.085 < waited / ran < 0.115
    assert 0 < sum(each.cluster == "rented" for each in outcomes) < len(outcomes)


def test_a_simulation_ends_although_a_job_that_never_starts_keeps_others_waiting() -> None:
    jobs = [a_job("runs", 0, 1), a_job("never", 0, 1, gpus=100), a_job("behind", 0, 1)]
    policies = PolicySet(order=Choice("fair_share"), backfill=Choice("strict"), wait=Choice("never"))
    found = simulate(jobs, structs.replace(setting(Choice("never")), policies=policies))
    assert [jobs[each.job].id for each in found] == ["runs"]


# --- graphs and reservations


def racks(*machines: tuple[str, str]) -> Fleet:
    """Machines with eight CPUs, each with its rack."""
    node = Resources(8000, 2**30)
    each = [FleetMachine(OWNED, NodeName(name), node, labels=(("rack", rack),)) for name, rack in machines]
    return Fleet(len(each), node, machines=tuple(each), levels=(Level("rack", "rack"),))


def whole(name: str, at: float, nodes: int, topology: Topology | None = None, project: str = "") -> TraceJob:
    """A job of whole machines that runs for an hour."""
    start = int(at * HOUR)
    return TraceJob(
        name,
        start,
        HOUR,
        0,
        8000 * nodes,
        nodes,
        project=project,
        walltime=HOUR,
        estimate=HOUR,
        topology=topology,
    )


FOUR = racks(("n1", "r1"), ("n2", "r1"), ("n3", "r2"), ("n4", "r2"))
ONE_RACK = Topology(within="rack")


def in_racks(wait: str = "never", *reserved: ReservedNodes) -> Setting:
    policies = PolicySet(wait=Choice(wait), backfill=Choice("easy"), place=Choice("first_fit"))
    return Setting(FOUR, Rent(Price(cpu_hour=1_000_000), Billing(step=1)), policies, reserved)


def test_a_gang_within_a_rack_waits_for_two_machines_of_one() -> None:
    jobs = [whole("one", 0, 1), whole("gang", 0, 2, ONE_RACK), whole("other", 0.5, 2, ONE_RACK)]
    found = by_name(jobs, simulate(jobs, in_racks()))
    assert (found["one"].node, found["gang"].node) == ("n1", "n3+n4")
    assert (found["other"].node, found["other"].start) == ("n1+n2", HOUR)


def test_rented_capacity_is_in_one_rack_but_has_no_nodes_of_its_own() -> None:
    apart = Topology(spread="node")
    jobs = [whole("all", 0, 4), whole("gang", 0, 2, ONE_RACK), whole("apart", 0, 2, apart)]
    found = by_name(jobs, simulate(jobs, in_racks("zero")))
    assert (found["gang"].cluster, found["gang"].start) == ("rented", 0)
    assert (found["apart"].cluster, found["apart"].start) == ("owned", HOUR)


def test_nothing_runs_on_machines_during_maintenance() -> None:
    maintenance = ReservedNodes(HOUR // 2, 2 * HOUR, 2, "rack")
    jobs = [whole("early", 0, 4), whole("small", 0, 2)]
    found = by_name(jobs, simulate(jobs, in_racks("never", maintenance)))
    assert (found["small"].node, found["small"].start) == ("n3+n4", 0)
    assert found["early"].start == HOUR // 2 + 2 * HOUR


def test_jobs_of_a_project_run_on_what_is_reserved_for_it() -> None:
    reserved = ReservedNodes(HOUR, 3 * HOUR, project="vision")
    jobs = [whole("other", 0.5, 1), whole("own", 1, 1, project="vision")]
    found = by_name(jobs, simulate(jobs, in_racks("never", reserved)))
    assert found["own"].start == HOUR
    assert found["other"].start == 4 * HOUR


@pytest.mark.parametrize(
    ("reserved", "problem"),
    [
        ((ReservedNodes(0, HOUR, 5),), "reservation 1: cluster owned has only 4 ready nodes; you ask for 5"),
        (
            (ReservedNodes(0, HOUR, 3, "rack"),),
            "reservation 1: cluster owned has only 2 ready nodes in one rack",
        ),
        (
            (ReservedNodes(0, HOUR, 3), ReservedNodes(0, HOUR, 2)),
            "reservation 2: other reservations have too many",
        ),
    ],
)
def test_a_reservation_that_is_impossible_is_told(reserved: tuple[ReservedNodes, ...], problem: str) -> None:
    with pytest.raises(BadForm, match=problem):
        simulate([whole("one", 0, 1)], in_racks("never", *reserved))
