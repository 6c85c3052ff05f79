"""`spill logs`: prints the output of a job, byte for byte."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count, index
from spillover.cli.command import Command, Context, add_connection, add_job
from spillover.cli.printing.listing import has_run

if TYPE_CHECKING:
    from spillover.client import Client


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="follow the output until the job has ended"
    )
    parser.add_argument("--stderr", action="store_true", help="standard error instead of standard output")
    parser.add_argument(
        "--attempt", type=count, metavar="N", help="output of this attempt (default: the last)"
    )
    parser.add_argument(
        "--task", type=index, default=0, metavar="N", help="output of this task of a gang (default: 0)"
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
                context.out.note(f"{job.id} has not run yet and has no output")
            elif not args.stderr and _has_errors(client, args):
                where = f"for standard error, run `spill logs {args.job} --stderr{_which(args)}`"
                context.out.note(f"{args.job} wrote nothing to standard output; {where}")
    return codes.OK


def _has_errors(client: "Client", args: Namespace) -> bool:
    """Tell whether a job wrote to its standard error."""
    pieces = client.logs(args.job, follow=False, stderr=True, attempt=args.attempt, task=args.task)
    return any(pieces)


def _which(args: Namespace) -> str:
    """Return the options that select attempt and task."""
    attempt = "" if args.attempt is None else f" --attempt {args.attempt}"
    return attempt + (f" --task {args.task}" if args.task else "")


def copy(pieces: Iterable[bytes], out: IO[bytes]) -> bool:
    """Write each piece at once; return whether there were any."""
    any_piece = False
    for piece in pieces:
        out.write(piece)
        out.flush()
        any_piece = True
    return any_piece


COMMANDS = {
    "logs": Command(
        "Print the standard output of a job, or with --stderr its standard error.",
        _configure,
        _run,
        "spill logs train -f\nspill logs train --stderr --attempt 1",
    )
}
