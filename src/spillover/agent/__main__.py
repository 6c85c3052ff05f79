"""Runs one agent on the machine of its server (`python -m spillover.agent`). `spill agent` runs one on any machine."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from spillover.agent.alone import off_command, turn_off
from spillover.agent.connection.finding import InFolder
from spillover.agent.connection.joining import ByJoin, hide_memory
from spillover.agent.files.folder import FolderTaken
from spillover.agent.notices import KINDS, POLL
from spillover.agent.options import AgentOptions, Defaults, add_options, read_joining, read_options
from spillover.agent.privileges import give_up_root, read_kept
from spillover.agent.run import Agent


def main(words: list[str] | None = None, joined: Callable[[], None] | None = None) -> int:
    """Run an agent; return 0 when it stopped as requested, and exit with 2 when it could not start.

    `joined` is called whenever it has registered.
    """
    parser = _parser()
    given = parser.parse_args(words)
    data: Path = given.data.resolve()
    if given.join is None and (
        missing := [f"--{each}" for each in ("name", "cluster") if not getattr(given, each)]
    ):
        parser.error(f"the following arguments are required: {', '.join(missing)} (or --join)")
    try:
        join = read_joining(given)
        finder = (
            ByJoin(join, given.server_file)
            if join is not None
            else InFolder(given.server_file or data / "server.json", data / "token")
        )
        options = read_options(given, data, finder, join)
    except ValueError as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    try:
        live(structs.replace(options, joined=joined))
    except (FolderTaken, OSError) as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    return 0


def live(options: AgentOptions) -> None:
    """Run an agent until it is asked to stop; raise FolderTaken or OSError if it cannot start."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s agent={options.name} %(message)s",
    )
    # Httpx logs each request, and a search for the server sends many.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if options.user:
        options = _as_user(options)
    if options.join is not None:
        hide_memory()
    alone = asyncio.run(_run(options))
    if options.helper is not None:
        if alone:
            options.helper.turn_off()
        options.helper.close()
    elif alone:
        turn_off(off_command(options.off))


def _as_user(options: AgentOptions) -> AgentOptions:
    """Run as another user from now on, with a helper for what needs root."""
    data = options.folder.parent.parent
    finder, kept = options.finder, read_kept(data, options.name)
    if kept is not None and isinstance(finder, ByJoin):
        finder.exchanged(kept.token, kept.authority.encode())
    kind = KINDS.get(options.notices)
    notices = None if kind is None else kind(options.metadata)
    command = off_command(options.off)
    helper = give_up_root(options.user, data, options.name, notices, lambda: turn_off(command), POLL)
    if isinstance(finder, ByJoin):
        finder.on_exchange(helper.keep)
    return structs.replace(options, helper=helper)


async def _run(options: AgentOptions) -> bool:
    """Create the agent inside the event loop that runs it, and run it; return whether to turn the machine off."""
    agent = Agent(options)
    await agent.run()
    return agent.turns_off


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m spillover.agent", description="Run tasks for a Spillover server."
    )
    parser.add_argument("--data", type=Path, required=True, help="the server's data folder")
    parser.add_argument("--name", help="name of this agent, unique in its cluster")
    parser.add_argument("--cluster", help="cluster to join")
    add_options(parser, Defaults())
    parser.add_argument(
        "--server-file",
        type=Path,
        help="file with the server's address (DATA/server.json; with --join, none)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
