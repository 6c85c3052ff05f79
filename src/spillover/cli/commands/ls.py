"""`spill ls`: lists jobs, the newest first."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import count, seconds, states
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.job_columns import (
    DEFAULT,
    JOB_COLUMNS,
    WITH_STARTS,
    chosen,
    columns_of,
    in_order,
    orders,
    rows_of,
)
from spillover.cli.printing.output import Output, rich_table

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_EVERY: Final = 1.0
"""Seconds between two updates of `--watch`."""


def _configure(parser: ArgumentParser) -> None:
    found = parser.add_argument_group("filters", "The server lists the jobs that match all of these.")
    found.add_argument(
        "--state", type=states, metavar="S,...", help="jobs in these states, such as QUEUED,RUNNING"
    )
    found.add_argument("--project", metavar="P", help="jobs of this project")
    found.add_argument("--queue", metavar="Q", help="jobs of this queue")
    found.add_argument("--name", metavar="N", help="jobs with this name")
    whose = found.add_mutually_exclusive_group()
    whose.add_argument("--user", metavar="U", help="jobs that this user submitted; `me` is you")
    whose.add_argument("--mine", action="store_true", help="jobs that you submitted")
    found.add_argument(
        "--since", type=seconds, metavar="AGO", help="jobs submitted within this time, such as 1d"
    )
    parser.add_argument(
        "--members", action="store_true", help="also list members of arrays that have been placed"
    )
    parser.add_argument(
        "--limit", type=count, default=50, metavar="N", help="list at most this many jobs (default: 50)"
    )
    parser.add_argument(
        "--columns",
        metavar="C,...",
        help=f"columns to show, in this order: {', '.join(JOB_COLUMNS)} (default: {','.join(DEFAULT)})",
    )
    parser.add_argument(
        "--sort",
        action="append",
        default=[],
        metavar="C,...",
        help="sort by these columns, from the highest down with a minus: --sort=-cost,name",
    )
    parser.add_argument(
        "--starts", action="store_true", help="also show when waiting jobs are expected to start"
    )
    parser.add_argument("--watch", action="store_true", help="refresh every second until Ctrl-C")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--no-header", action="store_true", help="leave out the titles of the columns")
    form.add_argument("--csv", action="store_true", help="print CSV, with the names of the columns first")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    if args.watch and (args.json or args.csv):
        raise UsageError("--watch prints tables only; use `spill events -f --json` to follow changes")
    if args.json and (args.columns or args.csv or args.no_header):
        raise UsageError("--json prints all fields; leave --columns, --csv and --no-header out")
    names = _names(args)
    by = orders(args.sort)
    args.starts = args.starts or "starts" in names or any(name == "starts" for name, _ in by)
    with context.connect(args) as client:
        if args.watch:
            watch(context.out, _looks(client, args, by), names)
            return codes.OK
        jobs, more = find(client, args, by)
        if not jobs and args.queue is not None:
            _check_queue(client, args.queue)
    if by and more:
        context.out.note(f"sorted the newest {len(jobs)} jobs only; --limit lists more")
    if args.json:
        context.out.json(jobs)
    elif args.csv:
        context.out.csv(names, rows_of(jobs, names))
    elif jobs:
        context.out.table(columns_of(names), rows_of(jobs, names), titles=not args.no_header)
    else:
        context.out.note("no jobs")
    return codes.OK


def _check_queue(client: "Client", queue: str) -> None:
    """Raise UsageError if the server has named queues, and this is none of them."""
    names = [each.name for each in client.queues()]
    if names and queue not in names:
        raise UsageError(f"--queue: there is no queue {queue!r}; the queues are {', '.join(names)}")


def _names(args: Namespace) -> Sequence[str]:
    """Return the columns to show."""
    if args.columns is not None:
        return chosen(args.columns)
    return WITH_STARTS if args.starts else DEFAULT


def find(
    client: "Client", args: Namespace, by: Sequence[tuple[str, bool]] = ()
) -> "tuple[list[JobView], bool]":
    """Return the jobs that match the options, sorted if that is asked for, and whether there are more."""
    found = list(
        islice(
            client.jobs(
                state=args.state,
                project=args.project,
                user=client.user if args.mine or args.user == "me" else args.user,
                name=args.name,
                members=args.members,
                since=None if args.since is None else datetime.now(UTC) - timedelta(seconds=args.since),
                limit=args.limit + bool(by),
                starts=args.starts,
                queue=args.queue,
            ),
            args.limit + bool(by),
        )
    )
    return in_order(found[: args.limit], by), len(found) > args.limit


def watch(out: Output, looks: "Iterator[list[JobView]]", names: Sequence[str] = DEFAULT) -> None:
    """Show each list in place of the previous one; in a pipe, below it."""
    if not out.terminal:
        for number, jobs in enumerate(looks):
            if number:
                out.line()
            out.table(columns_of(names), rows_of(jobs, names))
            out.flush()
        return
    from rich.live import Live  # noqa: PLC0415 - heavy

    console = out.console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for jobs in looks:
            live.update(rich_table(columns_of(names), rows_of(jobs, names), console.width), refresh=True)


def _looks(client: "Client", args: Namespace, by: Sequence[tuple[str, bool]]) -> "Iterator[list[JobView]]":
    """Yield the list again and again."""
    while True:
        yield find(client, args, by)[0]
        time.sleep(_EVERY)


COMMANDS = {
    "ls": Command(
        "List jobs, the newest first.",
        _configure,
        _run,
        "spill ls --state queued,running --user me\nspill ls --columns id,name,user,ran,left --sort=-ran\nspill ls --members --name sweep\nspill ls --state queued --starts\nspill ls --mine --json | jq -r '.[].id'",
    )
}
