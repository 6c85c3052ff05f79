"""Clusters as JSON graphs."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.forms.graph import Graph, GraphNode, read_graph, write_graph
from spillover.forms.problems import BadForm
from spillover.model.inside import Domain, Inside, Link
from spillover.model.resources import Resources

MIB = 2**20
FORMS = Path(__file__).parent / "jgf"
"""A small cluster in both forms that Fluxion has written."""


def vertex(name: str, kind: str, **more: object) -> dict[str, Any]:
    return {"id": name, "metadata": {"type": kind, "name": name} | more}


def edge(source: str, target: str, **metadata: object) -> dict[str, Any]:
    return {"source": source, "target": target, "metadata": metadata or {"subsystem": "containment"}}


def text(vertices: list[dict[str, Any]], edges: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"graph": {"nodes": vertices, "edges": edges}})


SMALL = [
    vertex("c", "cluster"),
    vertex("r1", "rack"),
    vertex("n1", "node"),
    vertex("s0", "socket"),
    vertex("core0", "core"),
]
TREE = [edge("c", "r1"), edge("r1", "n1"), edge("n1", "s0"), edge("s0", "core0")]


def problems(vertices: list[dict[str, Any]], edges: list[dict[str, Any]]) -> list[str]:
    with pytest.raises(BadForm) as refused:
        read_graph(text(vertices, edges), "g.json")
    return str(refused.value).splitlines()


def test_what_is_inside_a_node_is_added_up() -> None:
    more = [
        vertex("core1", "core"),
        vertex("g", "gpu", size=2),
        vertex("m", "memory", size=4, unit="GiB"),
        vertex("d", "ssd", size=3),
    ]
    inside = [edge("s0", "core1"), edge("s0", "g"), edge("n1", "m"), edge("n1", "d")]
    graph = read_graph(text(SMALL + more, TREE + inside), "g.json")
    assert graph == Graph(
        "c",
        ("rack",),
        (
            GraphNode(
                "n1",
                Resources(2000, 4 * 2**30, 2, (("ssd", 3),)),
                (("rack", "r1"),),
                Inside((Domain(0, ("0-1",), ("0", "1")),), ("0", "1")),
            ),
        ),
    )


def test_edges_of_other_subsystems_and_back_edges_are_no_containment() -> None:
    others = [edge("n1", "c", subsystem="power"), edge("r1", "c", name={"containment": "in"})]
    assert read_graph(text(SMALL, TREE + others), "g.json").nodes[0].name == "n1"


@pytest.mark.parametrize(
    ("vertices", "edges", "said"),
    [
        (SMALL, [*TREE, edge("n1", "gone")], "g.json: graph.edges[4].target: there is no vertex 'gone'"),
        (
            SMALL,
            [*TREE, edge("n1", "core0")],
            "g.json: graph.edges[4]: 'core0' is already inside 's0'; remove one of the edges",
        ),
        (
            [*SMALL, vertex("c", "rack")],
            TREE,
            "g.json: graph.nodes[5].id: 'c' is already the id of another vertex",
        ),
        (
            [*SMALL, vertex("x", "warp")],
            TREE,
            "g.json: graph.nodes[5].metadata.type: unknown type 'warp'; known: ",
        ),
        (
            [*SMALL, vertex("g", "gpu", size=-1)],
            [*TREE, edge("n1", "g")],
            "g.json: graph.nodes[5].metadata.size: -1 is not a count; write 0 or more",
        ),
        (
            [*SMALL, vertex("m", "memory", unit="parsec")],
            [*TREE, edge("n1", "m")],
            "g.json: graph.nodes[5].metadata.unit: 'parsec' is not a unit of memory",
        ),
        (
            [*SMALL, vertex("core9", "core")],
            TREE,
            "g.json: graph.nodes[5]: is a core outside of any node; put it inside one",
        ),
        (
            [*SMALL, vertex("n2", "node")],
            [*TREE, edge("n1", "n2")],
            "g.json: graph.nodes[5]: is a node inside a node; put it in a level",
        ),
        ([vertex("c", "cluster")], [], "g.json: graph.nodes: has no vertex of type node"),
        ([], [], "g.json: graph.nodes: is empty; add vertices"),
        (
            [*SMALL, vertex("a", "rack"), vertex("b", "rack"), vertex("d", "rack")],
            [*TREE, edge("a", "b"), edge("b", "a"), edge("b", "d")],
            "g.json: graph.edges: has a cycle: 'a' in 'b' in 'a'; remove one of its edges",
        ),
    ],
)
def test_a_broken_graph_is_told_in_one_line(
    vertices: list[dict[str, Any]], edges: list[dict[str, Any]], said: str
) -> None:
    [line] = problems(vertices, edges)
    assert line.startswith(said)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"graph": {}}', b'{"graph": {"nodes": 3}}', b"\xff"])
def test_what_is_no_graph_is_told_in_one_line(content: bytes) -> None:
    with pytest.raises(BadForm, match="is not a graph in JSON Graph Format"):
        read_graph(content, "g.json")


def test_a_type_of_your_own_can_be_a_level() -> None:
    vertices = [vertex("p1", "pod"), vertex("n1", "node")]
    assert read_graph(text(vertices, [edge("p1", "n1")]), "g.json", ["pod"]).levels == ("pod",)


names = st.text("abcdefgh0123456789-", min_size=1, max_size=6)
amounts = st.builds(
    lambda cpu, memory, gpu: Resources(cpu * 1000, memory * MIB, gpu),
    st.integers(0, 64),
    st.integers(0, 2**20),
    st.integers(0, 8),
)


@given(st.dictionaries(names, st.tuples(amounts, names, names), min_size=1, max_size=12))
def test_a_graph_that_was_written_reads_the_same(nodes: dict[str, tuple[Resources, str, str]]) -> None:
    graph = Graph(
        "lab",
        ("zone", "rack"),
        tuple(
            GraphNode(name, have, (("zone", zone), ("rack", rack)))
            for name, (have, zone, rack) in nodes.items()
        ),
    )
    assert read_graph(msgspec.json.encode(write_graph(graph)), "g.json") == graph


def test_the_inside_of_nodes_is_written_and_read_again() -> None:
    inside = Inside(
        (
            Domain(0, ("0-1",), ("0", "1"), 1 << 30),
            Domain(0, ("2-3",), (), 1 << 30),
            Domain(1, ("4-7",), ("2", "3"), 2 << 30),
        ),
        ("0", "1", "2", "3"),
        (Link("nvlink", ("0", "1")), Link("nvlink", ("2", "3"))),
    )
    graph = Graph("lab", (), (GraphNode("n1", Resources(8000, 4 << 30, 4), (), inside),))
    doc = write_graph(graph)
    types = [each["metadata"]["type"] for each in doc["graph"]["nodes"]]
    assert [types.count(kind) for kind in ("socket", "numanode", "core", "gpu", "memory")] == [2, 2, 8, 4, 3]
    paths = {each["metadata"]["paths"]["containment"] for each in doc["graph"]["nodes"]}
    assert {"/lab/n1/socket0/numanode0/core1", "/lab/n1/socket1/gpu3", "/lab/n1/socket1/memory2"} <= paths
    assert read_graph(json.dumps(doc), "file") == graph


def test_cores_without_ids_get_the_next_ones() -> None:
    nodes = [
        vertex("0", "cluster"),
        vertex("1", "node"),
        vertex("2", "socket"),
        vertex("3", "core", size=4),
        vertex("4", "socket"),
        vertex("5", "core", size=4),
        vertex("6", "gpu", size=2),
    ]
    edges = [edge(above, below) for above, below in ("01", "12", "23", "14", "45", "46")]
    (node,) = read_graph(text(nodes, edges), "file").nodes
    assert node.inside == Inside((Domain(0, ("0-3",)), Domain(1, ("4-7",), ("0", "1"))), ("0", "1"), ())


@pytest.mark.parametrize("form", ["older", "newer"])
def test_both_forms_of_fluxion_read_the_same(form: str) -> None:
    file = FORMS / f"{form}.json"
    graph = read_graph(file.read_bytes(), str(file))
    inside = Inside((Domain(0, ("0-1",), ("0",), 8 * 10**9),), ("0",))
    capacity = Resources(2000, 8 * 10**9, 1)
    rack = (("rack", "rack0"),)
    shared = "2 x ssd outside of nodes left out: jobs cannot request what several nodes share"
    assert graph == Graph(
        "lab0",
        ("rack",),
        (
            GraphNode("lab1", capacity, rack, inside, (("arch", "x86"), ("pdebug", ""))),
            GraphNode("lab2", capacity, rack, inside),
        ),
        (shared,) if form == "newer" else (),
    )
    again = read_graph(msgspec.json.encode(write_graph(graph)), "again.json")
    assert [(node.name, node.path, node.properties) for node in again.nodes] == [
        (node.name, node.path, node.properties) for node in graph.nodes
    ]


def test_the_usual_name_of_a_vertex_is_that_of_its_kind_and_number() -> None:
    vertices = [
        {"id": "0", "metadata": {"type": "cluster", "id": 7}},
        {"id": "1", "metadata": {"type": "rack", "basename": "r", "id": 3}},
        {"id": "2", "metadata": {"type": "node"}},
    ]
    edges: list[dict[str, Any]] = [
        {"source": "0", "target": "1", "metadata": None},
        {"source": "1", "target": "2"},
    ]
    graph = read_graph(text(vertices, edges), "g.json")
    assert (graph.name, graph.nodes[0].path, graph.nodes[0].name) == ("cluster7", (("rack", "r3"),), "node2")


def test_properties_may_be_a_list_of_words() -> None:
    node = vertex("n1", "node", properties=["ssd", "old"])
    assert read_graph(text([node], []), "g.json").nodes[0].properties == (("old", ""), ("ssd", ""))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {"a\nb\u0000": ""},
            "is not a property; write up to 256 printable characters, with a text as its value",
        ),
        ({"a": 3}, "'a' is not a property"),
        ({"": "x"}, "'' is not a property"),
        ({str(number): "" for number in range(101)}, "has 101 properties; a node can have 100"),
    ],
)
def test_a_broken_property_is_told_in_one_line(properties: object, said: str) -> None:
    [line] = problems([vertex("n1", "node", properties=properties)], [])
    assert line.startswith("g.json: graph.nodes[0].metadata.properties: ")
    assert said in line
