"""`spill cancel`, `hold`, `release`, `requeue` and `set`: change jobs. They print nothing on success.

The first four also take filters instead of jobs, as in `spill cancel --mine --state queued --name 'x*'`.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import state
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job, add_json

if TYPE_CHECKING:
    from spillover.client import Client

_STATES: Final = {
    "cancel": ("HELD", "QUEUED", "PLACED", "RUNNING"),
    "hold": ("QUEUED",),
    "release": ("HELD",),
    "requeue": ("PLACED", "RUNNING"),
}
"""The states in which a job can be changed so."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "jobs",
        nargs="*",
        metavar="JOB",
        help="job id, unique prefix of an id, or unique name; or use filters instead",
    )
    found = parser.add_argument_group(
        "filters", "All jobs that match all of these, and that can be changed so."
    )
    found.add_argument("--state", type=state, metavar="S", help="jobs in this state, such as QUEUED")
    found.add_argument("--project", metavar="P", help="jobs of this project")
    found.add_argument(
        "--name", metavar="PATTERN", help="jobs with this name; * and ? stand for any characters"
    )
    whose = found.add_mutually_exclusive_group()
    whose.add_argument("--user", metavar="U", help="jobs that this user submitted")
    whose.add_argument("--mine", action="store_true", help="jobs that you submitted")
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


def _set(args: Namespace, context: Context) -> int:
    """Change the priority of a job, and say if that has no effect."""
    from spillover.cli.unused import tell_ignored_priority  # noqa: PLC0415 - heavy

    with context.connect(args) as client:
        jobs = client.set_priority(args.job, args.priority)
        tell_ignored_priority(context.out, client, [args.priority])
    if args.json:
        context.out.json(jobs)
    return codes.OK


def _all(act: str) -> Callable[[Namespace, Context], int]:
    """Make a command that changes the named jobs, or all that match its filters."""

    def run(args: Namespace, context: Context) -> int:
        filtered = args.mine or any((args.state, args.project, args.name, args.user))
        if filtered == bool(args.jobs):
            raise UsageError("give either jobs or filters such as --mine and --name (see --help)")
        with context.connect(args) as client:
            jobs = _matching(client, args, act) if filtered else args.jobs
            changed = getattr(client, act)(*jobs) if jobs else []
        if filtered:
            context.out.note(f"{act}: {len(jobs)} job{'' if len(jobs) == 1 else 's'}")
        if args.json:
            context.out.json(changed)
        return codes.OK

    return run


def _matching(client: "Client", args: Namespace, act: str) -> list[str]:
    """Return the jobs that match the filters and that can be changed so."""
    states = [each for each in _STATES[act] if args.state in {None, each}]
    if not states:
        raise UsageError(f"--state {args.state}: {act} is for jobs that are {' or '.join(_STATES[act])}")
    user = client.user if args.mine else args.user
    plain = args.name is not None and not any(letter in args.name for letter in "*?[")
    found = [
        job
        for each in states
        for job in client.jobs(state=each, project=args.project, user=user, name=args.name if plain else None)
    ]
    return [
        job.id
        for job in found
        if (args.name is None or plain or fnmatchcase(job.name, args.name))
        and (act != "release" or (job.reason is not None and job.reason.code == "held"))
    ]


COMMANDS = {
    "cancel": Command(
        "Cancel jobs, all or none. Running jobs get TERM, then KILL after their grace period.",
        _configure,
        _all("cancel"),
        "spill cancel train k4x2\nspill cancel --mine --state queued --name 'sweep-*'",
    ),
    "hold": Command(
        "Keep queued jobs from starting, all or none.",
        _configure,
        _all("hold"),
        "spill hold train",
    ),
    "release": Command(
        "Release held jobs, all or none.",
        _configure,
        _all("release"),
        "spill release train",
    ),
    "requeue": Command(
        "Stop placed or running jobs and return them to their place in the queue, all or none.",
        _configure,
        _all("requeue"),
        "spill requeue train",
    ),
    "set": Command(
        "Change the priority of a job that has not been placed.",
        _configure_set,
        _set,
        "spill set train --priority 10",
    ),
}
