"""Stories of several reservations: who waits for whom, and who may pass."""

import gc

import pytest

from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.reservations import reservations
from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.reasons import KeptFor
from spillover.model.units import SECOND
from spillover.policies.loading import UnknownPolicy, load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

CONSERVATIVE = Choice("conservative")
TOGETHER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True)


def world(backfill: Choice, *clusters: ClusterSpec) -> World:
    return World(load, PolicySet(backfill=backfill, wait=Choice("never")), clusters or (OWNED,))


def two_jobs_wait(w: World) -> None:
    """Two of four CPUs are busy for half a minute. The head needs all four, the second needs three after that."""
    w.agent("n1", cpus=4)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("head").cpus(4).expected(seconds=10), a_job("second").cpus(3).expected(seconds=60))


def test_a_job_that_easy_lets_pass_waits_if_it_would_delay_the_second_job_too() -> None:
    for backfill, where in ((Choice("easy"), "onprem/n1"), (CONSERVATIVE, None)):
        w = world(backfill)
        w.agent("n1", cpus=4)
        w.submit(a_job("running").cpus(2).expected(seconds=30))
        w.submit(a_job("head").cpus(3).expected(seconds=10), a_job("second").cpus(4).expected(seconds=60))
        w.submit(a_job("long").expected(minutes=5))
        assert w.where("long") == where


def test_a_job_that_ends_before_all_reservations_starts_at_once() -> None:
    w = world(CONSERVATIVE)
    two_jobs_wait(w)
    w.submit(a_job("short").cpus(2).expected(seconds=30))
    assert w.where("short") == "onprem/n1"


def test_a_job_that_fits_beside_the_second_reservation_but_not_the_first_waits() -> None:
    w = world(CONSERVATIVE)
    two_jobs_wait(w)
    w.submit(a_job("long").expected(minutes=5))
    assert w.where("long") is None
    assert explain(w.engine, w.job("long")).reason == KeptFor(w.job("head").id)


def test_what_starts_beside_a_gang_is_expected_to_end_on_its_own_machine_alone() -> None:
    w = world(CONSERVATIVE, TOGETHER)
    for name in ("n1", "n2"):
        w.agent(name, cpus=3)
    w.submit(a_job("gang").tasks(2).cpus(2).expected(seconds=60))

    def ends() -> list[list[float]]:
        index = w.engine.index
        assert index.ends is not None
        found = [index.ends.on(each, w.now) for each in index.capacity[TOGETHER.name].machines]
        return [sorted((at - w.now) / SECOND for at, _ in each) for each in found]

    assert ends() == [[60], [60]]
    w.submit(a_job("beside").expected(seconds=30))
    assert sorted(ends()) == [[30, 60], [60]]
    w.start("gang", 0, 1)
    w.finish_task("gang", 0)
    w.finish_task("gang", 1)
    assert sorted(ends()) == [[], [30]]


def test_hybrid_keeps_nothing_for_jobs_beyond_its_depth() -> None:
    for depth, where in ((2, "onprem/n1"), (3, None)):
        w = world(Choice("hybrid", {"depth": depth}))
        w.agent("n1", cpus=4)
        w.submit(a_job("running").cpus(2).expected(seconds=30))
        w.submit(
            a_job("head").cpus(3).expected(seconds=10),
            a_job("second").cpus(3).expected(seconds=10),
            a_job("third").cpus(4).expected(seconds=60),
        )
        w.submit(a_job("long").expected(minutes=5))
        assert w.where("long") == where


def test_every_waiting_member_of_an_array_has_a_reservation() -> None:
    w = world(CONSERVATIVE)
    w.agent("n1", cpus=4)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("array").cpus(3).expected(seconds=60).array(1, 3))
    w.submit(a_job("two").cpus(2).expected(seconds=100))
    assert w.where("two") is None  # beside the first members there is room for one CPU only
    w.submit(a_job("one").expected(seconds=100))
    assert w.where("one") == "onprem/n1"


def test_a_gang_starts_on_machines_that_no_reservation_needs() -> None:
    w = world(CONSERVATIVE, TOGETHER)
    w.agent("n1", cpus=2)
    w.agent("n2", cpus=2)
    w.agent("n3", cpus=1)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("wide").cpus(2).tasks(2).expected(minutes=5))
    w.submit(a_job("gang").tasks(2).expected(minutes=5))
    assert w.where("wide") is None
    assert w.where("gang") is None  # it would need a machine of the wide job
    w.submit(a_job("brief").tasks(2).expected(seconds=20))
    assert w.where("brief") is not None


def test_a_head_that_leaves_lets_those_start_that_it_kept_waiting() -> None:
    w = world(CONSERVATIVE)
    two_jobs_wait(w)
    w.submit(a_job("long").expected(minutes=45))
    assert w.where("long") is None
    w.cancel("head")
    assert w.where("long") == "onprem/n1"  # the second job leaves it one CPU


