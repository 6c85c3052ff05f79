"""A file with the resource graph of a cluster, as the source of levels and of the inside of machines."""

import os
from pathlib import Path

import msgspec
import pytest

from spillover.clusters.agents.graphs import completed, graph_of, levels_of, node_of
from spillover.config.read import read_config
from spillover.forms.graph import Graph, GraphNode, write_graph
from spillover.forms.problems import BadForm
from spillover.model.inside import Domain, Inside
from spillover.model.resources import Resources
from spillover.model.topology import Level

SOCKETS = Inside((Domain(0, ("0-1",), ("0",)), Domain(1, ("2-3",), ("1",))), ("0", "1"))
HEAD = "apiVersion: spillover/v1\nkind: Config\n"
NODE = GraphNode("n1", Resources(4000, 0, 2), (("zone", "a"), ("rack", "r1")), SOCKETS)


def written(path: Path, *nodes: GraphNode) -> str:
    path.write_bytes(msgspec.json.encode(write_graph(Graph("lab", ("zone", "rack"), nodes))))
    return str(path)


def test_levels_and_insides_come_from_the_file_until_it_changes(tmp_path: Path) -> None:
    path = written(tmp_path / "lab.json", NODE)
    assert levels_of(graph_of(path)) == (Level("zone", "zone"), Level("rack", "rack"))
    assert node_of(path, "n1") == NODE
    assert node_of(path, "n2") is None
    written(tmp_path / "lab.json", NODE, msgspec.structs.replace(NODE, name="n2"))
    os.utime(path, (1, 1))
    assert node_of(path, "n2") is not None
    (tmp_path / "lab.json").unlink()
    assert node_of(path, "n1") is None


def test_what_an_agent_says_itself_comes_first() -> None:
    labels, inside = completed(NODE, {"rack": "r9", "x": "1"}, None, Resources(4000, 0, 2))
    assert (labels, inside) == ({"zone": "a", "rack": "r9", "x": "1"}, SOCKETS)
    known = msgspec.structs.replace(NODE, properties=(("pdebug", ""), ("rack", "r7"), ("x", "2")))
    labels, _ = completed(known, {"x": "1"}, None, Resources(4000, 0, 2))
    assert labels == {"zone": "a", "rack": "r1", "x": "1", "pdebug": ""}, "properties are labels"
    own = Inside((Domain(0, ("0-3",)),), ("0", "1"))
    assert completed(NODE, {}, own, Resources(4000, 0, 2))[1] == own
    assert completed(NODE, {}, Inside(gpus=("0", "1")), Resources(4000, 0, 2))[1] == SOCKETS


@pytest.mark.parametrize(
    ("inside", "capacity"),
    [
        (None, Resources(5000, 0, 2)),
        (None, Resources(4000, 0, 3)),
        (Inside(gpus=("4", "5")), Resources(4000, 0, 2)),
    ],
)
def test_an_inside_that_is_not_that_of_the_agent_is_left_out(
    inside: Inside | None, capacity: Resources
) -> None:
    assert completed(NODE, {}, inside, capacity)[1] == inside


def test_a_cluster_has_the_levels_of_its_graph(tmp_path: Path) -> None:
    path = written(tmp_path / "lab.json", NODE)
    (spec,) = read_config(f"{HEAD}clusters: [{{name: lab, graph: {path}}}]", "spill.yaml").clusters
    assert spec.levels == (Level("zone", "zone"), Level("rack", "rack"))
    (spec,) = read_config(
        f"{HEAD}clusters: [{{name: lab, graph: {path}, levels: [row]}}]", "spill.yaml"
    ).clusters
    assert spec.levels == (Level("row", "row"),)


def test_a_bad_graph_is_told_in_one_line_for_each_problem(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    vertices = [
        {"id": "1", "metadata": {"type": "qubit"}},
        {"id": "2", "metadata": {"type": "node", "size": -1}},
    ]
    bad.write_bytes(
        msgspec.json.encode({"graph": {"nodes": vertices, "edges": [{"source": "1", "target": "9"}]}})
    )
    for path, told in ((bad, 3), (tmp_path / "missing.json", 1)):
        with pytest.raises(BadForm) as refused:
            read_config(f"{HEAD}clusters: [{{name: lab, graph: {path}}}]", "spill.yaml")
        lines = str(refused.value).splitlines()
        assert len(lines) == told
        assert all("clusters[0].graph: " in line for line in lines)
