"""`spill reserve` and `spill unreserve`: keep nodes for a project, or for maintenance, over a span of time."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.shown import local
from spillover.model.units import UnitError, parse_duration, parse_time

if TYPE_CHECKING:
    from spillover.wire.api import ReservationView

_NAMED = 10
"""Nodes to name."""


def _start(text: str) -> str:
    """Parse a start: a time with its zone, a local time, `now`, or from now on."""
    if text == "now":
        return text
    with suppress(UnitError):
        if text.startswith("+"):
            parse_duration(text[1:])
        else:
            parse_time(text)
        return text
    for form in ("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"):
        with suppress(ValueError, OverflowError):
            return datetime.strptime(text, form).astimezone().isoformat()
    raise ArgumentTypeError(
        f"{text!r} is not a time; write '2027-01-31 18:00' (local), 2027-01-31T18:00:00Z, now or +2h"
    )


def _length(text: str) -> str:
    """Parse a duration, and keep it as it was written."""
    try:
        parse_duration(text)
    except UnitError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def _configure(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--nodes", type=count, metavar="N", help="how many nodes; the scheduler chooses them")
    which.add_argument("--node", metavar="NAME,...", help="names of the nodes; repeatable", action="append")
    which.add_argument("--all", action="store_true", help="all nodes that the cluster has now")
    parser.add_argument(
        "--start",
        required=True,
        type=_start,
        metavar="WHEN",
        help="'2027-01-31 18:00' in local time, 2027-01-31T18:00:00Z, now or +2h",
    )
    parser.add_argument(
        "--for", dest="length", required=True, type=_length, metavar="TIME", help="how long, such as 2h"
    )
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--project", metavar="NAME", help="project whose jobs may run there")
    whose.add_argument("--maintenance", action="store_true", help="no job starts there")
    parser.add_argument("--within", metavar="LEVEL", help="all nodes are in one vertex of this level: rack")
    parser.add_argument(
        "--need",
        action="append",
        default=[],
        metavar="WORD",
        help="word that each node must offer; repeatable",
    )
    parser.add_argument("--cluster", metavar="NAME", help="cluster (default: the first that has such nodes)")
    parser.add_argument("--name", metavar="NAME", help="name (default: the project and the start)")
    parser.add_argument(
        "--ignore-jobs",
        action="store_true",
        help="reserve nodes even if jobs may still run there at the start; they are left to end",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show which nodes would be reserved")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    names = [name for given in args.node or () for name in given.split(",") if name]
    if args.node and not names:
        raise UsageError("--node: give at least one name")
    with context.connect(args) as client:
        made = client.reserve(
            args.start,
            args.length,
            nodes=args.nodes,
            names=names,
            all_nodes=args.all,
            project=args.project,
            maintenance=args.maintenance,
            cluster=args.cluster,
            within=args.within,
            needs=args.need,
            name=args.name,
            ignore_jobs=args.ignore_jobs,
            dry_run=args.dry_run,
        )
    if args.json:
        context.out.json(made)
    else:
        context.out.line(_sentence(made, dry_run=args.dry_run))
    return codes.OK


def _sentence(made: "ReservationView", *, dry_run: bool) -> str:
    """Say what is reserved."""
    many = "1 node" if len(made.nodes) == 1 else f"{len(made.nodes)} nodes"
    more = len(made.nodes) - _NAMED
    nodes = ", ".join(made.nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    whom = f"project {made.project}" if made.project else "maintenance"
    verb = "would reserve" if dry_run else "reserved"
    return (
        f"{verb} {many} of {made.cluster} for {whom} as {made.name}, "
        f"from {local(made.start)} to {local(made.end)}: {nodes}"
    )


def _configure_cancel(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="name, from `spill reservations`")
    add_json(parser)
    add_connection(parser)


def _run_cancel(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        known = {each.name for each in client.reservations() if each.kind != "backfill"}
        unknown = [name for name in args.names if name not in known]
        if unknown:  # all or none
            raise UsageError(f"there is no reservation {unknown[0]}; `spill reservations` lists them")
        names = [client.unreserve(name) for name in args.names]
    if args.json:
        context.out.json({"names": names})
    return codes.OK


COMMANDS = {
    "reserve": Command(
        "Reserve nodes for a project, or for maintenance, over a span of time. Jobs of others start there only if they end before it begins. For admins.",
        _configure,
        _run,
        "spill reserve --nodes 4 --within rack --start '2027-01-31 09:00' --for 2h --project physics\n"
        "spill reserve --all --cluster onprem --start +1d --for 4h --maintenance --dry-run",
    ),
    "unreserve": Command(
        "Cancel advance reservations by their names. Jobs that run there go on. For admins.",
        _configure_cancel,
        _run_cancel,
        "spill unreserve physics-20270131-0900",
    ),
}
