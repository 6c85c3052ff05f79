"""`spill graph`: shows clusters as trees of levels, and reads and writes them as JSON graphs."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_actions, add_connection, add_json
from spillover.cli.printing.output import Column
from spillover.model.units import so_many

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.forms.graph import Graph, GraphNode
    from spillover.model.inside import Inside
    from spillover.model.resources import Resources
    from spillover.wire.api import AgentView, ClusterView, NodeView

_TREE: Final = (
    Column("VERTEX", gives=True),
    Column("LEVEL"),
    Column("NODES", right=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPU", right=True),
)


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    check = add(
        "check", "check a file in JSON Graph Format (JGF), without a server", "spill graph check cluster.json"
    )
    check.add_argument("file", metavar="FILE", help="file to check; - is standard input")
    show = add(
        "show",
        "show the levels of a cluster, or of a file, as a tree",
        "spill graph show cluster.json --nodes",
    )
    show.add_argument("file", nargs="?", metavar="FILE", help="file in JGF (default: ask the server)")
    show.add_argument("--nodes", action="store_true", help="show each node too")
    show.add_argument(
        "--inside", action="store_true", help="show each node with its sockets, cores and GPUs too"
    )
    export = add(
        "export",
        "print a cluster in JGF, as Fluxion reads it",
        "spill graph export --cluster onprem",
    )
    for one in (check, show):
        one.add_argument(
            "--level",
            action="append",
            default=[],
            metavar="TYPE",
            help="type that is a level above nodes; repeatable",
        )
        add_json(one)
    for one in (show, export):
        one.add_argument("--cluster", metavar="NAME", help="cluster of the server (default: the only one)")
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    from spillover.forms.graph import write_graph  # noqa: PLC0415 - heavy

    if args.action == "export":
        with context.connect(args) as client:
            context.out.json(write_graph(_served(client, args.cluster)))
        return codes.OK
    if args.file is not None:
        graph = _read(args)
    else:
        with context.connect(args) as client:
            graph = _served(client, args.cluster)
    if args.json:
        context.out.json(graph)
    elif args.action == "check":
        levels = ", ".join((*graph.levels, "node"))
        context.out.line(f"{args.file} is valid; {so_many(len(graph.nodes), 'node')}; levels: {levels}")
        for line in graph.ignored:
            context.out.line(line)
    else:
        context.out.table(_TREE, _rows(graph, nodes=args.nodes or args.inside, inside=args.inside))
    return codes.OK


def _read(args: Namespace) -> "Graph":
    """Read the graph of a file."""
    from spillover.forms.files import read_file  # noqa: PLC0415 - heavy
    from spillover.forms.graph import read_graph  # noqa: PLC0415 - likewise

    return read_graph(read_file(args.file), args.file, args.level)


def _served(client: "Client", name: str | None) -> "Graph":
    """Return the graph of a cluster that the server has, without nodes that are gone."""
    from spillover.forms.graph import Graph, inside_from  # noqa: PLC0415 - heavy

    cluster = _chosen(client.clusters(), name)
    if cluster.kind == "agents":
        nodes = [
            _node(cluster, each, None if each.inside is None else inside_from(each.inside))
            for each in client.agents()
            if each.cluster == cluster.name
        ]
    else:
        nodes = [_node(cluster, each) for each in client.nodes(cluster.name) if each.state != "gone"]
    return Graph(cluster.name, tuple(cluster.levels), tuple(nodes))


def _node(
    cluster: "ClusterView", node: "AgentView | NodeView", inside: "Inside | None" = None
) -> "GraphNode":
    """Return a node with its path: the levels that its labels name."""
    from spillover.forms.graph import GraphNode  # noqa: PLC0415 - heavy
    from spillover.model.resources import Resources  # noqa: PLC0415 - likewise

    path = [(level, node.labels[label]) for level, label in cluster.levels.items() if node.labels.get(label)]
    have = {name: int(amount) for name, amount in node.capacity.items()}
    capacity = Resources(round(node.capacity["cpu"] * 1000), have.get("memory", 0), have.get("gpu", 0))
    levels = cluster.levels.values()
    words = dict.fromkeys(node.offers, "") | {
        key: value for key, value in node.labels.items() if key not in levels
    }
    return GraphNode(node.name, capacity, tuple(path), inside, tuple(sorted(words.items())))


def _chosen(clusters: "list[ClusterView]", name: str | None) -> "ClusterView":
    """Return the cluster of this name, or the only one."""
    known = ", ".join(each.name for each in clusters) or "none"
    if name is None and len(clusters) != 1:
        raise UsageError(f"name one cluster with --cluster: {known}")
    found = [each for each in clusters if name in {None, each.name}]
    if not found:
        raise UsageError(f"--cluster: there is no cluster named {name!r}; known: {known}")
    return found[0]


def _rows(graph: "Graph", *, nodes: bool, inside: bool = False) -> list[tuple[str, ...]]:
    """Return a row for each vertex, from the top down, with what is in it."""
    from spillover.model.resources import Resources  # noqa: PLC0415 - heavy

    sums: dict[tuple[tuple[str, str], ...], tuple[int, Resources]] = {}
    for node in graph.nodes:
        own = (("node", node.name),) if nodes else ()
        whole = (("cluster", graph.name), *node.path, *own)
        for depth in range(1, len(whole) + 1):
            many, total = sums.get(whole[:depth], (0, Resources()))
            sums[whole[:depth]] = (many + 1, total + node.capacity)
    known = {node.name: node.inside for node in graph.nodes if inside and node.inside is not None}
    rows: list[tuple[str, ...]] = []
    for path, (many, total) in sorted(sums.items()):
        rows.append(_row(path, many, total))
        if path[-1][0] == "node" and path[-1][1] in known:
            rows += _inner_rows(known[path[-1][1]], "  " * len(path))
    return rows


def _inner_rows(inside: "Inside", indent: str) -> list[tuple[str, ...]]:
    """Return a row for each NUMA node and each link of a machine."""
    from spillover.model.inside import cpu_list, cpu_mask  # noqa: PLC0415 - heavy
    from spillover.model.units import format_memory  # noqa: PLC0415 - heavy

    rows: list[tuple[str, ...]] = []
    for numa, domain in enumerate(inside.domains):
        cpus = sum([cpu_mask(lane) for lane in domain.cpus])
        shared = len([one for one in inside.domains if one.socket == domain.socket]) > 1
        name = f"socket {domain.socket}" + (f", NUMA node {numa}" if shared else "")
        which = f": CPUs {cpu_list(cpus)}" + (f", GPUs {','.join(domain.gpus)}" if domain.gpus else "")
        memory = format_memory(domain.memory) if domain.memory else ""
        level = "numanode" if shared else "socket"
        rows.append(
            (f"{indent}{name}{which}", level, "", str(cpus.bit_count()), memory, str(len(domain.gpus)))
        )
    rows += [
        (f"{indent}{link.kind}: GPUs {','.join(link.gpus)}", "link", "", "", "", str(len(link.gpus)))
        for link in inside.links
    ]
    return rows


def _row(path: tuple[tuple[str, str], ...], many: int, total: "Resources") -> tuple[str, ...]:
    from spillover.model.units import format_cpu, format_memory  # noqa: PLC0415 - heavy

    level, name = path[-1]
    indented = f"{'  ' * (len(path) - 1)}{name}"
    return (indented, level, str(many), format_cpu(total.cpu), format_memory(total.memory), str(total.gpu))


COMMANDS = {
    "graph": Command(
        "Show the levels of a cluster (zones, racks, nodes), and check and export it in JSON Graph Format.",
        _configure,
        _run,
        "spill graph show\nspill graph check cluster.json\nspill graph export --cluster onprem",
    ),
}
