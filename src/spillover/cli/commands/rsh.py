"""`spill rsh`: runs commands on the other nodes of a gang, in place of ssh."""

import os
from argparse import REMAINDER, ArgumentParser, Namespace

from spillover.cli.command import Command, Context, UsageError

NO_SHELL = 255
"""Exit code if the command could not be run, as of ssh."""
_LIKE_SSH = ("-x", "-q", "-T")
"""Options that launchers give to ssh or rsh, and that mean nothing here."""


def _configure(parser: ArgumentParser) -> None:
    parser.usage = (
        "spill rsh HOST COMMAND [ARGUMENT ...]\n       spill rsh --serve [-- COMMAND [ARGUMENT ...]]"
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve remote shells to the other tasks; the first task of the job runs COMMAND, and all end with it",
    )
    parser.add_argument("-n", action="store_true", help="read nothing from standard input")
    for option in _LIKE_SSH:
        parser.add_argument(option, action="store_true", help="ignored, as launchers give it to ssh")
    parser.add_argument(
        "words", nargs=REMAINDER, metavar="HOST COMMAND", help="a node of the job, and what to run there"
    )


def _run(args: Namespace, context: Context) -> int:
    import asyncio  # noqa: PLC0415 - heavy

    from spillover.agent.rsh.calling import NoShell, Streams, call  # noqa: PLC0415 - heavy
    from spillover.agent.rsh.gang import NotInGang, OwnGang, UnknownHost  # noqa: PLC0415 - heavy
    from spillover.agent.rsh.serving import serve  # noqa: PLC0415 - heavy

    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    try:
        gang = OwnGang.of(os.environ)
        if args.serve:
            return asyncio.run(serve(gang, os.environ, words))
        if len(words) < 2:
            raise UsageError("no command; write `spill rsh HOST COMMAND`, or `spill rsh --serve -- COMMAND`")
        streams = Streams(os.open(os.devnull, os.O_RDONLY)) if args.n else Streams()
        return asyncio.run(call(gang, gang.find(words[0]), " ".join(words[1:]), streams))
    except (NotInGang, UnknownHost) as error:
        raise UsageError(str(error)) from None
    except NoShell as error:
        context.out.note(str(error))
        return NO_SHELL
    except OSError as error:  # the command is missing, or the port is in use
        context.out.note(f"{error.filename or 'spill rsh'}: {error.strerror or error}")
        return NO_SHELL


COMMANDS = {
    "rsh": Command(
        "Run a command on another node of the same job, as ssh would. It works only inside a job with several tasks,\n"
        "between the nodes of that job. Open MPI's mpirun and others use it by themselves: run `spill rsh --serve -- mpirun ...`.",
        _configure,
        _run,
        "spill run --tasks 4 --wait -- spill rsh --serve -- mpirun ./hello\nspill rsh n2 hostname",
    )
}
