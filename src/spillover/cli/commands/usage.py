"""`spill usage`: shows CPU, GPU and memory hours of jobs, owned and rented apart, what was unused, and the cost."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from spillover.cli import codes
from spillover.cli.arguments import since
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.printing.output import Column, Row
from spillover.cli.printing.shown import NOTHING, digits_of, money
from spillover.model.budget import USAGE_BY, UsageBy

if TYPE_CHECKING:
    from spillover.wire.api import Hours, UsageView

_AMOUNTS = ("cpu", "gpu", "memory")
FIELDS = (
    "jobs",
    *(f"{part}_{name}_h" for part in ("owned", "rented") for name in _AMOUNTS),
    *(f"{part}_{name}_h" for part in ("measured", "unused") for name in _AMOUNTS),
    "cost",
)
"""Columns of CSV behind those of the keys; memory is in GiB hours."""


def _keys(text: str) -> list[UsageBy]:
    """Parse the keys to group by."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in USAGE_BY:
            raise ArgumentTypeError(f"{word!r} is not one of {', '.join(USAGE_BY)}")
    return cast("list[UsageBy]", words)


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        type=_keys,
        default=["project"],
        metavar="KEY,...",
        help=f"group by these, one or several: {', '.join(USAGE_BY)} (default: project)",
    )
    parser.add_argument(
        "--since",
        type=since,
        metavar="WHEN",
        help="only attempts that ended since then or run now, such as 30d or 2027-01-31",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV, with exact hours")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        report = client.usage(by=args.by, since=args.since)
    if args.json:
        context.out.json(report)
    elif args.csv:
        context.out.csv([*args.by, *FIELDS], [_exact(row, args.by) for row in report.rows])
    elif report.rows:
        shown = report.rows if len(report.rows) == 1 else [*report.rows, report.total]
        digits = digits_of(*(row.cost for row in shown))
        context.out.table(
            _columns(args.by, shown, report.currency), [_row(row, args.by, shown, digits) for row in shown]
        )
    else:
        context.out.note("no usage")
    return codes.OK


def _parts(shown: "Sequence[UsageView]") -> list[tuple[str, str]]:
    """Return which hours to show: those of which there are any."""
    return [
        (part, name)
        for part in ("owned", "rented")
        for name in _AMOUNTS
        if name == "cpu" or any(getattr(getattr(row, part), name) for row in shown)
    ]


_TITLES = {"cpu": "CPU H", "gpu": "GPU H", "memory": "GIB H"}


def _columns(by: Sequence[str], shown: "Sequence[UsageView]", currency: str) -> list[Column]:
    return [
        *[Column(key.upper(), gives=True) for key in by],
        Column("JOBS", right=True),
        *[Column(f"{part.upper()} {_TITLES[name]}", right=True) for part, name in _parts(shown)],
        Column("UNUSED CPU", right=True, drops=1),
        *([Column("UNUSED GPU", right=True, drops=1)] if _knows_gpus(shown) else []),
        Column("UNUSED MEMORY", right=True, drops=2),
        Column(f"COST ({currency})", right=True),
    ]


def _row(row: "UsageView", by: Sequence[str], shown: "Sequence[UsageView]", digits: int) -> Row:
    keys = [row.key.get(key, "total" if at == 0 else "") for at, key in enumerate(by)]
    return [
        *keys,
        str(row.jobs),
        *[_hours(getattr(getattr(row, part), name)) for part, name in _parts(shown)],
        _unused(row.unused.cpu, row.measured.cpu),
        *([_unused(row.unused.gpu, row.measured.gpu)] if _knows_gpus(shown) else []),
        _unused(row.unused.memory, row.measured.memory),
        money(row.cost, digits=digits) if row.cost else NOTHING,
    ]


def _knows_gpus(shown: "Sequence[UsageView]") -> bool:
    """Return whether the use of GPUs was measured."""
    return any(row.measured.gpu for row in shown)


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.05 else f"{hours:.3f}" if hours else NOTHING


def _unused(unused: float, measured: float) -> str:
    """Return the part of what was asked for that was not used, where that is known."""
    return f"{unused / measured:.0%}" if measured else NOTHING


def _exact(row: "UsageView", by: Sequence[str]) -> list[str]:
    """Return one line of CSV."""

    def hours(of: "Hours", names: Sequence[str]) -> list[str]:
        return [f"{getattr(of, name):.6f}" for name in names]

    return [
        *[row.key[key] for key in by],
        str(row.jobs),
        *hours(row.owned, _AMOUNTS),
        *hours(row.rented, _AMOUNTS),
        *hours(row.measured, _AMOUNTS),
        *hours(row.unused, _AMOUNTS),
        f"{row.cost:.6f}",
    ]


COMMANDS = {
    "usage": Command(
        "Show the CPU, GPU and memory hours that jobs asked for, what was unused, and the cost.",
        _configure,
        _run,
        "spill usage --by user,project --since 30d\nspill usage --by month,cluster --csv > usage.csv",
    )
}
