"""`spill cost` and `spill budgets`: show the cost of rented capacity, and what is left of budgets."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import since
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, local, money

if TYPE_CHECKING:
    from spillover.wire.api import BudgetView, CostView

_BY = ("project", "user", "cluster", "day", "week", "month")


def _configure_cost(parser: ArgumentParser) -> None:
    parser.add_argument("--by", choices=_BY, default="project", help="group costs by (default: project)")
    parser.add_argument(
        "--since", type=since, metavar="WHEN", help="only costs since then, such as 30d or 2027-01-31"
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
        context.out.note("no costs")
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
        context.out.note("no budgets; set them under `budgets` in spill.yaml")
    return codes.OK


def budget_columns(currency: str) -> tuple[Column, ...]:
    """Return the columns for budgets; ENDS drops first, because it follows from PERIOD."""
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
    """Return the row of one project, user, cluster, day, week or month."""
    return (one.key, str(one.jobs), money(one.cost), _some(one.running), _some(one.held))


def budget_row(one: "BudgetView") -> Row:
    """Return the row of one budget, red if it is used up."""
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
    """Format an amount; a dash for zero."""
    return money(amount) if amount else NOTHING


COMMANDS = {
    "cost": Command(
        "Show the cost of rented capacity. An attempt counts for the cluster it ran on and for the day, week or month (UTC) in which it ended. RUNNING is the cost of running attempts so far, HELD the amount that budgets and max_cost hold for them.",
        _configure_cost,
        _cost,
        "spill cost --by project --since 30d\nspill cost --by day --since 2027-01-01 --json",
    ),
    "budgets": Command(
        "Show the spent, held and remaining amount of each budget in the current period.",
        _configure,
        _budgets,
        "spill budgets",
    ),
}
