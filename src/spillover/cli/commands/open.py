"""`spill open`: opens the web page of the server in a browser, signed in."""

import os
import sys
import webbrowser
from argparse import ArgumentParser, Namespace

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--print",
        action="store_true",
        help="print the link instead of opening a browser; it works once, within a minute",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        link = client.sign_in_link()
    if args.json:
        context.out.json(link)
    elif args.print or not _opened(link.url):
        context.out.line(link.url)
        if not args.print:
            context.out.note(
                "found no browser to open; this link works in any browser, once, within a minute"
            )
    return codes.OK


def _opened(url: str) -> bool:
    """Open a browser with windows; return whether there is one."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # one in the terminal could not run the scripts of the page
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


COMMANDS = {
    "open": Command(
        "Open the web page of the server in a browser, signed in as you. The link works once, within a minute.",
        _configure,
        _run,
        "spill open\nspill open --print",
    )
}
