"""`spill ls`: lists jobs, the newest first."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import count, seconds, state
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.listing import columns, rows
from spillover.cli.printing.output import Output, rich_table

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_EVERY: Final = 1.0
"""Seconds between two updates of `--watch`."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--state", type=state, metavar="S", help="only jobs in this state, such as QUEUED")
    parser.add_argument("--project", metavar="P", help="only jobs of this project")
    parser.add_argument("--name", metavar="N", help="only jobs with this name")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--user", metavar="U", help="only jobs that this user submitted")
    whose.add_argument("--mine", action="store_true", help="only jobs that you submitted")
    parser.add_argument(
        "--members", action="store_true", help="also list members of arrays that have been placed"
    )
    parser.add_argument(
        "--since", type=seconds, metavar="AGO", help="only jobs submitted within this time, such as 1d"
    )
    parser.add_argument(
        "--limit", type=count, default=50, metavar="N", help="list at most this many jobs (default: 50)"
    )
    parser.add_argument(
        "--starts", action="store_true", help="also show when waiting jobs are expected to start"
    )
    parser.add_argument("--watch", action="store_true", help="refresh every second until Ctrl-C")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    if args.watch and args.json:
        raise UsageError("--watch does not work with --json; use `spill events -f --json` to follow changes")
    with context.connect(args) as client:
        if args.watch:
            watch(context.out, _looks(client, args), starts=args.starts)
            return codes.OK
        jobs = find(client, args)
    if args.json:
        context.out.json(jobs)
    elif jobs:
        context.out.table(columns(starts=args.starts), rows(jobs, starts=args.starts))
    else:
        context.out.note("no jobs")
    return codes.OK


def find(client: "Client", args: Namespace) -> "list[JobView]":
    """Return the jobs that match the options."""
    found = client.jobs(
        state=args.state,
        project=args.project,
        user=client.user if args.mine else args.user,
        name=args.name,
        members=args.members,
        since=None if args.since is None else datetime.now(UTC) - timedelta(seconds=args.since),
        limit=args.limit,
        starts=args.starts,
    )
    return list(islice(found, args.limit))


def watch(out: Output, looks: "Iterator[list[JobView]]", *, starts: bool = False) -> None:
    """Show each list in place of the previous one; in a pipe, below it."""
    if not out.terminal:
        for number, jobs in enumerate(looks):
            if number:
                out.line()
            out.table(columns(starts=starts), rows(jobs, starts=starts))
            out.flush()
        return
    from rich.live import Live  # noqa: PLC0415 - heavy

    console = out.console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for jobs in looks:
            live.update(
                rich_table(columns(starts=starts), rows(jobs, starts=starts), console.width), refresh=True
            )


def _looks(client: "Client", args: Namespace) -> "Iterator[list[JobView]]":
    """Yield the list again and again."""
    while True:
        yield find(client, args)
        time.sleep(_EVERY)


COMMANDS = {
    "ls": Command(
        "List jobs, the newest first.",
        _configure,
        _run,
        "spill ls --state running --since 1d\nspill ls --members --name sweep\nspill ls --state queued --starts\nspill ls --mine --json | jq -r '.[].id'",
    )
}
