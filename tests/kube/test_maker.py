"""The provider command with programs that start real control planes on this machine, with nodes that KWOK plays."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.clusters.kubernetes.api.requests import Api
from spillover.ports.provider import ClusterMaker, Made, Presence, ProviderError
from spillover.providers.command.provider import CommandForm, CommandKind, CommandMaker
from spillover.testing.maker_suite import MakerSuite, usable
from spillover.testing.provider_suite import OWNER, Fault, OpenProvider, an_opening
from tests.support.kube import maker as programs
from tests.support.processes import wait_until

MARK = "spillover.dev/type"


def opened(folder: Path, owner: str = OWNER) -> CommandMaker:
    """Open the provider with the five programs, whose clusters are in this folder."""
    names = ("create", "list", "destroy", "kubeconfig", "resize")
    program = [sys.executable, "-I", "-S", programs.__file__]
    words: dict[str, Any] = {each: [*program, each] for each in names}
    form = CommandForm(**words, env={"CLUSTERS": str(folder / "clusters")})
    assert not CommandKind().check(form, [])
    found = CommandKind().open(form, an_opening(folder / "data", owner))
    assert isinstance(found, CommandMaker)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for each in (tmp_path / "clusters").glob("[!.]*"):
        assert not programs.end(each)


class TestContract(MakerSuite):
    faults = frozenset({Fault.LOST_TAGS})
    patience = 120.0
    remembers = False
    folder: Path

    @pytest.fixture
    def open_provider(self, folder: Path) -> OpenProvider:
        self.folder = folder
        return lambda owner: opened(folder, owner)

    def provoke(self, fault: Fault) -> None:
        assert fault is Fault.LOST_TAGS
        for each in (self.folder / "clusters").glob("*/tags.json"):
            each.unlink()


async def running(folder: Path, nodes: int) -> tuple[ClusterMaker, str]:
    """Make a cluster, and wait until it has its nodes."""
    suite = TestContract()
    maker = opened(folder)
    offer = replace(suite.offer, zone="a", labels={"rack": "r1"})
    made = await maker.create(suite.an_order(offer=offer, nodes=nodes))
    assert isinstance(made, Made)
    await suite.until_running(maker, made.id)
    await suite.until_nodes(maker, made.id, nodes)
    return maker, made.id


async def test_a_made_cluster_runs_pods_on_nodes_like_its_offer(folder: Path) -> None:
    maker, id_ = await running(folder, 1)
    cluster = usable(await maker.kubeconfig(id_))
    api = Api(cluster)
    (node,) = json.loads(await api.ask("GET", "/api/v1/nodes"))["items"]
    room, labels = node["status"]["allocatable"], node["metadata"]["labels"]
    assert (room["cpu"], room["memory"]) == ("1", str(2**30))
    assert {MARK: "small", "spillover.dev/zone": "a", "rack": "r1"}.items() <= labels.items()
    pod = {
        "metadata": {"name": "task"},
        "spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"},
    }
    await api.ask("POST", "/api/v1/namespaces/default/pods", body=pod)
    async with asyncio.timeout(60):
        while True:
            seen = json.loads(await api.ask("GET", "/api/v1/namespaces/default/pods/task"))
            if seen["status"]["phase"] == "Succeeded":
                break
            await asyncio.sleep(0.1)
    await api.close()


async def test_a_cluster_whose_process_was_killed_is_gone_and_leaves_nothing_running(folder: Path) -> None:
    maker, id_ = await running(folder, 0)
    assert left_of(id_)
    held = folder / "clusters" / id_
    os.kill(int((held / "pid").read_text()), signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: not programs.runs(held), "its end")
    (seen,) = (await maker.list()).machines
    assert seen.presence is Presence.GONE
    with pytest.raises(ProviderError, match="there is no cluster"):
        await maker.resize(id_, 2, [])
    assert not await maker.destroy([id_])
    assert not (await maker.list()).machines
    await asyncio.to_thread(wait_until, lambda: not left_of(id_), "its clean-up")


def left_of(id_: str) -> list[str]:
    """Return the command lines of processes of a cluster that run."""
    lines = [_command_line(each) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [each for each in lines if f"spill-kube-{id_}-" in each]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
