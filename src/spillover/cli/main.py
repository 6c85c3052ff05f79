"""Entry point of `spill`: finds the command, loads it alone, and turns every failure into one line.

Nothing heavy is imported here: a command line that is typed all day has to start at once.
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
    """Where a command is, and its line in the overview."""

    module: str
    summary: str


COMMANDS: Final[dict[str, CommandEntry]] = {
    "up": CommandEntry("commands.up", "start a server on this machine"),
    "submit": CommandEntry("commands.submit", "submit job files or scripts"),
    "run": CommandEntry("commands.run", "run one command as a job"),
    "ls": CommandEntry("commands.ls", "list jobs"),
    "show": CommandEntry("commands.show", "all that is known of a job"),
    "why": CommandEntry("commands.why", "why a job is where it is"),
    "logs": CommandEntry("commands.logs", "what a job printed"),
    "fetch": CommandEntry("commands.fetch", "the files that a job brought back"),
    "cancel": CommandEntry("commands.change", "cancel jobs"),
    "top": CommandEntry("commands.top", "watch jobs, clusters and agents, live"),
    "wait": CommandEntry("commands.wait", "wait until jobs have ended"),
    "hold": CommandEntry("commands.change", "keep queued jobs from starting"),
    "release": CommandEntry("commands.change", "let held jobs go"),
    "requeue": CommandEntry("commands.change", "put placed or running jobs back into the queue"),
    "set": CommandEntry("commands.change", "change the priority of a job"),
    "cost": CommandEntry("commands.cost", "what was spent on rented capacity"),
    "budgets": CommandEntry("commands.cost", "how far budgets are"),
    "clusters": CommandEntry("commands.clusters", "list clusters; add, drain, resume and remove them"),
    "agents": CommandEntry("commands.places", "list agents"),
    "agent": CommandEntry("commands.agent", "run an agent on this machine, for a server anywhere"),
    "token": CommandEntry("commands.token", "let people and agents in: create, list, revoke"),
    "clock": CommandEntry(
        "commands.clock", "whether the server believes the clock of its machine; have it followed"
    ),
    "cert": CommandEntry("commands.cert", "make a certificate for TLS"),
    "config": CommandEntry("commands.config", "check spill.yaml, compare it with the server, apply it"),
    "policy": CommandEntry("commands.policy", "which policies decide; change them"),
    "events": CommandEntry("commands.events", "what happened"),
    "doctor": CommandEntry("commands.doctor", "whether a server and its data are healthy"),
    "replay": CommandEntry("commands.replay", "whether a journal leads to the plans that it stored"),
    "simulate": CommandEntry("commands.simulate", "try policies on a trace of jobs"),
    "backtest": CommandEntry("commands.backtest", "try policies on what really happened"),
    "demo": CommandEntry("demo.command", "watch 40 jobs run and some of them spill over"),
    "schema": CommandEntry("commands.schema", "JSON Schema of job files and spill.yaml"),
    "completion": CommandEntry("commands.completion", "let your shell complete commands, options and jobs"),
    "version": CommandEntry("commands.version", "print the version"),
}


class Formatter(RawDescriptionHelpFormatter):
    """As wide as the terminal. Every option makes one to be checked with, so it is not left to load what it measures by."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """How wide the terminal is; 80 if there is none."""
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
    """A parser whose errors are one line, as all errors of the command line are."""

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the help, and do not hide that it could not be printed."""
        print(self.format_help(), end="", file=file)

    def read(self, arguments: Sequence[str]) -> Namespace:
        """Read all arguments; one that nobody takes is refused with the nearest option."""
        args, rest = self.parse_known_args(arguments)
        if rest and not any(word.startswith("-") for word in rest):
            # A place that may be left empty was taken to be, as an option came before what stands there.
            with suppress(TypeError):  # of a parser for which there is no other way
                args, rest = self.parse_known_intermixed_args(arguments)
        if rest:
            from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

            wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
            near = get_close_matches(wrong, self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return args

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong

        raise UsageError(f"{message} (see `{self.prog} --help`)")


def main(argv: Sequence[str] | None = None, *, connect: "Callable[[Namespace], Client] | None" = None) -> int:
    """Run one command and return its exit code; `connect` opens another client than the usual one."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments, connect or _connect)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return codes.BROKEN_PIPE
    except Exception as error:  # nobody sees a traceback unless they ask for it
        if os.environ.get("SPILL_DEBUG") == "1":
            raise
        from spillover.cli.failures import lines_of  # noqa: PLC0415 - only when something is wrong

        for line in lines_of(error):
            print(f"spill: {line}", file=sys.stderr)
        if isinstance(error, OSError):
            _drop_output()  # what could not be printed is not tried again
        return codes.REFUSED
    return code


def _dispatch(arguments: list[str], connect: "Callable[[Namespace], Client]") -> int:
    """Find the command, read its options and run it."""
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
    try:
        args = make_parser(name, command).read(rest)
    except SystemExit:  # argparse has printed the help that was asked for; what is wrong it raises as Usage
        return codes.OK
    from spillover.cli.command import Context  # noqa: PLC0415 - loaded with the command
    from spillover.cli.output import Output  # noqa: PLC0415 - loaded with the command

    return command.run(args, Context(Output(sys.stdout, sys.stderr), connect))


def _check_text(arguments: list[str]) -> None:
    """Refuse bytes that no name, file or job could be sent with."""
    for number, argument in enumerate(arguments, 1):
        if not argument.isascii():
            try:
                argument.encode()
            except UnicodeEncodeError:
                from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong

                raise UsageError(f"argument {number} is not UTF-8 text") from None


def load(name: str) -> "Command":
    """The command of this name, with its module."""
    module = importlib.import_module(f"spillover.cli.{COMMANDS[name].module}")
    command: Command = module.COMMANDS[name]
    return command


def make_parser(name: str, command: "Command") -> Parser:
    """The options of one command; its help ends with the example."""
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
    """What `spill --help` prints."""
    wide = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{wide}}  {entry.summary}" for name, entry in COMMANDS.items())
    return (
        "usage: spill COMMAND [options]\n\n"
        "One queue over the machines you own and the ones you can rent.\n\n"
        f"commands:\n{listed}\n\n"
        "`spill COMMAND --help` tells more about each.\n\n"
        "example:\n  spill up &\n  spill run --cpu 2 --estimate 1m --wait -- python train.py"
    )


def _connect(args: Namespace) -> "Client":
    """A client for the server that the options, the environment or the data folder name."""
    from spillover.cli.command import warn_of_readers  # noqa: PLC0415 - loaded with the command
    from spillover.cli.output import Output  # noqa: PLC0415 - loaded with the command
    from spillover.client import Client  # noqa: PLC0415 - heavy; not every command talks to a server
    from spillover.client.place import named_token_file  # noqa: PLC0415 - heavy

    if (named := named_token_file(args.token_file, data=args.data)) is not None:
        warn_of_readers(Output(sys.stdout, sys.stderr), named)
    return Client(server=args.server, data=args.data, ca=args.ca, token_file=args.token_file)


def _unknown(name: str) -> NoReturn:
    """Refuse a command that is not there and name the nearest."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    from spillover.cli.command import UsageError  # noqa: PLC0415 - only when something is wrong

    if name.startswith("-"):
        raise UsageError(f"options come behind the command: `spill COMMAND {name}`")
    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean `spill {near[0]}`?" if near else "`spill --help` lists them"
    raise UsageError(f"there is no command {name!r}; {hint}")


def _drop_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush is quiet too."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
