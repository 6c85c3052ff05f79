"""`spill cost` and `spill budgets`, and what other commands say of money."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from spillover.cli.commands.cost import budget_columns, budget_rows
from spillover.cli.printing.output import Output
from spillover.wire.api import BudgetView, CostReport, CostView, MachineCosts, MachineCostView

AT = "2027-02-01T00:00:00.000000Z"


@pytest.fixture
def bank(client: Any) -> Any:
    """A client that knows what was spent."""
    client.rows = [CostView("speech", 2, 41.2, 0.0, 0.0), CostView("vision", 3, 212.87, 3.1, 9.8)]
    client.since = []

    def costs(by: str, since: datetime | None) -> CostReport:
        client.since.append(since)
        return CostReport(by, None, "USD", client.rows, CostView("total", 5, 254.07, 3.1, 9.8))

    client.costs = costs
    client.budgets = lambda: [
        BudgetView("project", "vision", "month", "2027-01", AT, 500.0, 212.87, 9.8, 277.33, 0.0),
        BudgetView("user", "ada", "ever", "ever", None, 5.0, 5.0, 0.0, 0.0, 0.0),
    ]
    return client


def test_costs_are_a_table_with_a_total(bank: Any, spill: Callable[..., Any]) -> None:
    title, speech, vision, total = spill("cost").out.splitlines()
    assert title.split() == ["PROJECT", "JOBS", "COST", "(USD)", "RUNNING", "HELD"]
    assert speech.split() == ["speech", "2", "41.20", "-", "-"]
    assert vision.split() == ["vision", "3", "212.87", "3.10", "9.80"]
    assert total.split() == ["total", "5", "254.07", "3.10", "9.80"]
    bank.rows = bank.rows[:1]
    assert len(spill("cost", "--by", "day").out.splitlines()) == 2
    bank.rows = []
    assert spill("cost") == (0, "", "spill: no costs\n")
    assert spill("cost", "--json").out == "[]\n"


def test_since_is_an_age_a_day_or_a_time(bank: Any, spill: Callable[..., Any]) -> None:
    for text in ("2d", "2027-01-31", "2027-01-31T18:00:00Z"):
        assert spill("cost", "--since", text).code == 0
    ago, day, moment = bank.since
    assert abs(datetime.now(UTC) - timedelta(days=2) - ago) < timedelta(minutes=1)
    assert (day, moment) == (datetime(2027, 1, 31, tzinfo=UTC), datetime(2027, 1, 31, 18, tzinfo=UTC))


@pytest.mark.parametrize("text", ["yesterday", "2027-13-31", "2027-01-31T18:00:00", "-2d"])
def test_a_since_that_is_none_is_one_clear_line(bank: Any, spill: Callable[..., Any], text: str) -> None:
    typed = spill("cost", f"--since={text}")
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
    assert "is not a time; write an age such as 2d" in typed.err


def test_budgets_are_a_table(bank: Any, spill: Callable[..., Any]) -> None:
    title, vision, ada = spill("budgets").out.splitlines()
    assert title.split()[:4] == ["BUDGET", "PERIOD", "LIMIT", "(USD)"]
    assert vision.split()[:7] == ["project", "vision", "2027-01", "500.00", "212.87", "9.80", "277.33"]
    assert ada.split() == ["user", "ada", "ever", "5.00", "5.00", "-", "0.00", "-", "-"]
    assert [one["left"] for one in json.loads(spill("budgets", "--json").out)] == [277.33, 0.0]
    bank.budgets = list
    assert spill("budgets").err == "spill: no budgets; set them under `budgets` in spill.yaml\n"


def test_amounts_of_a_table_have_the_same_digits(bank: Any, spill: Callable[..., Any]) -> None:
    bank.budgets = lambda: [
        BudgetView("project", "vision", "month", "2027-01", AT, 5.0, 0.0042, 4.96, 0.0358, 0.0)
    ]
    (_, vision) = spill("budgets").out.splitlines()
    assert vision.split()[3:7] == ["5.0000", "0.0042", "4.9600", "0.0358"]
    bank.rows = [CostView("vision", 3, 212.87, 0.25, 0.0)]
    assert spill("cost").out.splitlines()[1].split() == ["vision", "3", "212.8700", "0.2500", "-"]


def test_show_tells_what_a_job_would_cost_and_what_is_held(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    waiting = a_job(
        state="QUEUED", cluster=None, node=None, finished_at=None, estimated_cost=0.12, cost_at_walltime=0.32
    )
    client.jobs_by_id = {waiting.id: waiting}
    client.job = lambda _: waiting
    assert "would cost  0.1200 USD if rented, at most 0.3200" in spill("show", "train").out
    running = a_job(state="RUNNING", estimated_cost=0.12, held_cost=5.0, given_walltime_s=4500.0)
    client.job = lambda _: running
    shown = spill("show", "train").out
    assert "held        5.00 USD, the most it can cost" in shown
    assert "walltime    1h15m, limited by its cost cap" in shown


def test_a_narrow_terminal_leaves_out_when_a_period_ends_and_no_name(bank: Any, terminal: Output) -> None:
    name = "a-rather-long-name-of-it"
    one = BudgetView("project", name, "month", "2027-01", AT, 500.0, 212.87, 9.8, 277.33, 0.0)
    terminal.table(budget_columns("USD"), budget_rows((one, *bank.budgets())))
    terminal.out.seek(0)
    drawn = terminal.out.read()
    assert f"project {name} " in drawn
    assert ("ENDS" in drawn, "…" in drawn) == (False, False)


def test_why_tells_what_a_job_would_cost_in_the_currency_of_the_server(
    client: Any, spill: Callable[..., Any]
) -> None:
    why = structs.replace(client.why("train"), estimated_cost=0.12, cost_at_walltime=0.32)
    client.why = lambda _: why
    assert "would cost       0.1200 USD if rented, at most 0.3200" in spill("why", "train").out


@pytest.fixture
def pools(client: Any) -> Any:
    """A client that knows what machines cost."""
    cloud = MachineCostView("cloud", 5, 10.0, 6.0, 1.0, 2.5, 0.5, 2, 3.0)
    spare = MachineCostView("spare", 1, 2.0, 2.0, 0.0, 0.0, 0.0, 0, 0.0)
    total = MachineCostView("total", 6, 12.0, 8.0, 1.0, 2.5, 0.5, 2, 3.0)
    client.rows = [cloud, spare]
    client.asked = []

    def machine_costs(by: str, since: datetime | None) -> MachineCosts:
        client.asked.append((by, since))
        return MachineCosts(by, None, "USD", client.rows, total)

    client.machine_costs = machine_costs
    return client


def test_costs_by_pool_are_what_machines_cost_and_for_what(pools: Any, spill: Callable[..., Any]) -> None:
    title, cloud, spare, total = spill("cost", "--by", "pool", "--since", "2027-01-31").out.splitlines()
    assert title.split() == (
        ["POOL", "MACHINES", "PAID", "(USD)", "USEFUL", "BOOT", "IDLE", "INTERRUPTED", "LIVE", "SO", "FAR"]
    )
    assert cloud.split() == ["cloud", "5", "10.00", "6.00", "1.00", "2.50", "0.5000", "2", "3.00"]
    assert spare.split() == ["spare", "1", "2.00", "2.00", "-", "-", "-", "-", "-"]
    assert total.split()[:3] == ["total", "6", "12.00"]
    assert pools.asked == [("pool", datetime(2027, 1, 31, tzinfo=UTC))]
    assert json.loads(spill("cost", "--by", "pool", "--json").out)[0]["so_far"] == 3.0
    pools.rows = []
    assert spill("cost", "--by", "pool") == (0, "", "spill: no machines were rented\n")


def test_waste_is_what_machines_cost_beyond_useful_work(pools: Any, spill: Callable[..., Any]) -> None:
    title, cloud, spare, total = spill("cost", "--waste").out.splitlines()
    assert title.split() == ["POOL", "PAID", "(USD)", "WASTE", "PART", "BOOT", "IDLE", "INTERRUPTED"]
    assert cloud.split() == ["cloud", "10.00", "4.00", "40", "%", "1.00", "2.50", "0.5000"]
    assert spare.split() == ["spare", "2.00", "-", "0", "%", "-", "-", "-"]
    assert total.split()[:5] == ["total", "12.00", "4.00", "33", "%"]
    assert spill("cost", "--waste", "--by", "week").out.split()[0] == "WEEK"
    assert [by for by, _ in pools.asked] == ["pool", "week"]


def test_waste_by_project_is_one_clear_line(pools: Any, spill: Callable[..., Any]) -> None:
    typed = spill("cost", "--waste", "--by", "project")
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
    assert "--waste with --by pool, day, week, month" in typed.err


def test_costs_of_tasks_name_what_the_machines_cost(bank: Any, spill: Callable[..., Any]) -> None:
    costs = bank.costs
    bank.costs = lambda by, since: structs.replace(costs(by, since), machines=300.0)
    typed = spill("cost", "--by", "cluster")
    assert typed.out.splitlines()[-1].split() == ["total", "5", "254.07", "3.10", "9.80"]
    assert "shares of tasks; rented machines cost 300.00 USD in all: spill cost --by pool" in typed.err
    assert spill("cost", "--json").err == ""
