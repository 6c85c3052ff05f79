"""`spill reservations`: lists the capacity that is reserved."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.printing.output import Column, Row
from spillover.cli.printing.shown import NOTHING, local

if TYPE_CHECKING:
    from spillover.wire.api import ReservationView

_COLUMNS: Final = (
    Column("START"),
    Column("END"),
    Column("KIND"),
    Column("JOB"),
    Column("NAME", gives=True),
    Column("PROJECT"),
    Column("CLUSTER"),
    Column("NODES", gives=True),
)
_NAMED: Final = 4
"""Nodes to name in a table."""


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        found = client.reservations()
        policy = "" if found or args.json else client.policy().policy
    if args.json:
        context.out.json(found)
    elif found:
        context.out.table(_COLUMNS, [_row(each) for each in found])
    else:
        context.out.note(f"no reservations; the policies are {policy}")
    return codes.OK


def _row(each: "ReservationView") -> Row:
    return (
        local(each.start),
        local(each.end),
        each.kind,
        each.job or NOTHING,
        each.name,
        each.project or NOTHING,
        each.cluster,
        _nodes(each.nodes) + _warning(each),
    )


def _warning(each: "ReservationView") -> str:
    """Say what is wrong with a reservation of a person; empty if nothing is."""
    short = f"; {len(each.missing)} of {len(each.nodes)} missing" if each.missing else ""
    others = " of others" if each.project else ""
    jobs, run = ("1 job", "runs") if len(each.running) == 1 else (f"{len(each.running)} jobs", "run")
    running = f"; {jobs}{others} still {run}" if each.running else ""
    return short + running


def _nodes(nodes: list[str]) -> str:
    """Name the first nodes, and count the others."""
    more = len(nodes) - _NAMED
    return " ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


COMMANDS = {
    "reservations": Command(
        "List the capacity that is reserved, soonest first: what the scheduler keeps for jobs that do not fit yet, if the backfill policy does so, and what people reserved with `spill reserve`. The scheduler makes the former again for each decision, so they may change until the job starts.",
        _configure,
        _run,
        "spill reservations\nspill reservations --json",
    )
}
