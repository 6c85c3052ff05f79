"""`spill clock`: whether the server believes the clock of its machine, and how it is made to."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.output import Output
from spillover.cli.shown import local

if TYPE_CHECKING:
    from spillover.wire.api import ClockView


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "accept"),
        default="show",
        help="accept: follow the machine's clock although it jumped too far to be believed",
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
    """What the server goes by, and why."""
    out.sheet(
        [
            ("server's time", local(view.now)),
            ("machine's clock", local(view.wall)),
            ("state", view.state),
            ("other machines", f"{view.agree} agree with it, {view.disagree} do not"),
        ]
    )
    if view.state != "followed":
        out.note(view.message)


COMMANDS = {
    "clock": Command(
        "Show whether the server believes the clock of its machine. One that jumps ahead too far is not followed, as what is due would end "
        "and what is old would be deleted; `spill clock accept` has it followed all the same.",
        _configure,
        _run,
        "spill clock\nspill clock accept",
    )
}
