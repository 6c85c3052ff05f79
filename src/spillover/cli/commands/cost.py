"""`spill cost` and `spill budgets`: what was spent on rented capacity, and how much of it is left."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import since
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.output import Cell, Column, Row
from spillover.cli.shown import NOTHING, local, money

if TYPE_CHECKING:
    from spillover.wire.api import BudgetView, CostView

_BY = ("project", "user", "cluster", "day", "week", "month")


def _configure_cost(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=_BY, default="project", help="what costs are summed by (default: project)"
    )
    parser.add_argument(
        "--since", type=since, metavar="WHEN", help="only what was spent since, as 30d or 2027-01-31"
    )
    add_json(parser)
    add_connection(parser)


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)
    add_connection(parser)


def _cost(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        report = client.costs(by=args.by, since=args.since)
    if args.json:
        context.out.json(report.rows)
    elif report.rows:
        columns = (
            Column(args.by.upper(), gives=True),
            Column("JOBS", right=True),
            Column(f"COST ({report.currency})", right=True),
            Column("RUNNING", right=True),
            Column("HELD", right=True),
        )
        total = () if len(report.rows) == 1 else (report.total,)
        context.out.table(columns, [cost_row(one) for one in (*report.rows, *total)])
    else:
        context.out.note("nothing was spent")
    return codes.OK


def _budgets(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        found = client.budgets()
        currency = "" if args.json else client.server().currency
    if args.json:
        context.out.json(found)
    elif found:
        context.out.table(budget_columns(currency), [budget_row(one) for one in found])
    else:
        context.out.note("no budgets; spill.yaml sets them under `budgets`")
    return codes.OK


def budget_columns(currency: str) -> tuple[Column, ...]:
    """Of budgets; when a period ends can be told from it, so that is left out first."""
    return (
        Column("BUDGET", gives=True),
        Column("PERIOD"),
        Column(f"LIMIT ({currency})", right=True),
        Column("SPENT", right=True),
        Column("HELD", right=True),
        Column("LEFT", right=True),
        Column("ENDS", drops=1),
    )


def cost_row(one: "CostView") -> Row:
    """One project, user, cluster, day, week or month."""
    return (one.key, str(one.jobs), money(one.cost), _some(one.running), _some(one.held))


def budget_row(one: "BudgetView") -> Row:
    """One budget; red when nothing is left of it."""
    left = Cell(money(one.left), "red" if one.left <= 0 else "")
    return (
        f"{one.of} {one.name}",
        one.period,
        money(one.limit),
        money(one.spent),
        _some(one.held),
        left,
        local(one.ends_at),
    )


def _some(amount: float) -> str:
    """An amount, if there is any."""
    return money(amount) if amount else NOTHING


COMMANDS = {
    "cost": Command(
        "Sum what was spent on rented capacity. An attempt counts to the cluster it ran on and the day, week or month (UTC) in which it was over; "
        "RUNNING is what attempts under way have cost by now, HELD what budgets and max_cost hold for them.",
        _configure_cost,
        _cost,
        "spill cost --by project --since 30d\nspill cost --by day --since 2027-01-01 --json",
    ),
    "budgets": Command(
        "Show what is spent, held and left of each budget in the period that is now.",
        _configure,
        _budgets,
        "spill budgets",
    ),
}