def test_plans_of_earlier_rules_make_one_reservation() -> None:
    w = world(CONSERVATIVE)
    w.engine.rules = 2
    w.agent("n1", cpus=4)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("head").cpus(3).expected(seconds=10), a_job("second").cpus(4).expected(seconds=60))
    w.submit(a_job("long").expected(minutes=5))
    assert w.where("long") == "onprem/n1"


@pytest.mark.parametrize("name", ["hybrid", "conservative"])
@pytest.mark.parametrize("depth", [0, 10_001])
def test_a_depth_of_nothing_or_too_much_is_refused(name: str, depth: int) -> None:
    with pytest.raises(UnknownPolicy, match="depth must be from 1 to 10000"):
        load(PolicySet(backfill=Choice(name, {"depth": depth})))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("backfill=hybrid", "is missing; write how many jobs that do not fit have a reservation, such as 8"),
        ("backfill=hybrid(0)", "0 is not a whole number from 1 to 10000"),
        ("backfill=conservative(20000)", "20000 is not a whole number from 1 to 10000"),
    ],
)
def test_a_line_with_a_bad_depth_says_what_to_write(line: str, problem: str) -> None:
    with pytest.raises(BadForm, match=problem):
        read_policies(line)


def test_a_depth_is_written_as_it_is_read() -> None:
    policies = read_policies("wait=never,backfill=hybrid(8)")
    assert policies.backfill == Choice("hybrid", {"depth": 8})
    assert "backfill=hybrid(8)" in write_policies(policies)


# --- the list


def listed(w: World) -> list[tuple[str, float, float, str, tuple[str, ...]]]:
    """List the reservations, with their times in seconds from now."""
    return [
        (each.job, (each.span.start - w.now) / SECOND, (each.span.end - w.now) / SECOND, *each.span[2:])
        for each in reservations(w.engine, w.now)
    ]


def test_the_list_has_the_reservation_of_the_head_alone_under_easy() -> None:
    w = world(Choice("easy"))
    two_jobs_wait(w)
    assert listed(w) == [("head", 30, 40, "onprem", ("n1",))]


def test_the_list_has_every_reservation_of_conservative_although_no_cycle_needed_it() -> None:
    w = world(CONSERVATIVE)
    two_jobs_wait(w)
    w.submit(a_job("third").cpus(3).expected(seconds=10))
    assert listed(w) == [
        ("head", 30, 40, "onprem", ("n1",)),
        ("second", 40, 100, "onprem", ("n1",)),
        ("third", 100, 110, "onprem", ("n1",)),
    ]


def test_the_list_ends_at_the_depth_of_hybrid() -> None:
    w = world(Choice("hybrid", {"depth": 2}))
    two_jobs_wait(w)
    w.submit(a_job("third").cpus(3).expected(seconds=10))
    assert [job for job, *_ in listed(w)] == ["head", "second"]


def test_the_list_has_all_nodes_of_a_gang_and_each_member_of_an_array() -> None:
    w = world(CONSERVATIVE, TOGETHER)
    w.agent("n1", cpus=2)
    w.agent("n2", cpus=2)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("gang").tasks(2).cpus(2).expected(seconds=10))
    w.submit(a_job("array").cpus(2).expected(seconds=50).array(1, 3))
    assert listed(w) == [
        ("gang", 30, 40, "onprem", ("n1", "n2")),
        ("array", 40, 90, "onprem", ("n1",)),
        ("array", 40, 90, "onprem", ("n2",)),
        ("array", 90, 140, "onprem", ("n1",)),
    ]


def test_the_list_is_empty_under_policies_without_reservations() -> None:
    for backfill in ("strict", "out_of_order"):
        w = world(Choice(backfill))
        two_jobs_wait(w)
        assert listed(w) == []


def test_the_list_passes_over_a_job_that_would_miss_its_deadline() -> None:
    w = world(Choice("easy"))
    w.agent("n1", cpus=4)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("late").cpus(4).expected(seconds=60).between(deadline=w.now + 40 * SECOND))
    w.submit(a_job("head").cpus(4).expected(seconds=10))
    assert [job for job, *_ in listed(w)] == ["head"]


def test_nothing_of_a_cycle_stays_until_a_garbage_collection() -> None:
    w = world(CONSERVATIVE)
    two_jobs_wait(w)
    gc.collect()
    gc.disable()
    try:
        for number in range(2, 5):  # each machine makes reservations out of date
            w.agent(f"n{number}", cpus=1)
            w.submit(a_job(f"long{number}").expected(minutes=5))
        # The last cycle leaves its reservations to the next one.
        assert len([each for each in gc.get_objects() if type(each) is Timeline]) <= 1
    finally:
        gc.enable()
