"""Reads the resource graph of a cluster from a file, which says where its nodes are and what is inside them.

Agents need not have labels for levels then, nor report sockets. What an agent reports itself comes first.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final

from spillover.forms.graph import Graph, GraphNode, read_graph
from spillover.forms.problems import BadForm
from spillover.model.inside import Inside, cpu_mask
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Level

MOST_BYTES: Final = 1 << 30
"""Largest file; a graph of 10,000 nodes with all cores has some 300 MB."""


def graph_of(path: str) -> Graph:
    """Return the graph of a file, read again only if it changed; raise OSError or BadForm."""
    return _known(path)[0]


def node_of(path: str, name: str) -> GraphNode | None:
    """Return a node of a file; None if the graph has none of this name, or cannot be read any more."""
    try:
        return _known(path)[1].get(name)
    except (OSError, ValueError, BadForm):
        return None


def _known(path: str) -> tuple[Graph, dict[str, GraphNode]]:
    stat = Path(path).stat()
    if stat.st_size > MOST_BYTES:
        raise OSError(f"is larger than {MOST_BYTES >> 20} MiB")
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _read(path: str, changed: int, size: int) -> tuple[Graph, dict[str, GraphNode]]:
    del changed, size  # they make the file another one
    graph = read_graph(Path(path).read_bytes(), path)
    return graph, {node.name: node for node in graph.nodes}


def levels_of(graph: Graph) -> tuple[Level, ...]:
    """Return the levels of a graph above its nodes; each is also the label that nodes get."""
    return tuple([Level(level, level) for level in graph.levels if level != NODE])


def completed(
    node: GraphNode, labels: dict[str, str], inside: Inside | None, capacity: Resources
) -> tuple[dict[str, str], Inside | None]:
    """Return the labels and the inside of an agent, with what the graph says where the agent says nothing."""
    labels = {**dict(node.properties), **dict(node.path), **labels}
    told = node.inside
    if told is None or (inside is not None and inside.domains):
        return labels, inside
    cpus = sum([cpu_mask(lane).bit_count() for domain in told.domains for lane in domain.cpus])
    own = inside.gpus if inside is not None else ()
    gpus_match = sorted(told.gpus) == sorted(own) if own else len(told.gpus) == capacity.gpu
    if cpus * 1000 < capacity.cpu or not gpus_match:
        return labels, inside  # the agent uses other CPUs or GPUs than the graph knows
    return labels, told
