"""What a command is: its options, what it does, and the example that its help ends with."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spillover.cli.output import Output
    from spillover.client import Client


class Usage(Exception):
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
