"""Reads and writes clusters as resource graphs in JSON Graph Format (JGF), the form that Fluxion reads and writes.

Vertices above nodes are levels. Vertices inside a node (sockets, NUMA nodes, cores, GPUs, memory) are added up to what
the node has, and are its inside. GPUs are linked if a property of theirs, such as `nvlink`, has the same value.

Fluxion has written two forms. In the older one every vertex has all fields, and the name of an edge says `contains`, or
`in` for the way back. In the newer one edges name their subsystem, and fields with usual values are left out.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spillover.forms.problems import Findings, shown
from spillover.model.bounds import is_plain
from spillover.model.inside import MOST_CPU_ID, Domain, Inside, Link, cpu_list, cpu_mask, cpu_numbers
from spillover.model.resources import Resources
from spillover.wire.api import InsideView

NODE: Final = "node"
ROOT: Final = "cluster"
ABOVE: Final = ("cluster", "datacenter", "zone", "row", "rack", "switch", "chassis", "blade", "rabbit")
"""Types of vertices above nodes."""
INNER: Final = ("socket", "numanode", "l3cache", "l2cache", "l1cache", "pu")
"""Types inside a node that hold others and are no amount of their own."""
AMOUNTS: Final = ("core", "gpu", "memory", "ssd", "storage", "nic", "fpga")
"""Types inside a node that are amounts."""
UNITS: Final = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
"""Bytes of the units of memory."""
LINKS: Final = ("nvlink", "xgmi", "pcie")
"""Properties of GPUs that say how they are linked: those with the same value are linked with each other."""
CONTAINMENT: Final = "containment"
MOST_SIZE: Final = 2**50
SHARED: Final = ("ssd", "storage", "nic", "fpga")
"""Amounts that may be outside of nodes, where several nodes share them. They are left out."""
MOST_PROPERTIES: Final = 100
MOST_PROPERTY: Final = 256
"""Characters of a property or its value."""


class VertexMeta(Struct, frozen=True):
    """What a vertex is."""

    type: str
    basename: str = ""
    name: str = ""
    id: int = -1
    uniq_id: int = -1
    rank: int = -1
    exclusive: bool = False
    unit: str = ""
    size: int = 1
    paths: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Any] | list[str] | None = None


class VertexDoc(Struct, frozen=True):
    """A vertex."""

    id: str | int
    metadata: VertexMeta


class EdgeDoc(Struct, frozen=True):
    """An edge from a vertex to one that it contains."""

    source: str | int
    target: str | int
    metadata: dict[str, Any] | None = None


class GraphBody(Struct, frozen=True):
    """Vertices and edges."""

    nodes: list[VertexDoc]
    edges: list[EdgeDoc] = field(default_factory=list)


class GraphDoc(Struct, frozen=True):
    """A file in JGF."""

    graph: GraphBody


class GraphNode(Struct, frozen=True):
    """A machine of a resource graph."""

    name: str
    capacity: Resources
    path: tuple[tuple[str, str], ...] = ()
    """The vertices above it as level and name, the highest first, without the cluster itself."""
    inside: Inside | None = None
    """Its sockets, cores, GPUs and links; None if unknown."""
    properties: tuple[tuple[str, str], ...] = ()
    """Its properties with their values, sorted. Most have an empty value."""


class Graph(Struct, frozen=True):
    """A cluster as a resource graph."""

    name: str
    levels: tuple[str, ...]
    """Levels above nodes, the highest first."""
    nodes: tuple[GraphNode, ...]
    ignored: tuple[str, ...] = ()
    """What was left out, a line each."""


def read_graph(text: bytes | str, source: str, more: Collection[str] = ()) -> Graph:
    """Read a file in JGF; `more` are types above nodes besides the known ones. Raise BadForm with all problems."""
    found = Findings()
    try:
        doc = msgspec.json.decode(text, type=GraphDoc)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found.add((), f"is not a graph in JSON Graph Format: {error}")
        found.check(source)
        raise AssertionError("unreachable") from error
    vertices = _vertices(doc.graph.nodes, found, {*ABOVE, *more})
    parents, inside = _edges(doc.graph.edges, vertices, found)
    _check_cycles(vertices, parents, inside, found)
    found.check(source)
    graph = _read(vertices, parents, inside, found)
    found.check(source)
    return graph


def _vertices(docs: list[VertexDoc], found: Findings, above: Collection[str]) -> dict[str, VertexMeta]:
    """Return the vertices by id; add problems with their types and amounts."""
    known = (*above, NODE, *INNER, *AMOUNTS)
    vertices: dict[str, VertexMeta] = {}
    for at, doc in enumerate(docs):
        path, meta = ("graph", "nodes", at), doc.metadata
        if str(doc.id) in vertices:
            found.add((*path, "id"), f"{shown(doc.id)} is already the id of another vertex")
        if meta.type not in known:
            told = f"unknown type {shown(meta.type)}; known: {', '.join(sorted(known))}; for a level, use --level"
            found.add((*path, "metadata", "type"), told)
        if not 0 <= meta.size <= MOST_SIZE:
            found.add((*path, "metadata", "size"), f"{meta.size} is not a count; write 0 or more")
        if meta.type == "memory" and meta.unit not in UNITS:
            told = (
                f"{shown(meta.unit)} is not a unit of memory; write one of {', '.join(filter(None, UNITS))}"
            )
            found.add((*path, "metadata", "unit"), told)
        vertices[str(doc.id)] = meta
    if not docs:
        found.add(("graph", "nodes"), "is empty; add vertices")
    return vertices


def _edges(
    docs: list[EdgeDoc], vertices: dict[str, VertexMeta], found: Findings
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the vertex above each vertex, and those inside each; add problems with edges."""
    parents: dict[str, str] = {}
    inside: dict[str, list[str]] = {}
    for at, doc in enumerate(docs):
        source, target = str(doc.source), str(doc.target)
        for name, end in (("source", source), ("target", target)):
            if end not in vertices:
                found.add(("graph", "edges", at, name), f"there is no vertex {shown(end)}")
        if source not in vertices or target not in vertices or not _contains(doc):
            continue
        if target in parents and parents[target] != source:
            told = f"{shown(target)} is already inside {shown(parents[target])}; remove one of the edges"
            found.add(("graph", "edges", at), told)
        elif target not in parents:
            parents[target] = source
            inside.setdefault(source, []).append(target)
    return parents, inside


