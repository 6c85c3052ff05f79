"""`spill logs`: what a job printed, byte for byte."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import IO

from spillover.cli import codes
from spillover.cli.arguments import count, index
from spillover.cli.command import Command, Context, add_connection, add_job


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument("--stderr", action="store_true", help="standard error instead of standard output")
    parser.add_argument("--attempt", type=count, metavar="N", help="of this attempt (default: the last)")
    parser.add_argument(
        "--task", type=index, default=0, metavar="N", help="of this task of a gang (default 0)"
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        pieces = client.logs(
            args.job, follow=args.follow, stderr=args.stderr, attempt=args.attempt, task=args.task
        )
        copy(pieces, sys.stdout.buffer)
    return codes.OK


def copy(pieces: Iterable[bytes], out: IO[bytes]) -> None:
    """Write each piece at once."""
    for piece in pieces:
        out.write(piece)
        out.flush()


COMMANDS = {
    "logs": Command(
        "Print what a job wrote to its standard output.",
        _configure,
        _run,
        "spill logs train -f\nspill logs train --stderr --attempt 1",
    )
}
