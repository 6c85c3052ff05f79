"""Opens, runs and closes the clusters of a server."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from spillover.clusters.kinds import Kinds, load_kinds
from spillover.config.clusters import Clusters
from spillover.config.config import Config
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.controllers.driving import Driving
from spillover.control.driving.drivers import Drivers
from spillover.control.driving.saved_output import OutputArchive
from spillover.control.live.loop import Loop
from spillover.control.live.set_aside import surviving
from spillover.core.state import State
from spillover.forms.problems import path_text
from spillover.model.backoff import reason_of
from spillover.model.cluster import AGENTS, ClusterSpec
from spillover.model.ids import ClusterName
from spillover.ports.blobs import Blobs
from spillover.ports.driver import Driver, Manner
from spillover.ports.kinds import AgentHost, CannotOpen, Opened, Opening
from spillover.providers.registry import load_providers
from spillover.server.pools import OpenPools, Reached, Renting
from spillover.server.senders.files import problems_of
from spillover.server.whole_clusters import TemplateHost

_DRIVER: Final = (*Driver.__annotations__, *[part for part in vars(Driver) if not part.startswith("_")])
"""Members of every driver."""


class Unusable(Exception):
    """Clusters or notifications cannot be used; the message has a line for each problem."""


def check_access(config: Config, environ: Mapping[str, str] | None = None) -> None:
    """Raise Unusable unless the access to each cluster, and what signs notifications, is there; contacts nobody."""
    wrong = missing_access(config, environ)
    wrong += [f"{path_text(place)}: {told}" for place, told in problems_of(config.notifications)]
    if wrong:
        raise Unusable("\n".join(wrong))


def missing_access(config: Config, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return what is missing for the access to each cluster, one line each; contacts nobody."""
    kinds, told = load_kinds(), os.environ if environ is None else environ
    wrong = [
        f"cluster {spec.name}: {line}"
        for spec in config.clusters
        if not spec.is_template
        for line in kinds[spec.kind].missing(config.forms[spec.name], told, Path.home())
    ]
    providers = load_providers() if config.providers else None
    wrong += [
        f"cluster {spec.name}: {line}"
        for spec in config.clusters
        if providers is not None and spec.pool is not None
        for line in providers[spec.pool.provider].missing(config.providers[spec.name], told, Path.home())
    ]
    return wrong


def identity_for(state: State) -> str:
    """Return the id of this state on external clusters; a new one if it has none."""
    return state.facts.identity or secrets.token_hex(8)


def owner_of(identity: str, cluster: ClusterName) -> str:
    """Return the owner id of our objects on one cluster.

    Two configured clusters may be the same namespace, or a cluster may be renamed while attempts run there. With an
    owner id for each name, neither deletes the objects of the other.
    """
    return hashlib.blake2s(f"{identity}/{cluster}".encode(), digest_size=8).hexdigest()


class Settings(Struct, frozen=True):
    """How to open a cluster."""

    form: Struct
    """In the form of its kind."""
    renting: Renting | None = None
    """Who rents its machines; None if it has no pool."""


def cluster_settings(read: Config | Clusters) -> dict[ClusterName, Settings]:
    """Return how to open each cluster that was read."""
    specs = read.clusters if isinstance(read, Config) else read.specs
    return {
        spec.name: Settings(
            read.forms[spec.name],
            None
            if spec.pool is None
            else Renting(
                spec.pool.provider,
                read.providers[spec.name],
                read.entries[spec.name] if spec.is_template else "",
            ),
        )
        for spec in specs
    }


class ClusterParts(Struct, frozen=True):
    """What all clusters of a server need."""

    config: Config
    data: Path
    loop: Loop
    lease_sender: LeaseSender
    blobs: Blobs
    drivers: Drivers
    umask: int = -1
    files: int | None = None


class _Open(Struct):
    """An open cluster."""

    kind: str
    settings: Settings
    opened: Opened
    driving: Driving | None
    """Reconciles the cluster with the state; None for a cluster of agents."""
    task: asyncio.Task[None] | None = None
    """Runs the cluster; None until it is started."""