def _contains(doc: EdgeDoc) -> bool:
    """Return whether an edge says that its target is inside its source; others describe power or networks."""
    told = doc.metadata or {}
    name = told.get("name")
    if isinstance(name, dict):
        return bool(name.get(CONTAINMENT, "in") != "in")
    return bool(told.get("subsystem", CONTAINMENT) == CONTAINMENT)


def _name_of(each: str, meta: VertexMeta) -> str:
    """Return the name of a vertex; the newer form leaves it out if it is that of its kind and its number."""
    return meta.name or f"{meta.basename or meta.type}{meta.id if meta.id >= 0 else each}"


def _properties(meta: VertexMeta, at: int, found: Findings) -> tuple[tuple[str, str], ...]:
    """Return the properties of a node; add problems with them."""
    told = meta.properties or {}
    pairs = (
        {str(key): value for key, value in told.items()}
        if isinstance(told, dict)
        else dict.fromkeys(told, "")
    )
    path = ("graph", "nodes", at, "metadata", "properties")
    if len(pairs) > MOST_PROPERTIES:
        found.add(path, f"has {len(pairs)} properties; a node can have {MOST_PROPERTIES}")
    for key, value in pairs.items():
        if (
            not key
            or not isinstance(value, str)
            or not all(is_plain(one, MOST_PROPERTY) for one in (key, value))
        ):
            told_in = f"{shown(key)} is not a property; write up to {MOST_PROPERTY} printable characters"
            found.add(path, f"{told_in}, with a text as its value")
    return tuple(sorted([(key, str(value)) for key, value in pairs.items()]))


