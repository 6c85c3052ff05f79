"""`spill clusters add`, `drain`, `resume` and `remove`, and `spill config`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.wire.api import ClusterView, ConfigChange, ConfigOutcome


@pytest.fixture
def done(client: Any) -> list[tuple[Any, ...]]:
    """What was asked of the server."""
    asked: list[tuple[Any, ...]] = []

    def noting(what: str) -> Callable[..., list[str]]:
        def note(*names: str, **how: str) -> list[str]:
            asked.append((what, *names, *how.values()))
            return list(names)

        return note

    def add(cluster: dict[str, Any], *, check: bool) -> ClusterView:
        asked.append(("add", cluster, check))
        return ClusterView(cluster["name"], "agents", "owned", "REQUESTED", 0, {}, {}, 0, {})

    def configure(*, dry_run: bool = False, jobs: str = "finish") -> ConfigOutcome:
        asked.append(("config", dry_run, jobs))
        return ConfigOutcome([ConfigChange("cluster lab", "added", "of kind agents, owned")], not dry_run)

    for what in ("drain", "resume", "remove"):
        setattr(client, f"{what}_clusters", noting(what))
    client.add_cluster, client.apply_config = add, configure
    return asked


def test_clusters_are_named_behind_what_is_done_to_them(
    done: list[tuple[Any, ...]], spill: Callable[..., Any]
) -> None:
    for words in (("drain", "lab", "gpu"), ("resume", "lab"), ("remove", "lab"), ("remove", "lab", "--move")):
        typed = spill("clusters", *words)
        assert (typed.code, typed.out, typed.err) == (0, "", "")
    assert done == [
        ("drain", "lab", "gpu"),
        ("resume", "lab"),
        ("remove", "lab", "finish"),
        ("remove", "lab", "move"),
    ]
    assert json.loads(spill("clusters", "drain", "lab", "--json").out) == ["lab"]


def test_one_is_added_by_a_word_or_by_a_file(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], tmp_path: Path
) -> None:
    assert spill("clusters", "add", "lab=agents:rented,cpu=0.5,label.room=2").code == 0
    file = tmp_path / "cluster.yaml"
    file.write_text("name: gpu\nlocal: [{name: n1, cpu: 1}]\n")
    assert spill("clusters", "add", "-f", str(file), "--no-check").code == 0
    file.write_text("clusters: [{name: a}, {name: b}]\n")
    assert [each["name"] for each in json.loads(spill("clusters", "add", "-f", str(file), "--json").out)] == [
        "a",
        "b",
    ]
    price = {"cpu_hour": "0.5"}
    lab = {"name": "lab", "kind": "agents", "role": "rented", "price": price, "labels": {"room": "2"}}
    assert done == [
        ("add", lab, True),
        ("add", {"name": "gpu", "local": [{"name": "n1", "cpu": 1}]}, False),
        ("add", {"name": "a"}, True),
        ("add", {"name": "b"}, True),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add",), "say which cluster to add"),
        (("add", "lab=agents", "-f", "x"), "say which cluster to add"),
        (("add", "lab"), "write it as NAME=KIND:OPTION,..."),
        (("add", "lab=agents:colour=red"), "'colour' is not an option of a cluster of kind agents"),
        (("drain",), "name the clusters to drain"),
        (("drain", "lab", "--cancel"), "--cancel says what becomes of jobs on a cluster that is removed"),
        (("remove", "lab", "--no-check"), "are for `spill clusters add`"),
        (("remove", "lab", "--move", "--cancel"), "not allowed with"),
        (("stop", "lab"), "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_a_mistake(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], words: tuple[str, ...], told: str
) -> None:
    typed = spill("clusters", *words)
    assert typed.code == 2
    assert told in typed.err
    assert typed.err.count("\n") == 1
    assert done == []


def test_a_file_that_is_no_cluster_is_a_mistake(
    done: list[tuple[Any, ...]], spill: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("- lab\n")
    assert "write one cluster, or a list of clusters" in spill("clusters", "add", "-f", str(file)).err
    assert spill("clusters", "add", "-f", str(tmp_path / "none")).code == 2
    assert done == []


def test_the_configuration_is_compared_and_applied(
    done: list[tuple[Any, ...]], spill: Callable[..., Any]
) -> None:
    typed = spill("config", "diff")
    assert "cluster lab" in typed.out
    assert "nothing was changed" in typed.err
    assert json.loads(spill("config", "apply", "--cancel", "--json").out)["done"]
    assert done == [
        ("config", True, "finish"),
        ("config", False, "cancel"),
    ]


def test_it_is_checked_without_a_server(spill: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "spill.yaml"
    file.write_text("apiVersion: spillover/v1\nkind: Config\nclusters: [{name: lab}]\n")
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.out) == (0, f"{file} can be used; clusters: lab (agents, owned)\n")
    assert json.loads(spill("config", "check", str(file), "--json").out)["clusters"] == ["lab"]
    file.write_text("apiVersion: spillover/v1\nkind: Config\nclusters: [{name: lab, kind: nomad}]\n")
    typed = spill("config", "check", str(file))
    assert (typed.code, typed.err) == (
        2,
        f"spill: {file}:3: clusters[0].kind: 'nomad' is not agents or kubernetes\n",
    )
    gone = tmp_path / "kube"
    file.write_text(
        "apiVersion: spillover/v1\nkind: Config\n"
        f"clusters: [{{name: k, kind: kubernetes, kubernetes: {{kubeconfig: {gone}}}}}]\n"
    )
    typed = spill("config", "check", str(file))
    assert typed.code == 2
    assert typed.err.startswith("spill: cluster k: ")
    assert spill("config", "check", str(tmp_path / "none")).code == 2
