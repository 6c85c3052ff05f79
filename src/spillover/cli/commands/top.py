"""`spill top`: shows a server live."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.top.frame import frame, once
from spillover.cli.top.view import Look, TopView, rows_for
from spillover.cli.top.watching import Watcher

_ONCE: Final = 20
"""Rows of each list in a printed frame."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--once",
        action="store_true",
        help="print one frame and exit; the default if output is not a terminal",
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="seconds between updates (default: 1)",
    )
    add_json(parser)
    add_connection(parser)


def _seconds(text: str) -> float:
    """Parse an interval that the server can bear and a user can use."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def _run(args: Namespace, context: Context) -> int:
    out = context.out
    if args.json:
        with context.connect(args) as client:
            out.json(client.overview())
    elif args.once or not out.terminal or not sys.stdin.isatty() or out.console().is_dumb_terminal:
        _print(args, context)
    else:
        _watch(args, context)
    return codes.OK


def _print(args: Namespace, context: Context) -> None:
    """Print one frame, without control of the terminal."""
    with context.connect(args) as client:
        look = Look(client.url, client.overview(running=_ONCE, queued=_ONCE, agents=_ONCE), _ONCE)
    console = context.out.console()
    for line in once(look, console.width, _ONCE):
        if context.out.terminal:
            console.print(line)
        else:
            context.out.line(line.plain.rstrip())


def _watch(args: Namespace, context: Context) -> None:
    """Show frames until the user quits."""
    from spillover.cli.top.screen import Screen  # noqa: PLC0415 - only where there is a terminal

    screen = Screen(context.out.console())
    watcher = Watcher(
        lambda: context.connect(args), args.interval, screen.wake, rows_for(TopView(), screen.size[1])
    )
    view, look = TopView(), watcher.look
    with screen.shown():
        watcher.start()
        try:
            while True:
                width, height = screen.size
                look = look if view.paused else watcher.look
                drawn = frame(look, view, width, height)
                if look.rows >= rows_for(view, height):
                    view = view._replace(offset=min(view.offset, drawn.most))
                screen.draw(drawn.lines)
                for key in screen.wait():
                    if key == "quit":
                        return
                    view = view.after(key, drawn.page)
                watcher.want(rows_for(view, height))
        finally:
            watcher.stop()


COMMANDS = {
    "top": Command(
        "Watch a server live: usage of clusters, agents, running jobs, and the head of the queue with the reason why each job waits.\n"
        "Keys: 1-3 or tab for another view, arrows or j and k to scroll, p to pause, q to quit.",
        _configure,
        _run,
        "spill top\nspill top --once\nspill top --json | jq .cost_an_hour",
    )
}