class OpenClusters:
    """The open clusters; each runs in its own supervised task."""

    def __init__(self, around: ClusterParts) -> None:
        self._around = around
        self._open: dict[ClusterName, _Open] = {}
        config = around.config
        archive = OutputArchive(around.blobs, config.output_limit)
        self._keep = archive.keep if config.keep_output else None
        self.kinds = load_kinds()
        self.pools = OpenPools(
            config, around.data, around.loop, around.umask, around.files, lambda: self.kinds
        )
        """Those of clusters whose machines are rented."""
        self._serves = False
        """Whether agents can find the server."""
        self.identity = ""
        """Id of the server on external clusters; empty until the state is loaded."""

    def __contains__(self, cluster: ClusterName) -> bool:
        return cluster in self._open

    def __iter__(self) -> Iterator[ClusterName]:
        return iter(self._open)

    def form(self, cluster: ClusterName) -> Struct | None:
        """Return the form of a cluster; None if it is not open."""
        found = self._open.get(cluster)
        return None if found is None else found.settings.form

    @property
    def settings(self) -> dict[ClusterName, Settings]:
        """How each open cluster was opened."""
        return {name: each.settings for name, each in self._open.items()}

    @property
    def has_drivers(self) -> bool:
        """Whether any open cluster is external."""
        return any(each.driving is not None for each in self._open.values())

    def look_for_kinds(self) -> None:
        """Find kinds that were installed while the server runs."""
        self.kinds = load_kinds()
        self.pools.look_for_providers()

    def open(self, name: ClusterName, kind: str, settings: Settings) -> None:
        """Open a cluster without running it; raise CannotOpen."""
        around = self._around
        if kind not in self.kinds:
            raise CannotOpen(self.kinds.unusable.get(kind, f"there is no cluster kind {kind!r}"))
        template = kind != AGENTS and settings.renting is not None
        opened, manner = (
            (TemplateHost(), Manner())
            if template
            else _opened(self.kinds, kind, settings.form, self._opening(name))
        )
        if settings.renting is not None and self.pools.renting(name) is None:
            self.pools.open(name, settings.renting, self._owner(name), self.identity)
        driving = None
        if kind != AGENTS and not template:
            driver = cast("Driver", opened)
            driving = Driving(around.loop, driver, around.lease_sender.starts, manner, self._keep)
            around.drivers.add(driving)
        self._open[name] = _Open(kind, settings, opened, driving)

    def _owner(self, name: ClusterName) -> str:
        return owner_of(self.identity, name)

    def _opening(self, name: ClusterName) -> Opening:
        around, config = self._around, self._around.config
        return Opening(
            cluster=name,
            owner=self._owner(name),
            lead=around.loop,
            data=around.data,
            environ=os.environ,
            home=Path.home(),
            umask=around.umask,
            files=around.files,
            agent_options=("--isolation", config.isolation, "--output-limit", str(config.output_limit)),
        )

    async def check(self, clusters: Iterable[ClusterName]) -> list[str]:
        """Return why external clusters cannot be used, one line for each problem; skips clusters of agents."""
        clusters = [*clusters]
        drivings = [driving for each in clusters if (driving := self._open[each].driving) is not None]
        found = await asyncio.gather(*[_problems(each.driver) for each in drivings])
        return [
            f"cluster {each.driver.cluster}: {line}"
            for each, lines in zip(drivings, found, strict=True)
            for line in lines
        ]

    def watch(self) -> None:
        """Run open external clusters that do not run yet."""
        for each in self._open.values():
            if each.driving is not None and each.task is None:
                self._run(each, each.driving.work, each.driving.run)

    def start_agents(self, reached: Reached) -> None:
        """Run agents on this machine and pools, now and for clusters opened later: agents find the server from now on."""
        self._serves = True
        self.pools.reached = reached
        self.start()

    def start(self) -> None:
        """Run open clusters that do not run yet."""
        self.watch()
        if not self._serves:
            return
        for name, each in self._open.items():
            if each.driving is None and each.task is None:
                self._run(each, f"local agents of {name}", cast("AgentHost", each.opened).run)
        self.pools.start()

    def _run(self, each: _Open, work: str, run: Callable[[], Awaitable[None]]) -> None:
        each.task = asyncio.create_task(surviving(work, run, self._around.loop.aside), name=work)

    async def close(self, cluster: ClusterName) -> None:
        """Close a removed cluster: stop its agents on this machine, or delete its ended attempts."""
        each = self._open.pop(cluster)
        await self.pools.close(cluster)
        if each.driving is not None:
            await each.driving.clear()
        await self._let_go(each)
        if each.driving is None:
            await cast("AgentHost", each.opened).stop()

    async def reopen(self, cluster: ClusterName, settings: Settings) -> None:
        """Replace an open cluster by one with other settings; raise CannotOpen, and then change nothing.

        Unchanged agents on this machine keep running. A new driver lists the objects again.
        """
        each = self._open[cluster]
        await self.pools.reopen(cluster, settings.renting, self._owner(cluster), self.identity)
        if settings.form == each.settings.form:
            each.settings = settings
            return
        if each.driving is not None:
            self._around.drivers.remove(cluster)
        try:
            self.open(cluster, each.kind, settings)
        except CannotOpen:
            if each.driving is not None:
                self._around.drivers.add(each.driving)
            raise
        await _end(each)
        if each.driving is not None:
            each.driving.retire()
        else:
            await cast("AgentHost", each.opened).stop(self._open[cluster].opened)

    async def _let_go(self, each: _Open) -> None:
        await _end(each)
        if each.driving is not None:
            each.driving.retire()
            self._around.drivers.remove(each.driving.driver.cluster)
            if each.task is None:
                await each.driving.driver.close()

    async def try_out(self, spec: ClusterSpec, settings: Settings) -> list[str]:
        """Return why a cluster that is not open cannot be used, one line each."""
        name, kind, form = spec.name, spec.kind, settings.form
        if settings.renting is not None and spec.pool is not None:
            return await self.pools.try_out(name, settings.renting, self._owner(name), spec.pool.offers)
        try:
            lines = list(self.kinds[kind].missing(form, os.environ, Path.home()))
            opened = None if lines else _opened(self.kinds, kind, form, self._opening(name))[0]
        except CannotOpen as error:
            return [str(error)]
        except Exception as error:  # noqa: BLE001 - a kind of a package may raise anything
            return [f"the kind {kind} failed to check it: {reason_of(error)}"]
        if kind == AGENTS or opened is None:
            return lines
        driver = cast("Driver", opened)
        try:
            return await _problems(driver)
        finally:
            await driver.close()

    async def stop_agents(self, *, tasks_too: bool) -> None:
        """Stop supervising the agents on this machine; with `tasks_too`, also stop them and their tasks.

        Rented machines stay, but for those that are on this machine.
        """
        await self.pools.stop(machines_too=tasks_too)
        agents = [each for each in self._open.values() if each.driving is None]
        await asyncio.gather(*map(_end, agents))
        if tasks_too:
            await asyncio.gather(*[cast("AgentHost", each.opened).stop() for each in agents])

    async def end(self) -> None:
        """Stop running all clusters."""
        await self.pools.end()
        await asyncio.gather(*map(_end, self._open.values()))
        for each in self._open.values():
            if each.driving is not None and each.task is None:
                await each.driving.driver.close()


def _opened(kinds: Kinds, kind: str, form: Struct, opening: Opening) -> tuple[Opened, Manner]:
    """Open a cluster through its kind; turn any error into CannotOpen, as the kind may be of a package."""
    try:
        opened, manner = kinds[kind].open(form, opening), kinds[kind].manner(form)
        lacking = [f"`{part}`" for part in _DRIVER if kind != AGENTS and not hasattr(opened, part)]
    except CannotOpen:
        raise
    except Exception as error:
        raise CannotOpen(f"the kind {kind} failed to open it: {reason_of(error)}") from error
    if lacking:
        told = f"kind {kind}: its driver lacks {', '.join(lacking)}; see spillover.ports.driver.Driver"
        raise CannotOpen(told)
    return opened, manner


async def _end(each: _Open) -> None:
    """Cancel the task that runs a cluster."""
    if each.task is not None:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)


async def _problems(driver: Driver) -> list[str]:
    try:
        return list(await driver.check())
    except Exception as error:  # noqa: BLE001 - a driver of a package may raise anything
        return [f"its check failed: {reason_of(error)}"]
