"""How long an agent may wait for the server before its leases are over."""

import pytest

from spillover.agent.leases.running import RunningTask
from spillover.agent.leases.terms import TaskTerms
from spillover.agent.leases.values import Task
from spillover.control.agents.lease_terms import lasting, lease_terms, least_lost_after
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND


def a_run(lost_after: int) -> RunningTask:
    return RunningTask(Task(Shell("true"), Resources(1000), lost_after=lost_after), acknowledged=True)


def terms_of(heartbeat: int, short: int, *runs: RunningTask) -> TaskTerms:
    terms = TaskTerms()
    terms.heartbeat, terms.short = heartbeat, short
    terms.renew(0, runs)
    return terms


def test_by_default_there_is_time() -> None:
    assert terms_of(2 * SECOND, 30 * SECOND, a_run(5 * MINUTE)).patience() == 13 * SECOND


@pytest.mark.parametrize("heartbeat", [SECOND // 20, SECOND, 10 * SECOND, 60 * SECOND])
def test_an_unanswered_heartbeat_leaves_time_to_try_again_whatever_is_configured(heartbeat: int) -> None:
    told = lease_terms(1, heartbeat)
    runs = a_run(least_lost_after(heartbeat)), a_run(5 * MINUTE)
    terms = terms_of(told.heartbeat, told.short, *runs)
    given_up = told.heartbeat + terms.patience()  # that of the second heartbeat, after the first was answered
    assert not terms.due(given_up + terms.patience() - 1)


def test_a_task_of_a_short_term_shortens_it_for_all() -> None:
    alone = terms_of(SECOND, 30 * SECOND).patience()
    terms = terms_of(SECOND, 30 * SECOND, a_run(5 * SECOND))
    assert terms.patience() < alone
    terms.renew(SECOND, ())
    assert terms.patience() == alone


def test_a_task_lasts_three_heartbeats_at_the_least_however_many_agents_there_are() -> None:
    told = lease_terms(10_000)
    terms = terms_of(told.heartbeat, told.short, a_run(30 * SECOND))
    assert terms.of(a_run(30 * SECOND)) == 3 * told.heartbeat == lasting(30 * SECOND, told.heartbeat)
    assert not terms.due(told.heartbeat), "the next heartbeat is in time"
    assert terms.of(a_run(5 * MINUTE)) == 5 * MINUTE


@pytest.mark.parametrize(("agents", "seconds"), [(1, 2), (1_000, 9), (5_000, 41), (10_000, 80)])
def test_heartbeats_are_longer_where_agents_are_many(agents: int, seconds: int) -> None:
    assert lease_terms(agents).heartbeat == seconds * SECOND
    assert lease_terms(agents, adapts=False).heartbeat == min(10, seconds) * SECOND
    assert lease_terms(agents).short >= 4 * lease_terms(agents).heartbeat
