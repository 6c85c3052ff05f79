"""`spill wait`: waits until jobs have ended."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import seconds
from spillover.cli.command import Command, Context, add_connection, add_jobs, add_json
from spillover.cli.printing.listing import outcome
from spillover.cli.printing.output import Output

if TYPE_CHECKING:
    from spillover.wire.api import JobView


def _configure(parser: ArgumentParser) -> None:
    add_jobs(parser)
    parser.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="stop waiting after this time, such as 1m"
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.client import WaitTimeout  # noqa: PLC0415 - heavy

    with context.connect(args) as client:
        try:
            ended = client.wait(*args.jobs, timeout=args.timeout)
        except WaitTimeout as error:
            context.out.note(str(error))
            return codes.TIMED_OUT
    if args.json:
        context.out.json(ended)
    return verdict(context.out, ended)


def verdict(out: Output, ended: "Sequence[JobView]") -> int:
    """Print the jobs that did not succeed; return the exit code."""
    failed = [job for job in ended if job.state != "SUCCEEDED"]
    for job in failed:
        out.note(outcome(job))
    return codes.NOT_SUCCEEDED if failed else codes.OK


COMMANDS = {
    "wait": Command(
        "Wait until jobs have ended. Exit code: 0 if all succeeded, 1 if one did not, 124 at the timeout.",
        _configure,
        _run,
        "spill wait train --timeout 10m && echo done",
    )
}
