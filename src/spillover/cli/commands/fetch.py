"""`spill fetch`: the files that a job brought back."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job, add_json
from spillover.cli.output import Column, Row
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
        help="where to (default: here); of an array, DIR/INDEX for each member",
    )
    parser.add_argument(
        "--attempt", type=count, metavar="N", help="of this attempt (default: the last that has any)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true", help="only say which files there are")
    how.add_argument("--force", action="store_true", help="write over files that are there and differ")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.progress import moving  # noqa: PLC0415 - only when something moves
    from spillover.client.fetching import InTheWay  # noqa: PLC0415 - heavy

    if args.list and args.folder is not None:
        raise UsageError("--list writes nothing, so there is no folder to name")
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
                raise UsageError(f"{folder / below} is a link, which may lead out of {folder}; move it away")
            with moving(context.out, each) as progress:
                try:
                    paths = client.fetch(
                        each, folder / below, attempt=args.attempt, force=args.force, progress=progress
                    )
                except InTheWay as error:
                    raise UsageError(f"{error.what}; give another folder, or --force") from None
            there += bool(paths) or bool(client.files(each, args.attempt).files)
            written += map(str, paths)
    if args.json:
        context.out.json(written)
        return codes.OK
    for path in written:
        context.out.line(path)
    if not written:
        context.out.note(
            "all files are there already"
            if there
            else f"{args.job} has brought back no files (see `spill show`)"
        )
    return codes.OK


def _list(context: Context, views: "list[FilesView]", args: Namespace) -> int:
    """Say which files there are."""
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
        context.out.note(f"{args.job} has brought back no files")
    return codes.OK


def _members(client: "Client", ref: str) -> Iterator[tuple[str, str]]:
    """The jobs that are meant, each with its folder: a job itself, or all members of an array."""
    from spillover.core.ranges import indexes  # noqa: PLC0415 - only here
    from spillover.forms.arrays import parse_array  # noqa: PLC0415 - only here

    job = client.job(ref)
    array = job.spec.get("spec", {}).get("array") if job.array is not None else None
    if array is None:
        yield job.id, ""
        return
    for index in indexes(parse_array(array)):
        yield f"{job.id}.{index}", str(index)


COMMANDS = {
    "fetch": Command(
        "Write the files that a job brought back (its `outputs`) to a folder, each checked, none over one that differs.",
        _configure,
        _run,
        "spill fetch train results\nspill fetch sweep --list",
    )
}
