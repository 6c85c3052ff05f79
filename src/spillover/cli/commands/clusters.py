"""`spill clusters`: lists clusters, and adds, drains, resumes and removes them while the server runs."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.commands.places import CLUSTERS, cluster_row
from spillover.cli.printing.output import Column, Output

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import ClusterView

_JOBS: Final = {
    "finish": "remove: let jobs there end first (default)",
    "move": "remove: stop jobs there and requeue them",
    "cancel": "remove: cancel jobs there",
}
_LEAVING: Final = {"finish": "finish first", "move": "are requeued", "cancel": "are cancelled"}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "add", "drain", "resume", "remove"),
        default="list",
        metavar="ACTION",
        help="list: list clusters (default); add: add a cluster; drain: start no more jobs there; resume: start jobs again; remove: drain and remove it",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="CLUSTER",
        help="name of a cluster; for add NAME=KIND:OPTION,... as in `spill up`",
    )
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="add: file with the cluster as in spill.yaml; - is standard input",
    )
    parser.add_argument(
        "--no-check", action="store_true", help="add: do not check that the cluster is reachable"
    )
    how = parser.add_mutually_exclusive_group()
    for name, about in _JOBS.items():
        how.add_argument(f"--{name}", dest="jobs", action="store_const", const=name, help=about)
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    _check(args)
    with context.connect(args) as client:
        match args.action:
            case "list":
                _list(client, args, context)
            case "add":
                _add(client, args, context)
            case _:
                acts = {"drain": client.drain_clusters, "resume": client.resume_clusters}
                if args.action == "remove":
                    done = client.remove_clusters(*args.names, jobs=args.jobs or "finish")
                else:
                    done = acts[args.action](*args.names)
                if args.json:
                    context.out.json(done)
    return codes.OK


def _check(args: Namespace) -> None:
    """Refuse options of other actions."""
    if args.jobs is not None and args.action != "remove":
        raise UsageError(f"--{args.jobs} is only allowed with `spill clusters remove`")
    if (args.file is not None or args.no_check) and args.action != "add":
        raise UsageError("--file and --no-check are only allowed with `spill clusters add`")
    if args.action == "add" and (args.file is None) == (not args.names):
        raise UsageError("no cluster to add; write NAME=KIND:OPTION,..., or --file FILE")
    if args.action == "list" and args.names:
        raise UsageError("`spill clusters list` lists all clusters; remove the names")
    if args.action not in {"list", "add"} and not args.names:
        raise UsageError(f"no cluster to {args.action}; `spill clusters` lists clusters")


def _list(client: "Client", args: Namespace, context: Context) -> None:
    found = list(client.clusters())
    if args.json:
        context.out.json(found)
        return
    price = Column(f"{client.server().currency}/HOUR", gives=True)
    context.out.table((*CLUSTERS, price), [cluster_row(cluster) for cluster in found])
    for cluster in found:
        _note(context.out, cluster)


def _note(out: Output, cluster: "ClusterView") -> None:
    """Print notes about drained, leaving and failing clusters."""
    if cluster.leaving is not None:
        jobs = _LEAVING.get(cluster.leaving, cluster.leaving)
        out.note(f"{cluster.name} is being removed by {cluster.drained_by}; jobs there {jobs}")
    elif cluster.drained_by is not None:
        out.note(
            f"{cluster.name} was drained by {cluster.drained_by}; to resume it, run `spill clusters resume {cluster.name}`"
        )
    if cluster.why is not None:
        since = (
            f"is {cluster.state}"
            if cluster.since is None
            else f"has been {cluster.state} since {cluster.since}"
        )
        out.note(f"{cluster.name} {since}: {cluster.why}")


def _add(client: "Client", args: Namespace, context: Context) -> None:
    entries = _entries(args.file) if args.file is not None else [_entry(name) for name in args.names]
    added = [client.add_cluster(entry, check=not args.no_check) for entry in entries]
    if args.json:
        context.out.json(added)


def _entry(option: str) -> dict[str, Any]:
    """Parse a cluster from a command-line argument."""
    from spillover.config.clusteroption import read_option  # noqa: PLC0415 - heavy, and only here

    return read_option(option)


def _entries(file: str) -> list[dict[str, Any]]:
    """Read clusters from a file: one, a list, or those under `clusters`."""
    import sys  # noqa: PLC0415 - only here

    from spillover.forms.documents import read_documents  # noqa: PLC0415 - likewise

    source = "standard input" if file == "-" else file
    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    (document, *more) = read_documents(text, source, "a cluster")
    value: object = document.value
    if isinstance(value, dict) and isinstance(value.get("clusters"), list):
        value = value["clusters"]
    found = value if isinstance(value, list) else [value]
    entries: list[dict[str, Any]] = [each for each in found if isinstance(each, dict)]
    if more or len(entries) < len(found):
        raise UsageError(f"{source}: write one cluster, or a list of clusters, as in spill.yaml")
    return entries


COMMANDS = {
    "clusters": Command(
        "List clusters with their capacity, usage and prices; add, drain, resume or remove them.",
        _configure,
        _run,
        "spill clusters\nspill clusters add lab=agents:owned\nspill clusters drain lab\nspill clusters remove lab --move",
    ),
}
