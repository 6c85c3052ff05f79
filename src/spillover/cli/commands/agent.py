"""`spill agent`: runs an agent on this machine for any server."""

import os
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, warn_of_readers

if TYPE_CHECKING:
    from spillover.agent.connection.finding import ByUrl
    from spillover.cli.printing.output import Output


def _configure(parser: ArgumentParser) -> None:
    from spillover.agent.options import Defaults, add_options  # noqa: PLC0415 - heavy

    parser.add_argument("--server", metavar="URL", help="URL of the server (or SPILL_SERVER)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="token file from `spill token create --role agent --out FILE` (or SPILL_TOKEN_FILE)",
    )
    parser.add_argument("--ca", metavar="FILE", help="CA certificate to verify the server with (or SPILL_CA)")
    parser.add_argument("--name", metavar="NAME", help="name of this agent (default: the host name)")
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="cluster to join (default: that of the token, or the server's only cluster)",
    )
    parser.add_argument("--slots", type=count, metavar="N", help="CPUs that tasks may use; same as --cpu N")
    add_options(parser, Defaults(cpu="", memory="", drain="30s", sockets="auto", off="auto"))
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder for results and output (default: spillover in XDG_STATE_HOME, else in ~/.local/state)",
    )


def _run(args: Namespace, context: Context) -> int:
    from msgspec import structs  # noqa: PLC0415 - heavy

    from spillover.agent.__main__ import live  # noqa: PLC0415 - heavy
    from spillover.agent.connection.finding import ByUrl  # noqa: PLC0415 - heavy
    from spillover.agent.connection.joining import STDIN, ByJoin  # noqa: PLC0415 - heavy
    from spillover.agent.connection.peers import Listening  # noqa: PLC0415 - heavy
    from spillover.agent.files.folder import FolderTaken  # noqa: PLC0415 - heavy
    from spillover.agent.options import read_joining, read_options  # noqa: PLC0415 - heavy

    try:
        join = read_joining(args)
        if join is not None:
            if args.join != STDIN:
                warn_of_readers(context.out, Path(args.join))
            _complete_machine(args)
            server, finder = join.server, ByJoin(join)
            options = read_options(args, args.data.absolute(), finder, join)
        else:
            _complete(args)
            warn_of_readers(context.out, args.token_file)
            server, asking = (
                args.server,
                ByUrl(args.server, args.token_file, Path(args.ca) if args.ca else None),
            )
            unnamed = args.cluster is None
            args.cluster = args.cluster or "unnamed"  # find all other problems before waiting for the server
            options = read_options(args, args.data.absolute(), asking)
            if unnamed:
                options = structs.replace(options, cluster=_cluster(asking, context.out))
        # Agents on other machines cannot reach loopback, so do not offer them a peer address there.
        if args.peer is None and not _is_here(server):
            options = structs.replace(options, peers=Listening(address=""))
        live(options)
    except (ValueError, FolderTaken) as error:
        raise UsageError(*str(error).splitlines()) from None
    return codes.OK


def _complete(args: Namespace) -> None:
    """Fill in missing options from the environment and the machine."""
    from spillover.client.place import server_url  # noqa: PLC0415 - heavy

    args.server = args.server or os.environ.get("SPILL_SERVER")
    if not args.server:
        raise UsageError("no server; set --server URL or SPILL_SERVER")
    server_url(args.server)
    if args.token_file is None:
        if not (named := os.environ.get("SPILL_TOKEN_FILE")):
            raise UsageError("no token; set --token-file FILE or SPILL_TOKEN_FILE")
        args.token_file = Path(named)
    args.ca = args.ca or os.environ.get("SPILL_CA")
    args.name = args.name or socket.gethostname()
    _complete_machine(args)
    try:
        args.token_file.read_bytes()
    except OSError as error:
        raise UsageError(f"--token-file {args.token_file}: {error.strerror}") from None


def _complete_machine(args: Namespace) -> None:
    """Fill in missing options from the machine."""
    from spillover.clusters.agents.machine import cpus, memory  # noqa: PLC0415 - only here

    if args.slots is not None and args.cpu:
        raise UsageError("--slots and --cpu mean the same; remove one")
    args.cpu = args.cpu or str(args.slots or cpus())
    args.memory = args.memory or str(memory())
    if args.data is None:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        args.data = Path(home) / "spillover"


def _is_here(url: str) -> bool:
    """Tell whether a URL names this machine by a loopback address."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _cluster(finder: "ByUrl", out: "Output") -> str:
    """Ask the server which cluster to join; wait until it answers."""
    import asyncio  # noqa: PLC0415 - only here

    from spillover.agent.connection.finding import NotFound  # noqa: PLC0415 - heavy

    def away(why: str) -> None:
        out.note(f"{why}; waiting for the server, as --cluster is not set")

    try:
        return asyncio.run(finder.await_cluster(away))
    except NotFound as error:
        raise UsageError(str(error)) from None


COMMANDS = {
    "agent": Command(
        "Run an agent. It joins a cluster of the server, takes leases and runs tasks. On SIGTERM or Ctrl-C it takes no new tasks and waits for running ones (--drain-timeout); a second signal stops them.",
        _configure,
        _run,
        "spill agent --server https://build.example.org:7070 --ca ca.pem --token-file agent.token --cpu 8 --memory 32Gi",
    )
}
