"""`spill exec`, `spill attach` and `spill forward`: work with a task that runs."""

import asyncio
from argparse import REMAINDER, ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job

if TYPE_CHECKING:
    from spillover.cli.live.talking import SessionEnd
    from spillover.cli.printing.output import Output

MOST_PORT = 65535


def _add_task(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--task", type=int, default=0, metavar="N", help="number of the task, in a gang (default: 0)"
    )


def _configure_exec(parser: ArgumentParser) -> None:
    parser.usage = "spill exec [options] JOB -- COMMAND [ARGUMENT ...]"
    _add_task(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--pty", action="store_true", help="run it in a terminal (the default if you are at a terminal)"
    )
    how.add_argument("--no-pty", action="store_true", help="run it without a terminal")
    add_connection(parser)
    add_job(parser)
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="program and arguments")


def _exec(args: Namespace, context: Context) -> int:
    """Run a command beside a task."""
    from spillover.cli.given import has_input  # noqa: PLC0415 - heavy
    from spillover.cli.live.talking import (  # noqa: PLC0415 - heavy
        has_terminal,
        in_terminal,
        live_client,
        terminal_size,
        with_streams,
    )
    from spillover.client.live import LiveSession  # noqa: PLC0415 - heavy
    from spillover.wire.api import SessionRequest  # noqa: PLC0415 - heavy

    words = args.behind if args.behind is not None else args.command
    if not words:
        raise UsageError("no command; write it after --, as in `spill exec train -- nvidia-smi`")
    if args.pty and not has_terminal():
        raise UsageError("--pty needs a terminal as standard input and output; leave it out")
    terminal = args.pty or (has_terminal() and not args.no_pty)
    rows, columns = terminal_size() if terminal else (0, 0)
    asked = SessionRequest(
        "exec", args.task, list(words), terminal, rows, columns, _term() if terminal else ""
    )

    async def run() -> "SessionEnd":
        async with live_client(args) as client:
            session = LiveSession(client, args.job, asked)
            return await (
                in_terminal(session) if terminal else with_streams(session, given=_is_typed() or has_input())
            )

    return _ended(context.out, asyncio.run(run()), "", terminal=terminal)


def _term() -> str:
    from os import environ  # noqa: PLC0415 - only with a terminal

    return environ.get("TERM", "")


def _is_typed() -> bool:
    from os import isatty  # noqa: PLC0415 - only without a terminal

    return isatty(0)


def _configure_attach(parser: ArgumentParser) -> None:
    _add_task(parser)
    add_job(parser)
    add_connection(parser)


def _attach(args: Namespace, context: Context) -> int:
    """Connect to the terminal of a job."""
    from spillover.cli.live.talking import has_terminal  # noqa: PLC0415 - heavy

    if not has_terminal():
        raise UsageError("`spill attach` needs a terminal; `spill logs JOB -f` shows the output without one")
    return attach(args, context.out, args.job)


def attach(args: Namespace, out: "Output", job: str) -> int:
    """Connect our terminal to that of a job; return the exit code of its program."""
    from spillover.cli.live.talking import in_terminal, live_client  # noqa: PLC0415 - heavy
    from spillover.client.live import LiveSession  # noqa: PLC0415 - heavy
    from spillover.wire.api import SessionRequest  # noqa: PLC0415 - heavy

    async def run() -> "SessionEnd":
        async with live_client(args) as client:
            return await in_terminal(
                LiveSession(client, job, SessionRequest("attach", getattr(args, "task", 0)))
            )

    return _ended(out, asyncio.run(run()), job)


def _ended(out: "Output", end: "SessionEnd", job: str, *, terminal: bool = True) -> int:
    """Say how a session ended; return our exit code. A job that is named goes on without us."""
    if end.code is not None:
        return end.code
    if terminal:
        print(file=out.err)  # the program may have left the cursor anywhere in its line
    again = f"; the job goes on, and `spill attach {job}` comes back to it" if job else ""
    if end.detached:
        out.note(f"detached{again}")
        return codes.OK
    if end.killed:
        return codes.SIGNALLED + end.killed
    out.note(end.error or f"the connection was lost{again or '; the command was ended'}")
    return codes.REFUSED


def _configure_forward(parser: ArgumentParser) -> None:
    _add_task(parser)
    add_job(parser)
    parser.add_argument(
        "port",
        metavar="[LOCAL:]PORT",
        help="port of the task's machine, and the one here if it is another; 0 is any",
    )
    add_connection(parser)


def _forward(args: Namespace, context: Context) -> int:
    """Forward a local port until the job ends, or Ctrl-C."""
    from spillover.cli.live.talking import live_client  # noqa: PLC0415 - heavy
    from spillover.client.live import Forwarding  # noqa: PLC0415 - heavy

    local, remote = _ports(args.port)
    out, told = context.out, set[str]()

    def tell(why: str) -> None:
        if why not in told:  # a browser tries again and again
            told.add(why)
            out.note(why)

    async def run() -> str:
        async with live_client(args) as client:
            job = (await client.job(args.job)).id
            forwarding = Forwarding(client, job, remote, args.task, tell)
            if why := await forwarding.probe():
                tell(f"{why}; connections work once something does")
            try:
                await forwarding.open(local)
            except OSError as error:
                raise UsageError(
                    f"cannot listen on port {local} here: {error.strerror}; write another one, as in 0:{remote}"
                ) from None
            try:
                out.line(f"{forwarding.host}:{forwarding.port}")
                out.out.flush()
                (ended,) = await client.wait(job)
            finally:
                await forwarding.close()
            return f"{job} has ended ({ended.state})"

    out.note(asyncio.run(run()))
    return codes.OK


def _ports(text: str) -> tuple[int, int]:
    """Read `PORT` or `LOCAL:PORT`."""
    local, colon, remote = text.rpartition(":")
    for word, least in ((local if colon else remote, 0), (remote, 1)):
        if not (word.isascii() and word.isdigit() and len(word) < 6 and least <= int(word) <= MOST_PORT):
            raise UsageError(f"{text!r} is not a port; write 8888, or 9999:8888 for another one here")
    return int(local or remote), int(remote)


COMMANDS = {
    "exec": Command(
        "Run a command beside a task that runs: on its node, in its folder, with its environment and limits. "
        "The exit code is that of the command. At a terminal, Ctrl-] d ends it.",
        _configure_exec,
        _exec,
        "spill exec train -- nvidia-smi\nspill exec train --task 3 -- bash",
        takes_words_behind=True,
    ),
    "attach": Command(
        "Connect to the terminal of a job that was started by `spill run --pty`. Ctrl-] d detaches, and the job goes on; "
        "the exit code is that of the job's program if it ends meanwhile.",
        _configure_attach,
        _attach,
        "spill attach bash",
    ),
    "forward": Command(
        "Forward a local port to a port of the machine that runs a task, until the job ends or Ctrl-C. Prints the local address.",
        _configure_forward,
        _forward,
        "spill forward notebook 8888\nspill forward notebook 9999:8888",
    ),
}
