"""Looks at jobs that cannot start are bounded, and still everybody has a turn: nobody waits for ever behind those who cannot move."""

import pytest

from spillover.core.events import Decided
from spillover.core.proposals import Submit
from spillover.deciding.budgets import check as budget_check
from spillover.deciding.cycle import cycle, placing
from spillover.deciding.queue import turns
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.replay import Replay
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, START, World

CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
"""1 a second, for each CPU."""
SLOW = ClusterSpec(ClusterName("slow"), "agents", Role.OWNED, startup=HOUR)
ZERO = PolicySet(wait=Choice("zero"))
NEVER = PolicySet(wait=Choice("never"))


def a_full_world(*budgets: Budget) -> World:
    """Owned capacity that is full, and much to rent."""
    w = World(load, ZERO, (OWNED, CLOUD), budgets=budgets)
    w.agent("n1", cpus=1)
    w.submit(a_job("full").burst(Burst.NEVER))
    w.agent("v1", cpus=1000, cluster="cloud")
    return w


def a_minute(name: str) -> JobBuilder:
    return a_job(name).terms(walltime=MINUTE)


def submit_as(w: World, user: str, *jobs: JobBuilder) -> None:
    w.propose(Submit(tuple(job.build() for job in jobs), user))


def nothing_is_left(w: World) -> None:
    """All was decided that can be now, also for a server that starts now."""
    policies = w.engine.policies
    assert not cycle.run(w.state, SchedulingIndex(w.state, policies), policies, w.now, 0).plan


def leads_to_the_same_plans(w: World) -> None:
    replay = Replay(load)
    for revision, event in enumerate(w.events, 1):
        assert replay.take(revision, event), replay.difference
    replay.end(len(w.events))
    assert replay.difference is None
    assert replay.plans == len(list(w.happened(Decided)))


def test_jobs_behind_many_with_too_small_a_max_cost_are_rented() -> None:
    w = a_full_world()
    w.submit(*(a_minute(f"dear-{number}").max_cost(MONEY) for number in range(70)))
    w.submit(*(a_minute(f"fine-{number}") for number in range(50)))
    assert all(w.where(f"fine-{number}") == "cloud/v1" for number in range(50))
    assert w.where("dear-0") is None
    nothing_is_left(w)
    leads_to_the_same_plans(w)


def test_jobs_of_one_user_do_not_wait_behind_many_of_another_who_has_spent_all() -> None:
    w = a_full_world(Budget(Of.USER, "ada", Per.MONTH, MONEY))
    submit_as(w, "ada", *(a_minute(f"ada-{number}") for number in range(70)))
    submit_as(w, "bob", a_minute("bob"))
    assert w.where("bob") == "cloud/v1"


def test_a_job_that_a_budget_can_pay_does_not_wait_behind_many_that_it_cannot() -> None:
    w = a_full_world(Budget(Of.PROJECT, "default", Per.MONTH, 150 * MONEY))
    w.submit(*(a_job(f"long-{number}").terms(walltime=HOUR) for number in range(70)), a_minute("short"))
    assert w.where("short") == "cloud/v1"


def test_a_job_behind_many_that_cannot_meet_their_deadline_starts() -> None:
    w = World(load, NEVER, (OWNED,))
    w.agent("n1", cpus=64)
    late = [
        a_job(f"late-{number}").expected(minutes=120).between(deadline=w.now + HOUR) for number in range(1001)
    ]
    w.submit(*late, a_job("fine"))
    w.wait(seconds=10)
    assert w.where("fine") == "onprem/n1"
    nothing_is_left(w)
    leads_to_the_same_plans(w)


def test_a_job_behind_many_that_are_late_where_there_is_room_starts_there() -> None:
    w = World(load, NEVER, (OWNED, SLOW))
    w.agent("n1", cpus=1)
    w.submit(a_job("full"))
    w.agent("s1", cpus=4, cluster="slow")
    soon = [a_job(f"soon-{number}").between(deadline=w.now + HOUR // 2) for number in range(1001)]
    w.submit(*soon, a_job("fine"))
    w.wait(seconds=10)
    assert w.where("fine") == "slow/s1"


def test_a_late_job_does_not_let_jobs_that_are_too_big_spend_the_looks_of_others() -> None:
    w = World(load, NEVER, (OWNED, SLOW))
    w.agent("n1", cpus=1)
    w.submit(a_job("full"))
    w.agent("s1", cpus=4, cluster="slow")
    soon = w.now + HOUR // 2
    w.submit(
        *(a_job(f"kind-{number}").cpus(50 + number) for number in range(20)),
        a_job("late").cpus(2).between(deadline=soon),
        *(a_job(f"big-{number}").cpus(49) for number in range(1200)),
        a_job("late-too").cpus(3).between(deadline=soon),
        a_job("fine").cpus(3),
    )
    assert w.where("fine") == "slow/s1"
    assert w.engine.index.turn is None  # nobody had to be left out


def test_those_whom_a_look_leaves_out_have_a_turn_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST", 50)
    w = a_full_world()
    w.submit(*(a_minute(f"dear-{number}").max_cost(MONEY) for number in range(800)))
    w.submit(*(a_minute(f"fine-{number}") for number in range(20)))
    assert not all(w.where(f"fine-{number}") for number in range(20))
    assert w.engine.index.turn is not None
    w.wait(seconds=5 * 60)
    assert all(w.where(f"fine-{number}") == "cloud/v1" for number in range(20))
    leads_to_the_same_plans(w)


def test_turns_go_on_when_other_jobs_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST", 50)
    w = a_full_world()
    w.submit(*(a_minute(f"dear-{number}").max_cost(MONEY) for number in range(800)))
    w.submit(*(a_minute(f"fine-{number}") for number in range(20)))
    left = [f"fine-{number}" for number in range(20) if w.where(f"fine-{number}") is None]
    w.submit(a_job("small").memory(1).burst(Burst.NEVER))
    assert w.engine.index.turn is not None
    w.wait(seconds=5 * 60)
    assert left
    assert all(w.where(each) == "cloud/v1" for each in left)


def test_while_everybody_was_looked_at_nothing_is_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    w = a_full_world()
    w.submit(*(a_minute(f"dear-{number}").max_cost(MONEY) for number in range(100)))
    assert w.engine.next_time() > w.now + DAY
    monkeypatch.setattr(turns, "MOST", 10)
    w.submit(a_minute("another").max_cost(MONEY))
    assert w.now < w.engine.next_time() <= w.now + turns.SLOT


def test_journals_that_were_written_without_turns_lead_to_the_plans_that_they_stored() -> None:
    w = a_full_world()
    w.engine.rules = 0
    w.submit(*(a_minute(f"dear-{number}").max_cost(MONEY) for number in range(70)), a_minute("fine"))
    assert w.where("fine") is None
    leads_to_the_same_plans(w)


def test_bounds_are_those_that_the_tests_above_pass() -> None:
    assert (budget_check.REFUSALS, placing.LOOKS, turns.MOST) == (64, 1000, 1000)
    assert START % turns.SLOT == 0
    assert turns.SLOT == 5 * SECOND
