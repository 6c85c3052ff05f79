"""`spill notifications`: lists messages to people that were not sent, sends them again, drops them, and tries one."""

from argparse import ArgumentParser, Namespace
from itertools import islice
from typing import Final

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.output import Cell, Column
from spillover.cli.printing.shown import NOTHING, local

_COLUMNS: Final = (
    Column("ID"),
    Column("TO", gives=True),
    Column("STATE"),
    Column("TRIES", right=True),
    Column("NEXT"),
    Column("TEXT", gives=True),
    Column("ERROR", gives=True),
)
_ACTIONS: Final = ("list", "retry", "drop", "test")


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=_ACTIONS,
        default="list",
        metavar="ACTION",
        help="list: those that wait or failed (default); retry: send again at once; drop: delete; test: send one to a mail address or a webhook",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="ID",
        help="retry, drop: ids of notifications; test: an address or the name of a webhook",
    )
    parser.add_argument(
        "--failed", action="store_true", help="only those that failed; retry, drop: all of those"
    )
    parser.add_argument(
        "--limit", type=count, default=100, metavar="N", help="list: at most so many lines (default: 100)"
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    _check(args)
    if args.action == "list":
        return _list(args, context)
    with context.connect(args) as client:
        match args.action:
            case "retry":
                done = client.retry_notifications(*args.names, failed=args.failed)
                told = f"{_many(len(done))} sent again; `spill notifications` lists those that are not taken"
            case "drop":
                done = client.drop_notifications(*args.names, failed=args.failed)
                told = f"{_many(len(done))} dropped"
            case _:
                done = [client.test_notification(args.names[0])]
                told = f"a notification for {args.names[0]} is on its way; if it does not arrive, `spill notifications` says why"
    if args.json:
        context.out.json({"ids": done})
    else:
        context.out.note(told)
    return codes.OK


def _check(args: Namespace) -> None:
    named, action = len(args.names), args.action
    if action == "list" and named:
        raise UsageError(f"{args.names[0]!r} is not one of {', '.join(_ACTIONS)}")
    if action == "test" and (named != 1 or args.failed):
        raise UsageError("name one receiver, as in: spill notifications test ada@example.org")
    if action in {"retry", "drop"} and bool(named) == args.failed:
        raise UsageError(f"name notifications, or write: spill notifications {action} --failed")


def _list(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        asked = client.notifications(failed=True if args.failed else None, limit=args.limit + 1)
        found = list(islice(asked, args.limit + 1))
    shown = found[: args.limit]
    if args.json:
        context.out.json(shown)
    elif shown:
        rows = [
            (
                each.id,
                each.to,
                Cell(each.state, "red" if each.state == "failed" else ""),
                str(each.tries),
                local(each.due) if each.state == "waiting" else NOTHING,
                each.text,
                each.error or NOTHING,
            )
            for each in shown
        ]
        context.out.table(_COLUMNS, rows)
    else:
        context.out.note("no failed notifications" if args.failed else "all notifications were sent")
    if len(found) > args.limit:
        context.out.note(f"there are more; write --limit {10 * args.limit}")
    return codes.OK


def _many(number: int) -> str:
    return f"{number} notification{'s' if number != 1 else ''}"


COMMANDS = {
    "notifications": Command(
        "List messages to people and programs that were not sent, send them again, or drop them.",
        _configure,
        _run,
        "spill notifications --failed\nspill notifications retry --failed\nspill notifications test ada@example.org",
    )
}