def _check_cycles(
    vertices: dict[str, VertexMeta], parents: dict[str, str], inside: dict[str, list[str]], found: Findings
) -> None:
    """Add a problem for each cycle of vertices that contain each other."""
    reached = {each for each in vertices if each not in parents}
    todo = list(reached)
    for each in todo:
        todo += [one for one in inside.get(each, ()) if one not in reached]
        reached.update(inside.get(each, ()))
    left = {each: None for each in vertices if each not in reached}
    while left:
        trail: dict[str, None] = {}
        each = next(iter(left))
        while each not in trail:
            trail[each] = None
            each = parents[each]
        cycle = list(trail)[list(trail).index(each) :]
        names = " in ".join(shown(one) for one in [*cycle[:5], each])
        found.add(("graph", "edges"), f"has a cycle: {names}; remove one of its edges")
        for one in [*trail, *_all_inside(cycle, inside)]:
            left.pop(one, None)


def _all_inside(some: Iterable[str], inside: dict[str, list[str]]) -> list[str]:
    """Return all vertices inside some vertices, at any depth."""
    seen = dict.fromkeys(some)
    todo = list(seen)
    for each in todo:
        todo += [one for one in inside.get(each, ()) if one not in seen]
        seen.update(dict.fromkeys(inside.get(each, ())))
    return todo


def _read(
    vertices: dict[str, VertexMeta], parents: dict[str, str], inside: dict[str, list[str]], found: Findings
) -> Graph:
    """Return the nodes with what is inside them and the levels above them."""
    name, nodes, levels = ROOT, dict[str, GraphNode](), dict[str, int]()
    counted: set[str] = set()
    for at, (each, meta) in enumerate(vertices.items()):
        if meta.type == ROOT and each not in parents:
            name = _name_of("0", meta)
        if meta.type != NODE:
            continue
        below = _all_inside([each], inside)
        counted.update(below)
        path: list[tuple[str, str]] = []
        up = parents.get(each)
        while up is not None:
            if vertices[up].type in {NODE, *INNER, *AMOUNTS}:
                found.add(
                    ("graph", "nodes", at), f"is a node inside a {vertices[up].type}; put it in a level"
                )
            elif vertices[up].type != ROOT:
                path.append((vertices[up].type, _name_of(up, vertices[up])))
            up = parents.get(up)
        path.reverse()
        own = _name_of(each, meta)
        if own in nodes:
            found.add(("graph", "nodes", at, "metadata", "name"), f"{shown(own)} is the name of another node")
        capacity = _capacity([vertices[one] for one in below])
        properties = _properties(meta, at, found)
        nodes[own] = GraphNode(own, capacity, tuple(path), _inside(each, vertices, inside), properties)
        for depth, (level, _) in enumerate(path):
            levels[level] = max(levels.get(level, 0), depth)
    shared = _shared(vertices, counted, found)
    if not nodes and not found.found:
        found.add(("graph", "nodes"), "has no vertex of type node")
    ordered = sorted(levels, key=lambda level: levels[level])
    return Graph(name, tuple(ordered), tuple(nodes.values()), shared)


def _shared(vertices: dict[str, VertexMeta], counted: Collection[str], found: Findings) -> tuple[str, ...]:
    """Return what is outside of nodes and left out; add problems for what must be inside one."""
    shared: dict[str, int] = {}
    for at, (each, meta) in enumerate(vertices.items()):
        if each in counted:
            continue
        if meta.type in SHARED:
            shared[meta.type] = shared.get(meta.type, 0) + 1
        elif meta.type in {*INNER, *AMOUNTS}:
            found.add(("graph", "nodes", at), f"is a {meta.type} outside of any node; put it inside one")
    return tuple(
        [
            f"{many} x {kind} outside of nodes left out: jobs cannot request what several nodes share"
            for kind, many in sorted(shared.items())
        ]
    )


