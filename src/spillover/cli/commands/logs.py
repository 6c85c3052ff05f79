"""`spill logs`: what a job printed, byte for byte."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count, index
from spillover.cli.command import Command, Context, add_connection, add_job
from spillover.cli.listing import has_run

if TYPE_CHECKING:
    from spillover.client import Client


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
            if not has_run(job) and job.attempt <= 1:
                context.out.note(f"{job.id} has not run: there is no output")
            elif not args.stderr and _has_errors(client, args):
                where = f"`spill logs {args.job} --stderr{_which(args)}` has its standard error"
                context.out.note(f"{args.job} wrote nothing to standard output; {where}")
    return codes.OK


def _has_errors(client: "Client", args: Namespace) -> bool:
    """Whether a job wrote something to its standard error."""
    pieces = client.logs(args.job, follow=False, stderr=True, attempt=args.attempt, task=args.task)
    return any(pieces)


def _which(args: Namespace) -> str:
    """The options that say which attempt and task is meant."""
    attempt = "" if args.attempt is None else f" --attempt {args.attempt}"
    return attempt + (f" --task {args.task}" if args.task else "")


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
        "Print what a job wrote to its standard output, or with --stderr to its standard error.",
        _configure,
        _run,
        "spill logs train -f\nspill logs train --stderr --attempt 1",
    )
}
