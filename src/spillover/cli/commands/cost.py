"""`spill cost` and `spill budgets`: show the cost of rented capacity, and what is left of budgets."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import since
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, digits_of, local, money

if TYPE_CHECKING:
    from spillover.model.budget import CostBy, MachinesBy
    from spillover.wire.api import BudgetView, CostView, MachineCostView

_BY: Final = ("project", "user", "cluster", "pool", "day", "week", "month")
_WASTE_BY: Final = ("pool", "day", "week", "month")


def _configure_cost(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=_BY, help="group costs by; pool: what rented machines cost (default: project)"
    )
    parser.add_argument(
        "--waste",
        action="store_true",
        help="what rented machines cost while they did nothing useful, by pool (default), day, week or month",
    )
    parser.add_argument(
        "--since", type=since, metavar="WHEN", help="only costs since then, such as 30d or 2027-01-31"
    )
    add_json(parser)
    add_connection(parser)


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)
    add_connection(parser)


def _cost(args: Namespace, context: Context) -> int:
    if args.waste or args.by == "pool":
        return _machines(args, context)
    by: CostBy = args.by or "project"
    with context.connect(args) as client:
        report = client.costs(by=by, since=args.since)
    if args.json:
        context.out.json(report.rows)
    elif report.rows:
        columns = (
            Column(by.upper(), gives=True),
            Column("JOBS", right=True),
            Column(f"COST ({report.currency})", right=True),
            Column("RUNNING", right=True),
            Column("HELD", right=True),
        )
        total = () if len(report.rows) == 1 else (report.total,)
        context.out.table(columns, cost_rows((*report.rows, *total)))
    else:
        context.out.note("no costs")
    if report.machines is not None and not args.json:
        paid = money(report.machines, report.currency)
        context.out.note(
            f"these are shares of tasks; rented machines cost {paid} in all: spill cost --by pool"
        )
    return codes.OK


def _machines(args: Namespace, context: Context) -> int:
    """Show what machines cost."""
    by: MachinesBy = args.by or "pool"
    if by not in _WASTE_BY:
        raise UsageError(f"machines are shared; use --waste with --by {', '.join(_WASTE_BY)}")
    with context.connect(args) as client:
        report = client.machine_costs(by=by, since=args.since)
    shown = report.rows if len(report.rows) == 1 else [*report.rows, report.total]
    if args.json:
        context.out.json(report.rows)
    elif not report.rows:
        context.out.note("no machines were rented")
    elif args.waste:
        context.out.table(_waste_columns(by, report.currency), [_waste_row(one) for one in shown])
    else:
        context.out.table(_machine_columns(report.currency), [_machine_row(one) for one in shown])
    return codes.OK


def _machine_columns(currency: str) -> tuple[Column, ...]:
    return (
        Column("POOL", gives=True),
        Column("MACHINES", right=True),
        Column(f"PAID ({currency})", right=True),
        Column("USEFUL", right=True),
        Column("BOOT", right=True),
        Column("IDLE", right=True),
        Column("INTERRUPTED", right=True),
        Column("LIVE", right=True),
        Column("SO FAR", right=True),
    )


def _machine_row(one: "MachineCostView") -> Row:
    """Return what the machines of one pool cost, and how many of them exist."""
    parts = (one.useful, one.boot, one.idle, one.interrupted)
    live = str(one.live) if one.live else NOTHING
    return (one.key, str(one.machines), money(one.paid), *map(_some, parts), live, _some(one.so_far))


def _waste_columns(by: str, currency: str) -> tuple[Column, ...]:
    return (
        Column(by.upper(), gives=True),
        Column(f"PAID ({currency})", right=True),
        Column("WASTE", right=True),
        Column("PART", right=True),
        Column("BOOT", right=True),
        Column("IDLE", right=True),
        Column("INTERRUPTED", right=True),
    )


def _waste_row(one: "MachineCostView") -> Row:
    """Return what machines cost beyond useful work."""
    waste = one.paid - one.useful
    part = f"{100 * waste / one.paid:.0f} %" if one.paid else NOTHING
    parts = (one.boot, one.idle, one.interrupted)
    return (one.key, money(one.paid), _some(waste), part, *map(_some, parts))


def _budgets(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        found = client.budgets()
        currency = "" if args.json else client.server().currency
    if args.json:
        context.out.json(found)
    elif found:
        context.out.table(budget_columns(currency), budget_rows(found))
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
        Column("ENDS", drops=2),
        Column("RUNS OUT", drops=1),
    )


def cost_rows(found: "Sequence[CostView]") -> list[Row]:
    """Return the rows of projects, users, clusters, days, weeks or months, all amounts with the same digits."""
    digits = digits_of(*[amount for one in found for amount in (one.cost, one.running, one.held)])
    return [
        (
            one.key,
            str(one.jobs),
            money(one.cost, digits=digits),
            _some(one.running, digits),
            _some(one.held, digits),
        )
        for one in found
    ]


def budget_rows(found: "Sequence[BudgetView]") -> list[Row]:
    """Return the rows of budgets, all amounts with the same digits, red if a budget is used up."""
    digits = digits_of(*[each for one in found for each in (one.limit, one.spent, one.held, one.left)])
    return [
        (
            f"{one.of} {one.name}",
            one.period,
            money(one.limit, digits=digits),
            money(one.spent, digits=digits),
            _some(one.held, digits),
            Cell(money(one.left, digits=digits), "red" if one.left <= 0 else ""),
            local(one.ends_at),
            local(one.runs_out_at),
        )
        for one in found
    ]


def _some(amount: float, digits: int = 0) -> str:
    """Format an amount; a dash for zero."""
    return money(amount, digits=digits) if amount else NOTHING


COMMANDS = {
    "cost": Command(
        "Show the cost of rented capacity. An attempt counts for the cluster it ran on and for the day, week or month (UTC) in which it ended. RUNNING is the cost of running attempts so far, HELD the amount that budgets and max_cost hold for them. Attempts on rented machines count with their shares. --by pool shows what the machines cost and for what, and --waste what was not useful: boot, idle time, and attempts that the end of a machine interrupted.",
        _configure_cost,
        _cost,
        "spill cost --by project --since 30d\nspill cost --by day --since 2027-01-01 --json\nspill cost --by pool --since 7d\nspill cost --waste --by week",
    ),
    "budgets": Command(
        "Show the spent, held and remaining amount of each budget in the current period.",
        _configure,
        _budgets,
        "spill budgets",
    ),
}