def _capacity(below: list[VertexMeta]) -> Resources:
    """Add up what is inside a node."""
    cpu = sum(meta.size for meta in below if meta.type == "core") * 1000
    memory = sum(meta.size * UNITS[meta.unit] for meta in below if meta.type == "memory")
    gpu = sum(meta.size for meta in below if meta.type == "gpu")
    others: dict[str, int] = {}
    for meta in below:
        if meta.type in AMOUNTS[3:]:
            others[meta.type] = others.get(meta.type, 0) + meta.size
    return Resources(cpu, memory, gpu, tuple(sorted((name, size) for name, size in others.items() if size)))


def _inside(node: str, vertices: dict[str, VertexMeta], below: dict[str, list[str]]) -> Inside | None:
    """Return the inside of a node, if it has sockets or NUMA nodes; cores and GPUs without an id get the next one."""
    cpus, gpus = _Ids(), _Ids()
    domains: dict[tuple[int, int], tuple[list[int], list[str], list[int]]] = {}
    links: dict[tuple[str, str], list[str]] = {}
    sockets = numas = 0
    todo: list[tuple[str, int, int]] = [(node, -1, -1)]
    while todo:
        each, socket, numa = todo.pop()
        meta = vertices[each]
        if meta.type == "socket":
            socket, sockets = sockets, sockets + 1
        elif meta.type == "numanode":
            numa, numas = numas, numas + 1
        own = domains.setdefault((max(0, socket), numa), ([], [], []))
        if meta.type == "core":
            own[0].extend(cpus.take(meta))
        elif meta.type == "gpu":
            named = [str(one) for one in gpus.take(meta)]
            own[1].extend(named if socket >= 0 or numa >= 0 else ())
            told = meta.properties if isinstance(meta.properties, dict) else {}
            for kind in [kind for kind in LINKS if kind in told]:
                links.setdefault((kind, str(told[kind])), []).extend(named)
        elif meta.type == "memory" and max(socket, numa) >= 0:
            own[2].append(meta.size * UNITS[meta.unit])
        todo += [(one, socket, numa) for one in reversed(below.get(each, ()))]
    if not sockets and not numas:
        return None
    return Inside(
        tuple(
            [
                Domain(
                    socket,
                    (cpu_list(sum([1 << cpu for cpu in cores])),) if cores else (),
                    tuple(near),
                    sum(size),
                )
                for (socket, _), (cores, near, size) in sorted(domains.items())
                if cores or near
            ]
        ),
        tuple(map(str, sorted(gpus.taken))),
        tuple([Link(kind, tuple(few)) for (kind, _), few in links.items() if len(few) > 1]),
    )


def inside_from(view: InsideView) -> Inside:
    """Return what a machine has inside, from the answer of a server."""
    domains = [Domain(one.socket, tuple(one.cpus), tuple(one.gpus), one.memory) for one in view.domains]
    links = [Link(one.kind, tuple(one.gpus)) for one in view.links]
    return Inside(tuple(domains), tuple(view.gpus), tuple(links))


class _Ids:
    """Numbers of the cores or GPUs of one node."""

    def __init__(self) -> None:
        self.taken: dict[int, None] = {}

    def take(self, meta: VertexMeta) -> list[int]:
        """Return the numbers of a vertex: its own id, or the next that are free."""
        if meta.size == 1 and 0 <= meta.id <= MOST_CPU_ID and meta.id not in self.taken:
            found = [meta.id]
        else:
            first = max(self.taken, default=-1) + 1
            found = list(range(first, min(first + meta.size, MOST_CPU_ID + 1)))
        self.taken.update(dict.fromkeys(found))
        return found


