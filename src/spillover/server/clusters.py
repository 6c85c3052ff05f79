"""Clusters, put together: how each is opened, watched and dealt with."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct

from spillover.clusters.kinds import Kinds, load_kinds
from spillover.config.config import Config
from spillover.control.controllers.driving import Driving
from spillover.control.driving.drivers import Drivers
from spillover.control.driving.keeping import OutputArchive
from spillover.control.loop import Loop
from spillover.control.runner import Runner
from spillover.control.set_aside import surviving
from spillover.core.state import State
from spillover.model.backoff import reason_of
from spillover.model.cluster import AGENTS
from spillover.model.ids import ClusterName
from spillover.ports.blobs import Blobs
from spillover.ports.driver import Driver, Manner
from spillover.ports.kinds import AgentHost, CannotOpen, Opened, Opening


class Unusable(Exception):
    """Clusters that cannot be used; the message has a line for each problem."""


def check_access(config: Config, environ: Mapping[str, str] | None = None) -> None:
    """Raise Unusable unless it is said how each cluster is reached; none of them is asked."""
    kinds = load_kinds()
    wrong = [
        f"cluster {spec.name}: {line}"
        for spec in config.clusters
        for line in kinds[spec.kind].missing(
            config.forms[spec.name], os.environ if environ is None else environ, Path.home()
        )
    ]
    if wrong:
        raise Unusable("\n".join(wrong))


def identity_for(state: State) -> str:
    """What a book is known by on clusters of others; drawn once for each."""
    return state.facts.identity or secrets.token_hex(8)


def owner_of(identity: str, cluster: ClusterName) -> str:
    """What our objects on one cluster are known by.

    Two clusters may be one namespace under two names, or one that was given another name while things run there: what was made
    under one name is none of the other's, which would else delete what it knows nothing of.
    """
    return hashlib.blake2s(f"{identity}/{cluster}".encode(), digest_size=8).hexdigest()


class ClusterParts(Struct, frozen=True):
    """What all clusters of a server are opened and run with."""

    config: Config
    data: Path
    loop: Loop
    runner: Runner
    blobs: Blobs
    drivers: Drivers
    umask: int = -1
    files: int | None = None


class _Open(Struct):
    """One cluster that is open."""

    kind: str
    form: Struct
    opened: Opened
    driving: Driving | None
    """Reconciles what its driver sees with the book; None for a cluster of agents."""
    task: asyncio.Task[None] | None = None
    """Runs it; None until then."""


class OpenClusters:
    """The clusters that are open: each is run under supervision, by itself, from when it is opened until it is closed."""

    def __init__(self, around: ClusterParts) -> None:
        self._around = around
        self._open: dict[ClusterName, _Open] = {}
        config = around.config
        archive = OutputArchive(around.blobs, config.output_limit)
        self._keep = archive.keep if config.keep_output else None
        self.kinds = load_kinds()
        self.identity = ""
        """What the server is known by on clusters of others; empty until the book is loaded."""

    def __contains__(self, cluster: ClusterName) -> bool:
        return cluster in self._open

    def __iter__(self) -> Iterator[ClusterName]:
        return iter(self._open)

    @property
    def has_drivers(self) -> bool:
        """Whether others run any of them."""
        return any(each.driving is not None for each in self._open.values())

    def form_of(self, cluster: ClusterName) -> Struct:
        """What an open cluster says in the form of its kind."""
        return self._open[cluster].form

    def open(self, name: ClusterName, kind: str, form: Struct) -> None:
        """Open a cluster, without running it; raises CannotOpen."""
        around, config = self._around, self._around.config
        if kind not in self.kinds:
            raise CannotOpen(self.kinds.unusable.get(kind, f"there is no kind {kind!r} of clusters here"))
        opening = Opening(
            cluster=name,
            owner=owner_of(self.identity, name),
            lead=around.loop,
            data=around.data,
            environ=os.environ,
            home=Path.home(),
            umask=around.umask,
            files=around.files,
            agent_options=("--isolation", config.isolation, "--output-limit", str(config.output_limit)),
        )
        opened, manner = _opened(self.kinds, kind, form, opening)
        driving = None
        if kind != AGENTS:
            driver = cast("Driver", opened)
            driving = Driving(around.loop, driver, around.runner.starts, manner, self._keep)
            around.drivers.add(driving)
        self._open[name] = _Open(kind, form, opened, driving)

    async def check(self, clusters: Iterable[ClusterName]) -> list[str]:
        """What keeps some of them from being used, a line for each problem; agents are not asked."""
        drivings = [driving for each in clusters if (driving := self._open[each].driving) is not None]
        found = await asyncio.gather(*[_problems(each.driver) for each in drivings])
        return [line for lines in found for line in lines]

    def watch(self) -> None:
        """Run those that others run and that do not run yet."""
        for each in self._open.values():
            if each.driving is not None and each.task is None:
                self._run(each, each.driving.work, each.driving.run)

    def start_agents(self) -> None:
        """Run the agents of this machine that do not run yet; they look for the server where it says that it is."""
        for name, each in self._open.items():
            if each.driving is None and each.task is None:
                self._run(each, f"local agents of {name}", cast("AgentHost", each.opened).run)

    def _run(self, each: _Open, work: str, run: Callable[[], Awaitable[None]]) -> None:
        each.task = asyncio.create_task(surviving(work, run, self._around.loop.aside), name=work)

    async def close(self, cluster: ClusterName) -> None:
        """Let go of a cluster: its agents on this machine are stopped, and what its driver watches is not watched any more."""
        each = self._open.pop(cluster)
        await _end(each)
        if each.driving is None:
            await cast("AgentHost", each.opened).stop()
            return
        each.driving.retire()
        self._around.drivers.remove(cluster)
        if each.task is None:
            await each.driving.driver.close()

    async def stop_agents(self, *, tasks_too: bool) -> None:
        """Mind the agents of this machine no more, and stop them and their tasks if that is wanted."""
        agents = [each for each in self._open.values() if each.driving is None]
        for each in agents:
            await _end(each)
        if tasks_too:
            await asyncio.gather(*[cast("AgentHost", each.opened).stop() for each in agents])

    async def end(self) -> None:
        """Watch nothing any more."""
        for each in self._open.values():
            await _end(each)
            if each.driving is not None and each.task is None:
                await each.driving.driver.close()


def _opened(kinds: Kinds, kind: str, form: Struct, opening: Opening) -> tuple[Opened, Manner]:
    """A cluster as its kind opens it; raises CannotOpen, whatever a kind of a package raises."""
    try:
        return kinds[kind].open(form, opening), kinds[kind].manner(form)
    except CannotOpen:
        raise
    except Exception as error:
        raise CannotOpen(f"the kind {kind} failed to open it: {reason_of(error)}") from error


async def _end(each: _Open) -> None:
    """End what runs a cluster."""
    if each.task is not None:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)


async def _problems(driver: Driver) -> list[str]:
    try:
        return [f"cluster {driver.cluster}: {line}" for line in await driver.check()]
    except Exception as error:  # noqa: BLE001 - a driver may not be ours
        return [f"cluster {driver.cluster}: its check failed: {reason_of(error)}"]
