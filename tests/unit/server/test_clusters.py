"""What people are told of the clusters of a server: by the real administration, on the live loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.clusters.agents.hub import Hub
from spillover.config.config import ClusterSource, Config
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.tickets import Tickets
from spillover.control.driving.drivers import Drivers
from spillover.control.requests.rights import AccessRules
from spillover.model.access import Access
from spillover.ports.commands import CommandError, ErrorKind
from spillover.server.administration import ServerAdministration
from spillover.server.clusters import ClusterParts, OpenClusters, cluster_settings
from spillover.server.lives import ClusterLives
from spillover.server.up import settings_of
from spillover.stores.blobs import MemoryBlobs
from spillover.stores.memory import open_memory
from spillover.testing.world import OWNED, RENTED
from spillover.wire.api import ClusterAction, ClusterRequest, ConfigRequest
from spillover.wire.clusterfile import LocalAgentsDoc
from tests.support.inside import leading

NAMES = (OWNED.name, RENTED.name)
CONFIG = Config((OWNED, RENTED), dict.fromkeys(NAMES, LocalAgentsDoc()), dict.fromkeys(NAMES, "{}"))


@asynccontextmanager
async def administering(
    folder: Path, source: ClusterSource = ClusterSource.FILE
) -> AsyncIterator[ServerAdministration]:
    async with leading(open_memory()) as control:
        config = replace(CONFIG, clusters_from=source)
        runner = LeaseSender(control.loop, Hub(), control.specs, Tickets())
        clusters = OpenClusters(ClusterParts(config, folder, control.loop, runner, MemoryBlobs(), Drivers()))
        lives = ClusterLives(control.loop, clusters, cluster_settings(config))
        yield ServerAdministration(config, control.loop, clusters, lives, lambda: config, AccessRules())


@pytest.mark.parametrize(
    ("source", "remove", "change"),
    [
        (
            ClusterSource.FILE,
            "'onprem' is in the configuration file; remove it there and run `spill config apply`, or drain it",
            "change it in the configuration file and run `spill config apply`",
        ),
        (
            ClusterSource.OPTIONS,
            "'onprem' is on the command line of `spill up`; start the server without that --cluster, or drain it",
            "start the server with another --cluster",
        ),
        (
            ClusterSource.DEFAULT,
            "'onprem' is the default cluster; name other clusters in the configuration file, or drain it",
            "name clusters in the configuration file",
        ),
    ],
)
async def test_one_that_was_there_at_the_start_is_changed_where_it_is_written(
    tmp_path: Path, source: ClusterSource, remove: str, change: str
) -> None:
    async with administering(tmp_path, source) as desk:
        with pytest.raises(CommandError) as refused:
            await desk.act(ClusterAction("remove", ["onprem"]), "ada")
        assert (refused.value.kind, refused.value.message) == (ErrorKind.CONFLICT, remove)
        with pytest.raises(CommandError) as refused:
            await desk.add(ClusterRequest({"name": "onprem"}), "ada")
        assert refused.value.message == f"cluster 'onprem' already exists; {change}"


async def test_who_may_change_whose_jobs_changes_without_a_restart(tmp_path: Path) -> None:
    async with administering(tmp_path) as desk:
        wanted = Access("project", {"vision": ("ada",)})
        desk._reload = lambda: replace(CONFIG, access=wanted)
        for dry_run in (True, False):
            changes = (await desk.configure(ConfigRequest(dry_run=dry_run), "ada")).changes
            assert [(each.what, each.change) for each in changes if each.what == "access"] == [
                ("access", "changed")
            ]
            assert (desk._access.access == wanted) is not dry_run
        assert not (await desk.configure(ConfigRequest(), "ada")).changes


def test_it_is_known_where_clusters_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_of(None, None).clusters_from is ClusterSource.DEFAULT
    assert settings_of(None, None, clusters=["lab=agents"]).clusters_from is ClusterSource.OPTIONS
    head = "apiVersion: spillover/v1\nkind: Config\n"
    (tmp_path / "spill.yaml").write_text(head)
    assert settings_of(None, None).clusters_from is ClusterSource.DEFAULT
    (tmp_path / "spill.yaml").write_text(head + "clusters: [{name: lab}]\n")
    assert settings_of(None, None).clusters_from is ClusterSource.FILE
    assert settings_of(None, None, clusters=["lab=agents"]).clusters_from is ClusterSource.OPTIONS


HALF = """
from msgspec import Struct
from spillover.ports.kinds import Capability, ClusterKind

class Form(Struct, frozen=True, forbid_unknown_fields=True):
    pass

class Half:
    cluster = "lab"

    async def run(self, news): ...
    def connection(self): ...
    def take(self): ...
    async def start(self, start): ...
    async def stop(self, lease, grace): ...

class Broken(Half):
    @property
    def output(self):
        raise RuntimeError("no output today")

class BrokenKind(ClusterKind):
    name = "broken"
    form = Form

    def capabilities(self, form):
        return frozenset({Capability.COMMANDS})

    def open(self, form, opening):
        return Broken()

class HalfKind(ClusterKind):
    name = "half"
    form = Form

    def capabilities(self, form):
        return frozenset({Capability.COMMANDS})

    def open(self, form, opening):
        return Half()
"""


async def test_a_driver_that_lacks_methods_is_named_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_kind.py").write_text(HALF)
    info = tmp_path / "half-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1\n")
    points = "half = half_kind:HalfKind\nbroken = half_kind:BrokenKind\n"
    (info / "entry_points.txt").write_text(f"[spillover.clusters]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with administering(tmp_path) as desk:
        with pytest.raises(CommandError) as refused:
            await desk.add(ClusterRequest({"name": "lab", "kind": "half"}), "ada")
        assert refused.value.kind is ErrorKind.INVALID
        assert refused.value.message == (
            "cluster lab: kind half: its driver lacks `output`, `close`, `check`; see spillover.ports.driver.Driver"
        )
        with pytest.raises(
            CommandError, match="the kind broken failed to open it: RuntimeError: no output today"
        ):
            await desk.add(ClusterRequest({"name": "lab", "kind": "broken"}), "ada")
