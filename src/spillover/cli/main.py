"""Entry point of `spill`: loads only the requested command, and turns every failure into one line.

Imports nothing heavy, because a command line must start at once.
"""

import importlib
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from spillover.cli import codes

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from spillover.cli.command import Command
    from spillover.client import Client


class CommandEntry(NamedTuple):
    """The module of a command, and its line in the overview."""

    module: str
    summary: str


COMMANDS: Final[dict[str, CommandEntry]] = {
    "up": CommandEntry("commands.up", "start a server on this machine"),
    "submit": CommandEntry("commands.submit", "submit job files or scripts"),
    "run": CommandEntry("commands.run", "run a command as a job"),
    "ls": CommandEntry("commands.ls", "list jobs"),
    "show": CommandEntry("commands.show", "show all details of a job"),
    "why": CommandEntry("commands.why", "explain the state of a job"),
    "logs": CommandEntry("commands.logs", "print the output of a job"),
    "exec": CommandEntry("commands.sessions", "run a command beside a task that runs"),
    "attach": CommandEntry("commands.sessions", "connect to the terminal of a job"),
    "forward": CommandEntry("commands.sessions", "forward a local port to a task's machine"),
    "fetch": CommandEntry("commands.fetch", "download the output files of a job"),
    "cancel": CommandEntry("commands.change", "cancel jobs"),
    "open": CommandEntry("commands.open", "open the web page of the server, signed in"),
    "top": CommandEntry("commands.top", "watch jobs, clusters and agents, live"),
    "wait": CommandEntry("commands.wait", "wait until jobs have ended"),
    "hold": CommandEntry("commands.change", "keep queued jobs from starting"),
    "release": CommandEntry("commands.change", "release held jobs"),
    "requeue": CommandEntry("commands.change", "return placed or running jobs to the queue"),
    "rerun": CommandEntry("commands.rerun", "submit jobs again, or only what failed of them"),
    "set": CommandEntry("commands.set", "change a job that waits, or the walltime of one that runs"),
    "cost": CommandEntry("commands.cost", "show the cost of rented capacity"),
    "usage": CommandEntry("commands.usage", "show CPU, GPU and memory hours, by user, project and more"),
    "budgets": CommandEntry("commands.cost", "show the state of budgets"),
    "queues": CommandEntry("commands.queues", "list the named queues and their limits"),
    "clusters": CommandEntry("commands.clusters", "list clusters; add, drain, resume and remove them"),
    "reserve": CommandEntry("commands.reserve", "reserve nodes for a project or for maintenance"),
    "unreserve": CommandEntry("commands.reserve", "cancel a reservation of nodes"),
    "reservations": CommandEntry("commands.reservations", "list the capacity that is reserved"),
    "pools": CommandEntry("commands.pools", "list rented machines; pause and resume renting"),
    "agents": CommandEntry("commands.places", "list agents; drain, resume and forget them"),
    "graph": CommandEntry("commands.graph", "show the levels of clusters; check and export JSON graphs"),
    "agent": CommandEntry("commands.agent", "run an agent on this machine"),
    "rsh": CommandEntry("commands.rsh", "run a command on another node of a gang, in place of ssh"),
    "login": CommandEntry("commands.login", "sign in at the provider of the server"),
    "logout": CommandEntry("commands.login", "end that sign-in"),
    "token": CommandEntry("commands.token", "create, list and revoke tokens"),
    "secret": CommandEntry("commands.secret", "set, list and remove secrets for jobs"),
    "clock": CommandEntry("commands.clock", "show whether the server trusts its clock; accept a jump"),
    "cert": CommandEntry("commands.cert", "create a certificate for TLS"),
    "config": CommandEntry("commands.config", "check spill.yaml, compare it with the server, apply it"),
    "policy": CommandEntry("commands.policy", "show and change policies"),
    "events": CommandEntry("commands.events", "print events"),
    "notifications": CommandEntry(
        "commands.notifications", "list messages that were not sent, and send them again"
    ),
    "audit": CommandEntry("commands.audit", "show what people did"),
    "doctor": CommandEntry("commands.doctor", "check the health of a server and its data"),
    "replay": CommandEntry("commands.replay", "check a journal against its stored plans"),
    "simulate": CommandEntry("commands.simulate", "try policies on a trace of jobs"),
    "backtest": CommandEntry("commands.backtest", "try policies on past jobs"),
    "demo": CommandEntry("demo.command", "watch 40 jobs run and some of them spill over"),
    "schema": CommandEntry("commands.schema", "print the JSON Schema of job files or spill.yaml"),
    "completion": CommandEntry("commands.completion", "print a completion script for your shell"),
    "version": CommandEntry("commands.version", "print the version"),
}


class Formatter(RawDescriptionHelpFormatter):
    """Fits help to the terminal; argparse would import shutil to measure it, for every option that it checks."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """Return the width of the terminal; 80 if there is none."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and int(wanted):
        return int(wanted)
    try:
        return (
            os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1).columns or 80
        )
    except (OSError, ValueError):
        return 80