def write_graph(graph: Graph) -> dict[str, Any]:
    """Return a cluster in JGF. Cores of a node without known sockets are one vertex, as are GPUs and memory."""
    writer = _Writer()
    root = writer.add(ROOT, graph.name, None)
    known: dict[tuple[tuple[str, str], ...], int] = {(): root}
    for rank, node in enumerate(graph.nodes):
        for depth in range(1, len(node.path) + 1):
            path = node.path[:depth]
            if path not in known:
                known[path] = writer.add(*path[-1], known[path[:-1]])
        properties = dict(node.properties)
        at = writer.add(NODE, node.name, known[node.path], rank=rank, properties=properties)
        have = node.capacity
        if node.inside is not None and node.inside.domains:
            have = _write_inside(writer, node.inside, have, at, rank)
        if have.cpu >= 1000:
            writer.add("core", "core0", at, rank=rank, size=have.cpu // 1000)
        if have.gpu:
            writer.add("gpu", "gpu0", at, rank=rank, size=have.gpu)
        if have.memory:
            writer.add("memory", "memory0", at, rank=rank, size=have.memory // 2**20, unit="MiB")
        for name, amount in have.other:
            if name in AMOUNTS:
                writer.add(name, f"{name}0", at, rank=rank, size=amount)
    return {"graph": {"nodes": writer.nodes, "edges": writer.edges}}


def _write_inside(writer: "_Writer", inside: Inside, have: Resources, node: int, rank: int) -> Resources:
    """Write the sockets of a node with their cores, GPUs and memory; return what is in none of them."""
    sockets: dict[int, int] = {}
    linked: dict[str, dict[str, str]] = {}
    for number, link in enumerate(inside.links):
        for gpu in link.gpus:
            linked.setdefault(gpu, {})[link.kind] = str(number)
    gpus, memory = have.gpu, have.memory
    for numa, domain in enumerate(inside.domains):
        if domain.socket not in sockets:
            sockets[domain.socket] = writer.add("socket", f"socket{domain.socket}", node, rank=rank)
        at = sockets[domain.socket]
        if len([one for one in inside.domains if one.socket == domain.socket]) > 1:
            at = writer.add("numanode", f"numanode{numa}", at, rank=rank)
        for cpu in cpu_numbers(cpu_mask(domain.cpus[0])) if domain.cpus else ():
            writer.add("core", f"core{cpu}", at, rank=rank)
        for gpu in domain.gpus:
            writer.add("gpu", f"gpu{gpu}", at, rank=rank, properties=linked.get(gpu))
            gpus -= 1
        if 0 < domain.memory <= memory:
            size = domain.memory // 2**20
            writer.add("memory", f"memory{numa}", at, rank=rank, size=size, unit="MiB")
            memory -= domain.memory
    return Resources(0, memory if memory == have.memory else 0, max(0, gpus), have.other)


class _Writer:
    """Collects vertices and edges."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def add(
        self,
        kind: str,
        name: str,
        above: int | None,
        *,
        rank: int = -1,
        size: int = 1,
        unit: str = "",
        properties: dict[str, str] | None = None,
    ) -> int:
        """Add a vertex inside another; return its number."""
        at = len(self.nodes)
        self._paths.append(f"{'' if above is None else self._paths[above]}/{name}")
        stem = name.rstrip("0123456789") or kind
        last = name.removeprefix(stem)
        meta: dict[str, Any] = {
            "type": kind,
            "basename": stem,
            "name": name,
            "id": int(last) if last and len(last) < 10 else -1,
            "uniq_id": at,
            "rank": rank,
            "exclusive": False,
            "unit": unit,
            "size": size,
            "paths": {CONTAINMENT: self._paths[at]},
        }
        if properties:
            meta["properties"] = properties
        self.nodes.append({"id": str(at), "metadata": meta})
        if above is not None:
            name_of_edge = {CONTAINMENT: "contains"}
            self.edges.append({"source": str(above), "target": str(at), "metadata": {"name": name_of_edge}})
        return at
