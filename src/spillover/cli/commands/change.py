"""`spill cancel`, `hold`, `release`, `requeue` and `set`: change jobs. They print nothing on success."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_job, add_jobs, add_json

if TYPE_CHECKING:
    from spillover.client import Client


def _configure(parser: ArgumentParser) -> None:
    add_jobs(parser)
    add_json(parser)
    add_connection(parser)


def _configure_set(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--priority",
        type=_priority,
        required=True,
        metavar="N",
        help="jobs with a higher priority go first; the default is 0",
    )
    add_json(parser)
    add_connection(parser)


def _priority(text: str) -> int:
    """Parse a whole number, which may be negative."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None


def _done(act: "Callable[[Client, Namespace], list[str]]") -> Callable[[Namespace, Context], int]:
    """Make a command that calls the client and prints nothing, or with --json the changed jobs."""

    def run(args: Namespace, context: Context) -> int:
        with context.connect(args) as client:
            jobs = act(client, args)
        if args.json:
            context.out.json(jobs)
        return codes.OK

    return run


def _set(args: Namespace, context: Context) -> int:
    """Change the priority of a job, and say if that has no effect."""
    from spillover.cli.unused import tell_ignored_priority  # noqa: PLC0415 - heavy

    with context.connect(args) as client:
        jobs = client.set_priority(args.job, args.priority)
        tell_ignored_priority(context.out, client, [args.priority])
    if args.json:
        context.out.json(jobs)
    return codes.OK


COMMANDS = {
    "cancel": Command(
        "Cancel jobs, all or none. Running jobs get TERM, then KILL after their grace period.",
        _configure,
        _done(lambda client, args: client.cancel(*args.jobs)),
        "spill cancel train k4x2",
    ),
    "hold": Command(
        "Keep queued jobs from starting, all or none.",
        _configure,
        _done(lambda client, args: client.hold(*args.jobs)),
        "spill hold train",
    ),
    "release": Command(
        "Release held jobs, all or none.",
        _configure,
        _done(lambda client, args: client.release(*args.jobs)),
        "spill release train",
    ),
    "requeue": Command(
        "Stop placed or running jobs and return them to their place in the queue, all or none.",
        _configure,
        _done(lambda client, args: client.requeue(*args.jobs)),
        "spill requeue train",
    ),
    "set": Command(
        "Change the priority of a job that has not been placed.",
        _configure_set,
        _set,
        "spill set train --priority 10",
    ),
}
