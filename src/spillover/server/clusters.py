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
from spillover.control.runner import LeaseSender
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
    runner: LeaseSender
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
        self._serves = False
        """Whether agents find the server."""
        self.identity = ""
        """What the server is known by on clusters of others; empty until the book is loaded."""

    def __contains__(self, cluster: ClusterName) -> bool:
        return cluster in self._open

    def __iter__(self) -> Iterator[ClusterName]:
        return iter(self._open)

    @property
    def forms(self) -> dict[ClusterName, Struct]:
        """What each says in the form of its kind."""
        return {name: each.form for name, each in self._open.items()}

    @property
    def has_drivers(self) -> bool:
        """Whether others run any of them."""
        return any(each.driving is not None for each in self._open.values())

    def look_for_kinds(self) -> None:
        """Know kinds too that were installed while the server runs."""
        self.kinds = load_kinds()

    def open(self, name: ClusterName, kind: str, form: Struct) -> None:
        """Open a cluster, without running it; raises CannotOpen."""
        around = self._around
        if kind not in self.kinds:
            raise CannotOpen(self.kinds.unusable.get(kind, f"there is no kind {kind!r} of clusters here"))
        opened, manner = _opened(self.kinds, kind, form, self._opening(name))
        driving = None
        if kind != AGENTS:
            driver = cast("Driver", opened)
            driving = Driving(around.loop, driver, around.runner.starts, manner, self._keep)
            around.drivers.add(driving)
        self._open[name] = _Open(kind, form, opened, driving)

    def _opening(self, name: ClusterName) -> Opening:
        around, config = self._around, self._around.config
        return Opening(
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

    async def check(self, clusters: Iterable[ClusterName]) -> list[str]:
        """What keeps some of them from being used, a line for each problem; agents are not asked."""
        drivings = [driving for each in clusters if (driving := self._open[each].driving) is not None]
        found = await asyncio.gather(*[_problems(each.driver) for each in drivings])
        return [
            f"cluster {each.driver.cluster}: {line}"
            for each, lines in zip(drivings, found, strict=True)
            for line in lines
        ]

    def watch(self) -> None:
        """Run those that others run and that do not run yet."""
        for each in self._open.values():
            if each.driving is not None and each.task is None:
                self._run(each, each.driving.work, each.driving.run)

    def start_agents(self) -> None:
        """Run the agents of this machine, now that the server says where it is, and from now on those of clusters that are opened."""
        self._serves = True
        self.start()

    def start(self) -> None:
        """Run what is open and does not run yet."""
        self.watch()
        if not self._serves:
            return
        for name, each in self._open.items():
            if each.driving is None and each.task is None:
                self._run(each, f"local agents of {name}", cast("AgentHost", each.opened).run)

    def _run(self, each: _Open, work: str, run: Callable[[], Awaitable[None]]) -> None:
        each.task = asyncio.create_task(surviving(work, run, self._around.loop.aside), name=work)

    async def close(self, cluster: ClusterName) -> None:
        """Let go of a cluster that was removed: its agents on this machine are stopped, and what has ended on it is deleted."""
        each = self._open.pop(cluster)
        if each.driving is not None:
            await each.driving.clear()
        await self._let_go(each)
        if each.driving is None:
            await cast("AgentHost", each.opened).stop()

    async def reopen(self, cluster: ClusterName, form: Struct) -> None:
        """Open a cluster that is configured otherwise in the place of what it was; raises CannotOpen, and then nothing has changed.

        Agents of this machine that are as they were run on. A driver's successor learns anew what is there.
        """
        each = self._open[cluster]
        if each.driving is not None:
            self._around.drivers.remove(cluster)
        try:
            self.open(cluster, each.kind, form)
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

    async def try_out(self, name: ClusterName, kind: str, form: Struct) -> list[str]:
        """What keeps a cluster from being used that is not open yet, each in one line."""
        try:
            lines = list(self.kinds[kind].missing(form, os.environ, Path.home()))
            opened = None if lines else _opened(self.kinds, kind, form, self._opening(name))[0]
        except CannotOpen as error:
            return [str(error)]
        except Exception as error:  # noqa: BLE001 - a kind may not be ours
            return [f"the kind {kind} failed to look at it: {reason_of(error)}"]
        if kind == AGENTS or opened is None:
            return lines
        driver = cast("Driver", opened)
        try:
            return await _problems(driver)
        finally:
            await driver.close()

    async def stop_agents(self, *, tasks_too: bool) -> None:
        """Mind the agents of this machine no more, and stop them and their tasks if that is wanted."""
        agents = [each for each in self._open.values() if each.driving is None]
        await asyncio.gather(*map(_end, agents))
        if tasks_too:
            await asyncio.gather(*[cast("AgentHost", each.opened).stop() for each in agents])

    async def end(self) -> None:
        """Watch nothing any more."""
        await asyncio.gather(*map(_end, self._open.values()))
        for each in self._open.values():
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
        return list(await driver.check())
    except Exception as error:  # noqa: BLE001 - a driver may not be ours
        return [f"its check failed: {reason_of(error)}"]