class Parser(ArgumentParser):
    """An argument parser that reports errors as one line."""

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the help; unlike argparse, do not ignore a failed write."""
        print(self.format_help(), end="", file=file)

    def read(self, arguments: Sequence[str]) -> Namespace:
        """Parse all arguments; refuse unknown ones and suggest the nearest option."""
        args, rest = self.parse_known_args(arguments)
        if rest and not any(word.startswith("-") for word in rest):
            # argparse takes an optional positional as empty if an option stands before its value.
            with suppress(TypeError):  # this parser cannot mix options and positionals
                args, rest = self.parse_known_intermixed_args(arguments)
        if rest:
            from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

            wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
            near = get_close_matches(wrong, self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the message and the name of the help."""
        from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong

        raise UsageError(f"{message} (see `{self.prog} --help`)")


def main(argv: Sequence[str] | None = None, *, connect: "Callable[[Namespace], Client] | None" = None) -> int:
    """Run one command and return its exit code; `connect` replaces the usual client."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments, connect or _connect)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return codes.BROKEN_PIPE
    except Exception as error:  # users see a traceback only with SPILL_DEBUG=1
        if os.environ.get("SPILL_DEBUG") == "1":
            raise
        from spillover.cli.failures import lines_of  # noqa: PLC0415 - only when something is wrong

        for line in lines_of(error):
            print(f"spill: {line}", file=sys.stderr)
        if isinstance(error, OSError):
            _drop_output()  # do not write again what could not be written
        return codes.REFUSED
    return code


def _dispatch(arguments: list[str], connect: "Callable[[Namespace], Client]") -> int:
    """Find the command, parse its options and run it."""
    _check_text(arguments)
    if arguments[:1] == ["help"] and arguments[1:2]:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(overview())
        return codes.OK if arguments else codes.REFUSED
    name, *rest = arguments
    name = "version" if name == "--version" else name
    if name not in COMMANDS:
        _unknown(name)
    command = load(name)
    behind: list[str] | None = None
    if command.takes_words_behind and "--" in rest:
        rest, behind = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    try:
        args = make_parser(name, command).read(_with_action(command, rest))
        args.behind = behind
    except SystemExit:  # argparse has printed the help; for errors, Parser raises UsageError
        return codes.OK
    from spillover.cli.command import Context  # noqa: PLC0415 - loaded with the command
    from spillover.cli.printing.output import Output  # noqa: PLC0415 - loaded with the command

    return command.run(args, Context(Output(sys.stdout, sys.stderr), connect))


def _with_action(command: "Command", rest: list[str]) -> list[str]:
    """Add the default action of a command to arguments that name none."""
    named = rest and (rest[0] in {"-h", "--help"} or not rest[0].startswith("-"))
    return rest if named or command.action is None else [command.action, *rest]


def _check_text(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8 text."""
    for number, argument in enumerate(arguments, 1):
        if not argument.isascii():
            try:
                argument.encode()
            except UnicodeEncodeError:
                from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong

                raise UsageError(f"argument {number} is not UTF-8 text") from None


def load(name: str) -> "Command":
    """Import the module of a command and return the command."""
    module = importlib.import_module(f"spillover.cli.{COMMANDS[name].module}")
    command: Command = module.COMMANDS[name]
    return command


def make_parser(name: str, command: "Command") -> Parser:
    """Build the parser of one command; its help ends with the example."""
    from spillover.cli.command import ending  # noqa: PLC0415 - loaded with the command

    parser = Parser(
        prog=f"spill {name}",
        description=command.about,
        epilog=ending(command.example),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def overview() -> str:
    """Return the text of `spill --help`."""
    wide = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{wide}}  {entry.summary}" for name, entry in COMMANDS.items())
    return (
        "usage: spill COMMAND [options]\n\n"
        "One queue over the machines you own and the ones you can rent.\n\n"
        f"commands:\n{listed}\n\n"
        "`spill COMMAND --help` shows the options of a command.\n\n"
        "example:\n  spill up 2> up.log &\n  spill run --cpu 2 --estimate 1m --wait -- python train.py"
    )


def _connect(args: Namespace) -> "Client":
    """Open a client for the server given by options, environment or data folder."""
    from spillover.cli.command import warn_of_readers  # noqa: PLC0415 - loaded with the command
    from spillover.cli.printing.output import Output  # noqa: PLC0415 - loaded with the command
    from spillover.client import Client  # noqa: PLC0415 - heavy; not every command talks to a server
    from spillover.client.place import named_token_file  # noqa: PLC0415 - heavy

    if (named := named_token_file(args.token_file, data=args.data)) is not None:
        warn_of_readers(Output(sys.stdout, sys.stderr), named)
    return Client(server=args.server, data=args.data, ca=args.ca, token_file=args.token_file)


def _unknown(name: str) -> NoReturn:
    """Refuse an unknown command and say what to type instead."""
    from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong
    from spillover.cli.habits import hint  # noqa: PLC0415 - only when something is wrong

    if name.startswith("-"):
        raise UsageError(f"options come after the command: `spill COMMAND {name}`")
    raise UsageError(f"unknown command {name!r}; {hint(name, frozenset(COMMANDS))}")


def _drop_output() -> None:
    """Redirect standard output to /dev/null, so that the last flush of the interpreter cannot fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
