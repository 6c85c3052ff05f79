"""`spill clock`: shows whether the server trusts the clock of its machine, and makes it accept a jump."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.printing.output import Output
from spillover.cli.printing.shown import local

if TYPE_CHECKING:
    from spillover.wire.api import ClockView


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "accept"),
        default="show",
        help="accept: trust the machine's clock although it jumped too far",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        view = client.accept_clock() if args.action == "accept" else client.clock()
    if args.json:
        context.out.json(view)
    elif args.action == "show":
        _show(context.out, view)
    return codes.OK


def _show(out: Output, view: "ClockView") -> None:
    """Print the time that the server uses, and why."""
    out.sheet(
        [
            ("server's time", local(view.now)),
            ("machine's clock", local(view.wall)),
            ("state", "trusted" if view.state == "followed" else view.state),
            ("other machines", f"{view.agree} agree with it, {view.disagree} do not"),
        ]
    )
    if view.state != "followed":
        out.note(view.message)


COMMANDS = {
    "clock": Command(
        "Show whether the server trusts the clock of its machine. The server does not follow a clock that jumps too far ahead, because jobs would time out and old data would be deleted. `spill clock accept` makes it follow the clock anyway.",
        _configure,
        _run,
        "spill clock\nspill clock accept",
    )
}
