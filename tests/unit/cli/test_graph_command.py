"""`spill graph` on files."""

from pathlib import Path

import msgspec
import pytest

from spillover.cli.main import main
from spillover.forms.graph import Graph, GraphNode, write_graph
from spillover.model.resources import Resources

GRAPH = Graph(
    "lab",
    ("rack",),
    (
        GraphNode("n1", Resources(4000, 2**30, 1), (("rack", "r1"),)),
        GraphNode("n2", Resources(4000, 2**30), (("rack", "r2"),)),
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.json"
    path.write_bytes(msgspec.json.encode(write_graph(GRAPH)))
    return path


def test_a_valid_file_is_confirmed_with_its_levels(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is valid; 2 nodes; levels: rack, node\n"


def test_a_file_is_shown_as_a_tree(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "show", str(file), "--nodes"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["VERTEX", "LEVEL", "NODES", "CPU", "MEMORY", "GPU"],
        ["lab", "cluster", "2", "8", "2Gi", "1"],
        ["r1", "rack", "1", "4", "1Gi", "1"],
        ["n1", "node", "1", "4", "1Gi", "1"],
        ["r2", "rack", "1", "4", "1Gi", "0"],
        ["n2", "node", "1", "4", "1Gi", "0"],
    ]


def test_a_broken_file_ends_with_exit_code_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"graph": {"nodes": [{"id": "a", "metadata": {"type": "warp"}}], "edges": []}}')
    assert main(["graph", "check", str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "bad.json: graph.nodes[0].metadata.type: unknown type 'warp'" in line
