"""`spill events`: prints events, one per line."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import index, since
from spillover.cli.command import Command, Context, UsageError, add_connection
from spillover.cli.printing.output import Output
from spillover.cli.printing.shown import NOTHING, local

if TYPE_CHECKING:
    from spillover.wire.api import EventView

_ID: Final = 16
"""Characters of an id; ids of array members are a little longer."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="follow new events until Ctrl-C")
    parser.add_argument("--after", type=index, metavar="REV", help="only events after this revision")
    parser.add_argument("--job", metavar="JOB", help="only events of this job")
    parser.add_argument("--user", metavar="NAME", help="only events that this person caused; `me` is you")
    add_times(parser)
    parser.add_argument(
        "--all", action="store_true", help="also show that a cycle of the scheduler decided something"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON array; with -f one JSON object per line"
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    if args.follow and args.until is not None:
        raise UsageError("--until does not go with --follow; leave one of them out")
    with context.connect(args) as client:
        happened = client.events(
            after=args.after,
            follow=args.follow,
            job=args.job,
            user=client.user if args.user == "me" else args.user,
            since=args.since,
            until=args.until,
            cycles=args.all,
        )
        if args.json and not args.follow:
            context.out.json(list(happened))
        else:
            show(context.out, happened, as_json=args.json)
    return codes.OK


def add_times(parser: ArgumentParser) -> None:
    """Add the options that limit a list to a span of time."""
    parser.add_argument(
        "--since", type=since, metavar="WHEN", help="only since then, such as 2h, 7d or 2027-01-31"
    )
    parser.add_argument("--until", type=since, metavar="WHEN", help="only before then, in the same forms")


def show(out: Output, happened: "Iterable[EventView]", *, as_json: bool) -> None:
    """Print each event when it arrives."""
    import msgspec  # noqa: PLC0415 - heavy

    for event in happened:
        if as_json:
            out.line(msgspec.json.encode(event).decode())
        else:
            out.line(f"{event.revision:>6}  {local(event.at)}  {event.job or NOTHING:<{_ID}}  {event.text}")
        out.flush()


COMMANDS = {
    "events": Command(
        "Print events, the oldest first. With -f, follow new events.",
        _configure,
        _run,
        "spill events -f\nspill events --user ada --since 2h\nspill events --after 120 --json",
    )
}
