"""`spill fetch`: downloads the output files of a job."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job, add_json
from spillover.cli.printing.output import Column, Row
from spillover.model.units import format_memory

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import FilesView

_COLUMNS = (Column("SIZE", right=True), Column("PATH"))
_OF_MANY = (Column("JOB"), *_COLUMNS)


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        help="target folder (default: the current folder); for an array, DIR/INDEX for each member",
    )
    parser.add_argument(
        "--attempt",
        type=count,
        metavar="N",
        help="files of this attempt (default: the last attempt with files)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true", help="list the files, write nothing")
    how.add_argument("--force", action="store_true", help="overwrite existing files that differ")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.printing.progress import moving  # noqa: PLC0415 - only for transfers
    from spillover.client.fetching import InTheWay  # noqa: PLC0415 - heavy

    if args.list and args.folder is not None:
        raise UsageError("--list writes nothing; remove the folder")
    folder = Path(args.folder or ".")
    with context.connect(args) as client:
        if args.list:
            return _list(
                context, [client.files(each, args.attempt) for each, _ in _members(client, args.job)], args
            )
        written: list[str] = []
        there = 0
        for each, below in _members(client, args.job):
            if below and (folder / below).is_symlink():
                raise UsageError(
                    f"{folder / below} is a symbolic link that may lead out of {folder}; remove it"
                )
            with moving(context.out, each) as progress:
                try:
                    paths = client.fetch(
                        each, folder / below, attempt=args.attempt, force=args.force, progress=progress
                    )
                except InTheWay as error:
                    raise UsageError(f"{error.what}; choose another folder, or use --force") from None
            there += bool(paths) or bool(client.files(each, args.attempt).files)
            written += map(str, paths)
    if args.json:
        context.out.json(written)
        return codes.OK
    for path in written:
        context.out.line(path)
    if not written:
        context.out.note(
            "all files exist already" if there else f"{args.job} has no output files (see `spill show`)"
        )
    return codes.OK


def _list(context: Context, views: "list[FilesView]", args: Namespace) -> int:
    """Print the list of files."""
    if args.json:
        context.out.json(views if len(views) != 1 else views[0])
        return codes.OK
    rows: list[Row] = []
    for view in views:
        rows += [
            (*((view.job,) if len(views) > 1 else ()), format_memory(file.size), file.path)
            for file in view.files
        ]
    if rows:
        context.out.table(_OF_MANY if len(views) > 1 else _COLUMNS, rows)
    else:
        context.out.note(f"{args.job} has no output files")
    return codes.OK


def _members(client: "Client", ref: str) -> Iterator[tuple[str, str]]:
    """Yield a job, or all members of an array, each with its folder."""
    from spillover.forms.jobs.arrays import parse_throttled  # noqa: PLC0415 - only here
    from spillover.model.ranges import indexes  # noqa: PLC0415 - only here

    job = client.job(ref)
    array = job.spec.get("spec", {}).get("array") if job.array is not None else None
    if array is None:
        yield job.id, ""
        return
    for index in indexes(parse_throttled(array)[0]):
        yield f"{job.id}.{index}", str(index)


COMMANDS = {
    "fetch": Command(
        "Download the output files of a job (`outputs`) to a folder and verify them. Refuses to overwrite files that differ, unless --force is given.",
        _configure,
        _run,
        "spill fetch train results\nspill fetch sweep --list",
    )
}
