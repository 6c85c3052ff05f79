"""`python -m spillover.agent`: one agent beside its server, until it is told to stop. `spill agent` runs one anywhere."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from spillover.agent.finding import InFolder
from spillover.agent.folder import FolderTaken
from spillover.agent.options import AgentOptions, Defaults, add_options, read_options
from spillover.agent.run import Agent


def main(words: list[str] | None = None) -> int:
    """Run an agent; the exit code is 0 when it was told to stop and 2 when it could not begin."""
    parser = _parser()
    given = parser.parse_args(words)
    data: Path = given.data.resolve()
    finder = InFolder(given.server_file or data / "server.json", data / "token")
    try:
        options = read_options(given, data, finder)
    except ValueError as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    try:
        live(options)
    except (FolderTaken, OSError) as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    return 0


def live(options: AgentOptions) -> None:
    """Run an agent until it is told to stop; raises Taken or OSError if it cannot begin."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s agent={options.name} %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would tell of every look for the server
    asyncio.run(_run(options))


async def _run(options: AgentOptions) -> None:
    """Make the agent inside the loop that it lives in."""
    await Agent(options).run()


def _parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m spillover.agent", description="Run tasks for a server.")
    parser.add_argument("--data", type=Path, required=True, help="the server's data folder")
    parser.add_argument("--name", required=True, help="of this agent, once in a cluster")
    parser.add_argument("--cluster", required=True, help="that it is part of")
    add_options(parser, Defaults())
    parser.add_argument(
        "--server-file", type=Path, help="where the server says where it is (DATA/server.json)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
