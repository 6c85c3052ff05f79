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
        if not copy(pieces, sys.stdout.buffer):
            job = client.job(args.job)
            if job.started_at is None and job.attempt <= 1:
                context.out.note(f"{job.id} has not run: there is no output")
    return codes.OK


def copy(pieces: Iterable[bytes], out: IO[bytes]) -> bool:
    """Write each piece at once; whether there was any."""
    any_piece = False
    for piece in pieces:
        out.write(piece)
        out.flush()
        any_piece = True
    return any_piece


COMMANDS = {
    "logs": Command(
        "Print what a job wrote to its standard output.",
        _configure,
        _run,
        "spill logs train -f\nspill logs train --stderr --attempt 1",
    )
}
