"""`python -m spillover.agent`: one agent, until it is told to stop."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from spillover.agent.run import Agent, Options, Taken
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.resources import Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory

DEFAULT_QUEUE = 64


def main(words: list[str] | None = None) -> int:
    """Run an agent; the exit code is 0 when it was told to stop and 2 when it could not begin."""
    parser = _parser()
    given = parser.parse_args(words)
    try:
        options = _options(given)
    except ValueError as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s agent={options.name} %(message)s",
    )
    try:
        asyncio.run(_run(options))
    except (Taken, OSError) as error:
        parser.exit(2, f"spillover.agent: {error}\n")
    return 0


async def _run(options: Options) -> None:
    """Make the agent inside the loop that it lives in."""
    await Agent(options).run()


def _parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m spillover.agent", description="Run tasks for a server.")
    parser.add_argument("--data", type=Path, required=True, help="the server's data folder")
    parser.add_argument("--name", required=True, help="of this agent, once in a cluster")
    parser.add_argument("--cluster", required=True, help="that it is part of")
    parser.add_argument("--cpu", default="1", help="CPUs that it may use, such as 2 or 500m")
    parser.add_argument("--memory", default="1Gi", help="memory that it may use, such as 4Gi")
    parser.add_argument("--gpu", type=int, default=0, help="GPUs that it may use")
    parser.add_argument(
        "--queue", type=int, default=DEFAULT_QUEUE, help="leases to hold beyond those that run"
    )
    parser.add_argument("--offer", action="append", default=[], help="a word that jobs may need")
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="shown with the agent"
    )
    parser.add_argument(
        "--server-file", type=Path, help="where the server says where it is (DATA/server.json)"
    )
    return parser


def _options(given: argparse.Namespace) -> Options:
    """The options, checked."""
    for flag in ("name", "cluster"):
        if not is_name(getattr(given, flag)):
            raise ValueError(f"--{flag} {getattr(given, flag)!r} is not {NAME_RULE}")
    try:
        capacity = Resources(parse_cpu(given.cpu), parse_memory(given.memory), given.gpu)
    except UnitError as error:
        raise ValueError(f"--cpu or --memory: {error}") from None
    if capacity.cpu <= 0 or capacity.memory <= 0 or capacity.gpu < 0 or given.queue < 0:
        raise ValueError("--cpu and --memory must be above 0, --gpu and --queue not below")
    for label in given.label:
        if not label.partition("=")[0] or "=" not in label:
            raise ValueError(f"--label {label!r} is not KEY=VALUE")
    labels = dict(label.partition("=")[::2] for label in given.label)
    data: Path = given.data.resolve()
    return Options(
        folder=data / "agents" / given.name,
        server_file=given.server_file or data / "server.json",
        token_file=data / "token",
        name=given.name,
        cluster=given.cluster,
        capacity=capacity,
        queue=given.queue,
        offers=tuple(given.offer),
        labels=labels,
    )


if __name__ == "__main__":
    sys.exit(main())
