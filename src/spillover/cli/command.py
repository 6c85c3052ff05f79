"""What a command is: its options, what it does, and the example that its help ends with."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from stat import S_IROTH
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from spillover.cli.output import Output
    from spillover.client import Client


class UsageError(Exception):
    """What was asked for cannot be done as it was written; each problem is one line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Context(NamedTuple):
    """What a command works with."""

    out: "Output"
    connect: "Callable[[Namespace], Client]"
    """Opens a client for the options that were given; nothing is sent before its first call."""


class Command(NamedTuple):
    """One command; its module is loaded only when it is chosen."""

    about: str
    """What it does, in a sentence or two."""
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Context], int]
    """Returns the exit code."""
    example: str
    """Lines that can be typed as they are."""


def add_connection(parser: ArgumentParser) -> None:
    """Options that say which server is asked."""
    group = parser.add_argument_group("connection")
    group.add_argument("--server", metavar="URL", help="address of the server (or SPILL_SERVER)")
    group.add_argument("--data", metavar="DIR", help="data folder of a server on this machine")
    group.add_argument(
        "--ca", metavar="FILE", help="authority that the server's certificate is of (or SPILL_CA)"
    )
    group.add_argument(
        "--token-file", metavar="FILE", help="file of the token that lets you in (or SPILL_TOKEN_FILE)"
    )


def warn_of_readers(out: "Output", token_file: "Path") -> None:
    """Say that everybody on this machine can take a token; a file that cannot be looked at is told by whoever reads it."""
    with suppress(OSError):
        if token_file.stat().st_mode & S_IROTH:
            out.note(f"everybody on this machine can read {token_file}; `chmod 600` keeps the token to you")


def add_actions(parser: ArgumentParser) -> Callable[[str, str, str], ArgumentParser]:
    """What a command does, by the word behind it; returns what adds one, by name, what it does, and the example that its help ends with."""
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
    """How help ends."""
    indented = "\n".join(f"  {line}" for line in example.strip().splitlines())
    return f"example:\n{indented}"


def add_json(parser: ArgumentParser) -> None:
    """The option for programs that read what a command prints."""
    parser.add_argument("--json", action="store_true", help="print one JSON value")


def add_jobs(parser: ArgumentParser) -> None:
    """One or more jobs to act on."""
    parser.add_argument(
        "jobs", nargs="+", metavar="JOB", help="an id, a unique prefix of one, or a unique name"
    )


def add_job(parser: ArgumentParser) -> None:
    """The one job that is asked about."""
    parser.add_argument("job", metavar="JOB", help="an id, a unique prefix of one, or a unique name")
