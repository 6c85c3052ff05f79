"""`spill cancel`, `hold`, `release` and `requeue`: act on jobs. They print nothing on success.

They also take filters instead of jobs, as in `spill cancel --mine --state queued --name 'x*'`.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.arguments import seconds, states
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.model.units import so_many

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_STATES: Final = {
    "cancel": ("HELD", "QUEUED", "PLACED", "RUNNING"),
    "hold": ("HELD", "QUEUED"),
    "release": ("HELD",),
    "requeue": ("PLACED", "RUNNING"),
}
"""The states in which a job can be changed so. What waits for other jobs is `HELD`, and can be held too."""
_AT_ONCE: Final = 10_000
"""Most jobs in one request."""
_PENDING: Final = ("HELD", "QUEUED")
_COLUMNS: Final = ("id", "name", "user", "state")
"""What `--dry-run` shows of a job, by the columns of `ls`."""


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
    found.add_argument(
        "--state",
        type=states,
        metavar="S,...",
        help="what is in these states, such as QUEUED,RUNNING; of an array, those members",
    )
    found.add_argument("--project", metavar="P", help="jobs of this project")
    found.add_argument("--queue", metavar="Q", help="jobs of this queue")
    found.add_argument(
        "--name", metavar="PATTERN", help="jobs with this name; * and ? stand for any characters"
    )
    whose = found.add_mutually_exclusive_group()
    whose.add_argument("--user", metavar="U", help="jobs that this user submitted; `me` is you")
    whose.add_argument("--mine", action="store_true", help="jobs that you submitted")
    found.add_argument(
        "--since", type=seconds, metavar="AGO", help="jobs submitted within this time, such as 1d"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be changed; change nothing")
    add_json(parser)
    add_connection(parser)


def _all(act: str) -> Callable[[Namespace, Context], int]:
    """Make a command that changes the named jobs, or all that match its filters."""

    def run(args: Namespace, context: Context) -> int:
        filtered = args.mine or any((args.state, args.project, args.queue, args.name, args.user, args.since))
        if filtered == bool(args.jobs):
            raise UsageError("give either jobs or filters such as --mine and --name (see --help)")
        wanted = _wanted(args, act)
        with context.connect(args) as client:
            if filtered:
                views = {job.id: job for job in _matching(client, args, wanted)}
                changed = _change_some(client, act, list(views), wanted, dry_run=args.dry_run)
            elif args.dry_run:
                changed = getattr(client, act)(*args.jobs, dry_run=True)
                views = {job.id: job for job in map(client.job, _whole(changed))}
            else:
                changed = getattr(client, act)(*args.jobs)
        if args.dry_run and not args.json:
            _tell(context, act, changed, views)
        elif filtered:
            context.out.note(f"{act}: {_counted(changed)}")
        if args.json:
            context.out.json(changed)
        return codes.OK

    return run


def _wanted(args: Namespace, act: str) -> list[str]:
    """Return the states to look for."""
    asked = args.state.split(",") if args.state else _STATES[act]
    for each in asked:
        if each not in _STATES[act]:
            raise UsageError(f"--state {each}: {act} is for jobs that are {' or '.join(_STATES[act])}")
    return list(asked)


def _matching(client: "Client", args: Namespace, wanted: Sequence[str]) -> "list[JobView]":
    """Return the jobs that match the filters."""
    plain = args.name is not None and not any(letter in args.name for letter in "*?[")
    found = client.jobs(
        state=",".join(wanted),
        project=args.project,
        user=client.user if args.mine or args.user == "me" else args.user,
        name=args.name if plain else None,
        since=None if args.since is None else datetime.now(UTC) - timedelta(seconds=args.since),
        queue=args.queue,
    )
    return [job for job in found if args.name is None or plain or fnmatchcase(job.name, args.name)]


def _change_some(
    client: "Client", act: str, jobs: Sequence[str], wanted: Sequence[str], *, dry_run: bool
) -> list[str]:
    """Change what of these jobs is still in these states; return what was changed."""
    changed: list[str] = []
    for first in range(0, len(jobs), _AT_ONCE):
        some = jobs[first : first + _AT_ONCE]
        changed += getattr(client, act)(*some, states=wanted, dry_run=dry_run)
    return changed


def _whole(changed: Iterable[str]) -> list[str]:
    """Return the jobs of a change, and for members their arrays."""
    return list(dict.fromkeys(each.partition(".")[0] for each in changed))


def _counted(changed: Sequence[str]) -> str:
    """Return how many jobs were changed, and how many members of arrays by themselves."""
    members = sum("." in each for each in changed)
    parts = [
        so_many(count, what)
        for count, what in ((len(changed) - members, "job"), (members, "member"))
        if count
    ]
    return " and ".join(parts) or "0 jobs"


def _tell(context: Context, act: str, changed: Sequence[str], views: "dict[str, JobView]") -> None:
    """List what would be changed."""
    from spillover.cli.printing.job_columns import columns_of, rows_of  # noqa: PLC0415 - heavy
    from spillover.cli.printing.output import Cell, Column  # noqa: PLC0415 - heavy

    found = [views[each] for each in _whole(changed) if each in views]
    if found:
        rows = [
            [*row, Cell(_part(job, act, changed))]
            for job, row in zip(found, rows_of(found, _COLUMNS), strict=True)
        ]
        context.out.table([*columns_of(_COLUMNS), Column("WHAT", gives=True)], rows)
    context.out.note(f"{act} would change {_counted(changed)}; nothing was changed")


def _part(job: "JobView", act: str, changed: Sequence[str]) -> str:
    """Return what of a job would be changed."""
    if job.array is None:
        return act
    parts: list[str] = []
    if job.id in changed:
        pending = sum(job.array.counts.get(each, 0) for each in _PENDING)
        parts.append(so_many(pending, "pending member") if act == "cancel" else "what is pending")
    if members := sum(each.startswith(f"{job.id}.") for each in changed):
        parts.append(so_many(members, "placed or running member"))
    return f"{act} {' and '.join(parts)}"


COMMANDS = {
    "cancel": Command(
        "Cancel jobs, all or none. Running jobs get TERM, then KILL after their grace period.",
        _configure,
        _all("cancel"),
        "spill cancel train k4x2\nspill cancel --mine --state queued --name 'sweep-*'\nspill cancel --queue gpu --since 1h --dry-run",
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
}
