"""The suite for makers of whole clusters on the program of examples/providers/k3d.

Programs in place of k3d and docker keep their clusters in a file, and answer as the manual of k3d says.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from spillover.ports.provider import ClusterMaker
from spillover.providers.command.provider import CommandForm, CommandKind
from spillover.testing.maker_suite import MakerSuite
from spillover.testing.provider_suite import Fault, OpenProvider, an_opening

PROGRAM = Path(__file__).parents[2] / "examples/providers/k3d/maker.py"
K3D = r"""#!PYTHON -IS
import fcntl, json, pathlib, sys
state, fault, words = pathlib.Path("STATE"), pathlib.Path("FAULT"), sys.argv[1:]
flags = [each.removeprefix("--").partition("=")[::2] for each in words if each.startswith("--")]
names = [each for each in words if not each.startswith("-")]
def values(name): return [value for key, value in flags if key == name]
def pairs(name): return dict(each.partition("@")[0].split("=", 1) for each in values(name))
lock = open("STATE.lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
there = json.loads(state.read_text()) if state.exists() else {"made": 0, "clusters": {}}
if fault.exists() and names[:2] == ["cluster", "delete"]:
    sys.exit("Failed to delete cluster")
def node(name, role, labels):
    there["made"] += 1
    return {"name": name, "role": role, "created": f"2027-01-01T00:00:{there['made']:02}Z", "runtimeLabels": labels,
            "State": {"Running": True, "Status": "running"}}
clusters = there["clusters"]
if names[:2] == ["cluster", "create"]:
    name = names[2]
    if len(name) > 32 or name in clusters:
        sys.exit(f"Failed to create cluster '{name}'")
    if not int(values("agents")[0]) and any("@agent" in each for each in values("k3s-node-label")):
        sys.exit("filters match no node")
    agents = [node(f"k3d-{name}-agent-{at}", "agent", {}) for at in range(int(values("agents")[0]))]
    clusters[name] = [node(f"k3d-{name}-server-0", "server", pairs("runtime-label")), *agents]
elif names[:2] == ["cluster", "list"]:
    print(json.dumps([{"name": name, "nodes": nodes, "serversCount": 1, "serversRunning": 1,
        "agentsCount": len(nodes) - 1, "agentsRunning": len(nodes) - 1} for name, nodes in clusters.items()]))
elif names[:2] == ["cluster", "delete"]:
    del clusters[names[2]]
elif names[:2] == ["kubeconfig", "get"]:
    name = names[2]
    print(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:9"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"token": "secret"}}]}))
elif names[:2] == ["node", "create"]:
    for at in range(int(values("replicas")[0])):
        clusters[values("cluster")[0]].append(node(f"k3d-{names[2]}-{at}", "agent", {}))
elif names[:2] == ["node", "delete"]:
    for nodes in clusters.values():
        nodes[:] = [each for each in nodes if each["name"] != names[2]]
else:
    sys.exit(f"unknown command {words}")
state.write_text(json.dumps(there))
"""
DOCKER = '#!/bin/sh\nexec echo "$@" >>LOG\n'


def opener(folder: Path) -> OpenProvider:
    """Return what opens the provider, with programs and clusters in a folder."""
    programs = folder / "bin"
    programs.mkdir()
    script = K3D.replace("PYTHON", sys.executable).replace("STATE", str(folder / "k3d.json"))
    for name, text in (
        ("k3d", script.replace("FAULT", str(folder / "fault"))),
        ("docker", DOCKER.replace("LOG", str(folder / "docker.log"))),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o700)
    words = [sys.executable, "-I", "-S", str(PROGRAM)]
    env = {"STATE": str(folder / "state"), "PATH": f"{programs}:{os.environ['PATH']}"}
    names = ("create", "list", "destroy", "kubeconfig", "resize")
    given: dict[str, Any] = {each: [*words, each] for each in names}
    form = CommandForm(**given, env=env)
    assert not CommandKind().check(form, [])
    return lambda owner: CommandKind().open(form, an_opening(folder / "data", owner))


class TestK3d(MakerSuite):
    faults = frozenset({Fault.LOST_TAGS, Fault.REFUSED_DESTROY})
    patience = 60.0
    remembers = False
    folder: Path

    @pytest.fixture
    def open_provider(self, tmp_path: Path) -> OpenProvider:
        self.folder = tmp_path
        return opener(tmp_path)

    async def nodes_of(self, maker: ClusterMaker, id_: str) -> set[str]:
        del maker
        nodes = json.loads((self.folder / "k3d.json").read_text())["clusters"][id_]
        return {each["name"] for each in nodes if each["role"] == "agent"}

    def provoke(self, fault: Fault) -> None:
        if fault is Fault.LOST_TAGS:
            path = self.folder / "k3d.json"
            there = json.loads(path.read_text())
            for nodes in there["clusters"].values():
                for each in nodes:
                    each["runtimeLabels"] = {}
            path.write_text(json.dumps(there))
        else:
            (self.folder / "fault").touch()

    def mend(self) -> None:
        (self.folder / "fault").unlink(missing_ok=True)


def test_an_object_of_a_node_goes_with_its_container(tmp_path: Path) -> None:
    suite = TestK3d()
    suite.folder = tmp_path

    async def story() -> None:
        async with suite.making(opener(tmp_path), 2) as (maker, id_):
            names = sorted(await suite.nodes_of(maker, id_))
            await maker.resize(id_, 1, names[:1])
            said = (tmp_path / "docker.log").read_text()
            assert said == f"exec k3d-{id_}-server-0 kubectl delete node {names[0]} --ignore-not-found\n"

    suite.play(story())
