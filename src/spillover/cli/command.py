"""Defines what a command consists of, and the options that several commands share."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from stat import S_IROTH
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from spillover.cli.printing.output import Output
    from spillover.client import Client


class UsageError(Exception):
    """The command line is invalid; each problem is one line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Context(NamedTuple):
    """The output and the server connection of a command."""

    out: "Output"
    connect: "Callable[[Namespace], Client]"
    """Opens a client for the parsed options; sends nothing before the first call."""


class Command(NamedTuple):
    """One command; `spill` loads its module only when a user runs it."""

    about: str
    """One or two sentences for the help."""
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Context], int]
    """Returns the exit code."""
    example: str
    """Command lines that work as they are."""
    action: str | None = None
    """The action of a command line that names none; None if it must name one."""
    takes_words_behind: bool = False
    """Whether words behind `--` are for a program; they are `Namespace.behind`, None without `--`."""


def add_connection(parser: ArgumentParser) -> None:
    """Add the options that select a server."""
    group = parser.add_argument_group("connection")
    group.add_argument("--server", metavar="URL", help="URL of the server (or SPILL_SERVER)")
    group.add_argument("--data", metavar="DIR", help="data folder of a server on this machine")
    group.add_argument("--ca", metavar="FILE", help="CA certificate to verify the server with (or SPILL_CA)")
    group.add_argument("--token-file", metavar="FILE", help="file with your token (or SPILL_TOKEN_FILE)")


def warn_of_readers(out: "Output", token_file: "Path") -> None:
    """Warn if all users of this machine can read the token; leave an unreadable file to the code that reads it."""
    with suppress(OSError):
        if token_file.stat().st_mode & S_IROTH:
            out.note(f"all users of this machine can read {token_file}; run `chmod 600 {token_file}`")


def add_actions(parser: ArgumentParser) -> Callable[[str, str, str], ArgumentParser]:
    """Make a command take an action; return the function that adds one, from its name, description and example."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do")

    def add(name: str, about: str, example: str) -> ArgumentParser:
        return actions.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=ending(example),
            formatter_class=parser.formatter_class,
            allow_abbrev=False,
        )

    return add


def ending(example: str) -> str:
    """Return the last part of a help text."""
    indented = "\n".join(f"  {line}" for line in example.strip().splitlines())
    return f"example:\n{indented}"


def add_json(parser: ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_jobs(parser: ArgumentParser) -> None:
    """Add one or more jobs as arguments."""
    parser.add_argument(
        "jobs", nargs="+", metavar="JOB", help="job id, unique prefix of an id, or unique name"
    )


def add_job(parser: ArgumentParser) -> None:
    """Add exactly one job as an argument."""
    parser.add_argument("job", metavar="JOB", help="job id, unique prefix of an id, or unique name")
