"""`spill audit`: shows what people did, newest first."""

from argparse import ArgumentParser, Namespace
from itertools import islice

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.commands.events import add_times
from spillover.cli.printing.output import Column
from spillover.cli.printing.shown import NOTHING, local

COLUMNS = (
    Column("TIME"),
    Column("USER", gives=True),
    Column("WHAT", drops=1),
    Column("JOB"),
    Column("PROJECT", gives=True, drops=2),
    Column("TEXT", gives=True),
)
FIELDS = ("revision", "at", "user", "type", "job", "project", "text")
"""Columns of CSV."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="only what this person did; `me` is you")
    add_times(parser)
    parser.add_argument(
        "--type", metavar="EVENT", help="only events of this type, such as job_stopping (docs/events.md)"
    )
    parser.add_argument("--job", metavar="JOB", help="only this job, or this array and its members")
    parser.add_argument("--project", metavar="NAME", help="only this project")
    parser.add_argument(
        "--limit", type=count, default=100, metavar="N", help="at most so many lines (default: 100)"
    )
    parser.add_argument("--csv", action="store_true", help="print CSV")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        asked = client.audit(
            user=client.user if args.user == "me" else args.user,
            since=args.since,
            until=args.until,
            type=args.type,
            job=args.job,
            project=args.project,
            limit=args.limit + 1,
        )
        found = list(islice(asked, args.limit + 1))
    entries, more = found[: args.limit], len(found) > args.limit
    if args.json:
        context.out.json(entries)
    elif args.csv:
        rows = [[str(getattr(each, name) or "") for name in FIELDS] for each in entries]
        context.out.csv(FIELDS, rows)
    elif entries:
        context.out.table(
            COLUMNS,
            [
                [
                    local(each.at),
                    each.user,
                    each.type,
                    each.job or NOTHING,
                    each.project or NOTHING,
                    each.text,
                ]
                for each in entries
            ],
        )
    else:
        context.out.note("nobody did anything that fits")
    if more:
        context.out.note(f"there is more; ask for a span with --until, or write --limit {10 * args.limit}")
    return codes.OK


COMMANDS = {
    "audit": Command(
        "Show what people did, newest first: submissions, cancellations, changes of policies, tokens and more.",
        _configure,
        _run,
        "spill audit --user ada --since 7d\nspill audit --type token_created --csv > tokens.csv",
    )
}
