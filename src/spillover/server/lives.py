"""Opens and closes clusters while the server runs, to match the state.

It handles one cluster at a time, and the others are not affected. It retries a cluster that cannot be opened.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from spillover.config.clusters import read_cluster
from spillover.control.live.loop import Loop
from spillover.core.deciders.clusters import is_clear
from spillover.core.events import (
    AnyEvent,
    ClusterAdded,
    ClusterDraining,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    JobEnded,
    JobRequeued,
    MachineGone,
    MachineRefused,
)
from spillover.core.proposals import ClearedCluster, OpenedCluster
from spillover.core.records.clusters import ClusterRecord
from spillover.core.state import State
from spillover.forms.problems import Findings
from spillover.model.cluster import ClusterLife
from spillover.model.ids import ClusterName
from spillover.ports.commands import CommandError
from spillover.ports.kinds import CannotOpen
from spillover.server.clusters import OpenClusters, Settings, cluster_settings

log = structlog.get_logger()

AGAIN: Final = 5.0
"""Seconds until the next try to open a cluster."""
_LIVES: Final = frozenset(
    {
        ClustersConfigured,
        ClusterAdded,
        ClusterUpdated,
        ClusterDraining,
        ClusterResumed,
        ClusterRemoved,
    }
)
_JOBS: Final = frozenset({JobEnded, JobRequeued, MachineGone, MachineRefused})
"""Events after which a cluster that is being removed may be empty."""


class ClusterLives:
    """Opens, reopens and closes clusters as the state requires."""

    def __init__(self, loop: Loop, clusters: OpenClusters, configured: dict[ClusterName, Settings]) -> None:
        self._loop = loop
        self._clusters = clusters
        self.configured = configured
        """How to open the clusters of the configuration."""
        self.failed: dict[ClusterName, str] = {}
        """Clusters that cannot be opened, and why."""
        self._leaving = False
        """Whether any cluster is being removed."""
        self._news = asyncio.Event()
        self._news.set()
        loop.listen(self._see)

    async def run(self) -> None:
        """Check whenever a cluster changes, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN if self.failed else None):
                    await self._news.wait()
            self._news.clear()
            try:
                await self.look()
            except CommandError as error:
                log.warning(
                    "cannot record that a cluster was opened or removed; will retry", error=error.message
                )
                await asyncio.sleep(AGAIN)
                self._news.set()

    async def look(self) -> None:
        """Open and close clusters, and propose what that changes."""
        state = (await self._loop.read()).state
        self._leaving = any(record.leaving is not None for record in state.lives.values())
        for name in [each for each in self._clusters if each not in state.lives]:
            await self._clusters.close(name)
            log.info("closed a cluster", cluster=name)
        self.failed = {name: why for name, why in self.failed.items() if name in state.lives}
        for name, record in list(state.lives.items()):
            await self._open(state, name, record)
        proposals: list[OpenedCluster | ClearedCluster] = []
        for name, record in state.lives.items():
            if record.life is ClusterLife.REQUESTED and name in self._clusters:
                proposals.append(OpenedCluster(name))
            if record.leaving is not None and is_clear(state, name):
                proposals.append(ClearedCluster(name))
        if proposals:
            await self._loop.propose(*proposals)

    async def _open(self, state: State, name: ClusterName, record: ClusterRecord) -> None:
        """Open or reopen one cluster as configured; record the error if that fails."""
        clusters = self._clusters
        try:
            settings = self._settings(name, record)
            if name not in clusters:
                clusters.open(name, state.clusters[name].kind, settings)
            elif clusters.settings[name] != settings:
                await clusters.reopen(name, settings)
            else:
                return
        except CannotOpen as error:
            if self.failed.get(name) != str(error):
                log.warning("cannot open a cluster; will retry", cluster=name, error=str(error))
            self.failed[name] = str(error)
            return
        self.failed.pop(name, None)
        clusters.start()
        log.info("opened a cluster", cluster=name, kind=state.clusters[name].kind)

    def _settings(self, name: ClusterName, record: ClusterRecord) -> Settings:
        """Return how to open a cluster; raise CannotOpen if that is unknown or no longer valid."""
        if not record.form:
            if name not in self.configured:
                raise CannotOpen(
                    "the configuration file has no connection settings for it; run `spill config apply`"
                )
            return self.configured[name]
        found = Findings()
        read = read_cluster(msgspec.json.decode(record.form), self._clusters.kinds, found)
        if read is None:
            raise CannotOpen("; ".join(str(each) for each in found.located()))
        return cluster_settings(read)[name]

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        kinds = {type(each) for each in events}
        if not kinds.isdisjoint(_LIVES) or (self._leaving and not kinds.isdisjoint(_JOBS)):
            self._news.set()
