"""`spill logs`: prints the output of a job, byte for byte."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count, index
from spillover.cli.command import Command, Context, add_connection, add_job
from spillover.cli.merging import MOST_FOLLOWED, labels_of, one_by_one, together
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
        "--task",
        type=index,
        metavar="N",
        help="output of this task of a gang (default: all tasks, each line behind the number of its task)",
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        pieces = _read(client, args, context, stderr=args.stderr, follow=args.follow)
        if not copy(pieces, sys.stdout.buffer):
            job = client.job(args.job)
            if not has_run(job) and job.attempt <= 1:
                context.out.note(f"{job.id} has not run yet and has no output")
            elif not args.stderr and any(_read(client, args, context, stderr=True, follow=False)):
                where = f"for standard error, run `spill logs {args.job} --stderr{_which(args)}`"
                context.out.note(f"{args.job} wrote nothing to standard output; {where}")
    return codes.OK


def _read(
    client: "Client", args: Namespace, context: Context, *, stderr: bool, follow: bool
) -> Iterable[bytes]:
    """Return the output of one task, or of all tasks of a gang with the number of its task before each line."""

    def read(task: int) -> Iterable[bytes]:
        return client.logs(args.job, follow=follow, stderr=stderr, attempt=args.attempt, task=task)

    labels = [""] if args.task is not None else labels_of(client.job(args.job))
    if len(labels) == 1:
        return read(args.task or 0)
    if follow and len(labels) > MOST_FOLLOWED:
        context.out.note(
            f"following the first {MOST_FOLLOWED} of {len(labels)} tasks; use --task N to follow another one"
        )
    return together(read, labels) if follow else one_by_one(read, labels)


def _which(args: Namespace) -> str:
    """Return the options that select attempt and task."""
    attempt = "" if args.attempt is None else f" --attempt {args.attempt}"
    return attempt + ("" if args.task is None else f" --task {args.task}")


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
        "spill logs train -f\nspill logs train --stderr --attempt 1\nspill logs train --task 3",
    )
}
