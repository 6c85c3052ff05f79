"""`spill graph` on the clusters of a server."""

from collections.abc import Iterator

import pytest

from spillover.cli.main import main
from spillover.core.events import SeenNode
from spillover.core.proposals import SeeNodes
from spillover.forms.graph import read_graph
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from tests.support.http import TOKEN, Threaded, threaded_server
from tests.support.served import Served, served


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threaded[Served]]:
    with threaded_server(served) as server:
        monkeypatch.setenv("SPILL_SERVER", server.url)
        monkeypatch.setenv("SPILL_TOKEN", TOKEN)
        server.run(server.inside.see_kubernetes())
        yield server


@pytest.mark.usefixtures("server")
def test_nodes_of_kubernetes_are_shown_in_the_levels_that_their_labels_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["graph", "show", "--cluster", "kube", "--nodes"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["VERTEX", "LEVEL", "NODES", "CPU", "MEMORY", "GPU"],
        ["kube", "cluster", "3", "12", "3Gi", "2"],
        ["k3", "node", "1", "4", "1Gi", "1"],
        ["north", "zone", "1", "4", "1Gi", "1"],
        ["k1", "node", "1", "4", "1Gi", "1"],
        ["south", "zone", "1", "4", "1Gi", "0"],
        ["k2", "node", "1", "4", "1Gi", "0"],
    ]


@pytest.mark.usefixtures("server")
def test_the_graph_of_a_kubernetes_cluster_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "export", "--cluster", "kube"]) == 0
    graph = read_graph(capsys.readouterr().out.encode(), "kube.json")
    assert (graph.name, graph.levels) == ("kube", ("zone",))
    assert {node.name: node.path for node in graph.nodes} == {
        "k1": (("zone", "north"),),
        "k2": (("zone", "south"),),
        "k3": (),
    }
    assert graph.nodes[0].capacity == Resources(4000, 2**30, 1)
    assert graph.nodes[0].properties == (), "levels are vertices"


def test_labels_and_words_of_nodes_are_exported_as_properties(
    server: Threaded[Served], capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"topology.kubernetes.io/zone": "north", "disk": "fast"}
    seen = SeenNode(NodeName("k9"), Resources(1000), Resources(), offers=("container",), labels=labels)
    server.run(server.inside.control.propose(SeeNodes(ClusterName("kube"), (seen,))))
    assert main(["graph", "export", "--cluster", "kube"]) == 0
    graph = read_graph(capsys.readouterr().out.encode(), "kube.json")
    [node] = [each for each in graph.nodes if each.name == "k9"]
    assert (node.path, node.properties) == ((("zone", "north"),), (("container", ""), ("disk", "fast")))


def test_a_cluster_of_agents_is_shown_as_before(
    server: Threaded[Served], capsys: pytest.CaptureFixture[str]
) -> None:
    server.run(server.inside.agent())
    capsys.readouterr()  # the server wrote that it registered
    assert main(["graph", "show", "--cluster", "onprem", "--nodes"]) == 0
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert lines == [["VERTEX", "LEVEL", "NODES"], ["onprem", "cluster", "1"], ["n1", "node", "1"]]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name one cluster with --cluster: onprem, cloud, kube"),
        (["--cluster", "moon"], "there is no cluster named 'moon'; known: onprem, cloud, kube"),
    ],
)
def test_a_cluster_that_is_not_named_or_not_known_is_a_problem(
    capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["graph", "export", *words]) == 2
    assert why in capsys.readouterr().err
