"""`spill up`: runs a server on this machine."""

from argparse import ArgumentParser, Namespace

from spillover.cli.arguments import count
from spillover.cli.command import Command, Context


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="configuration file (default: ./spill.yaml if it exists)"
    )
    parser.add_argument("--data", metavar="DIR", help="data folder")
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="address of the HTTP API (port 0 picks a free port)"
    )
    parser.add_argument("--grpc", metavar="HOST:PORT", help="address for agents (port 0 picks a free port)")
    parser.add_argument(
        "--slots", type=count, metavar="N", help="CPUs of the local agent (default: all of this machine)"
    )
    parser.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME=KIND:OPTION,...",
        help="a cluster, replaces those of spill.yaml; repeatable",
    )
    parser.add_argument("--standby", action="store_true", help="wait until the current leader stops")
    parser.add_argument(
        "--restored",
        action="store_true",
        help="the data are a backup: agents that worked for a later server accept this one",
    )


def _run(args: Namespace, context: Context) -> int:  # noqa: ARG001 - the server prints for itself
    from spillover.server.up import run  # noqa: PLC0415 - heavy

    return run(
        config=args.config,
        data=args.data,
        http=args.http,
        grpc=args.grpc,
        slots=args.slots,
        clusters=args.cluster,
        standby=args.standby,
        restored=args.restored,
    )


COMMANDS = {
    "up": Command(
        "Start a server with its local agents. It prints `ready URL` when it accepts jobs. Ctrl-C or SIGTERM stops it.",
        _configure,
        _run,
        "spill up --data ./spill-data --slots 4\nspill up --config spill.yaml\n"
        "spill up --cluster onprem=kubernetes:context=kind-onprem,owned --cluster cloud=kubernetes:context=kind-cloud,rented,gpu=2.5",
    )
}
