"""Opens, runs and closes the pools of a server, each with its provider."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spillover.clusters.kinds import Kinds
from spillover.config.config import Address, Config
from spillover.control.controllers.pools import PoolControl
from spillover.control.live.loop import Loop
from spillover.control.live.set_aside import surviving
from spillover.control.pools.controls import PoolControls
from spillover.model.backoff import reason_of
from spillover.model.hosts import is_loopback
from spillover.model.ids import ClusterName
from spillover.model.pools import JoinTerms, Offer
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import ClusterMaker, Provider, ProviderKind, ProviderOpening
from spillover.providers.registry import Providers, load_providers
from spillover.server.whole_clusters import ClusterKeeper

log = structlog.get_logger()

LONGEST_CHECK: Final = 60.0
"""Seconds for a provider to say whether its offers can be rented."""
LONGEST_END: Final = 30.0
"""Seconds to end the machines of this machine when the server stops."""
_PROVIDER: Final = tuple([part for part in vars(Provider) if not part.startswith("_")])
"""Members of every provider."""
_MAKER: Final = (*_PROVIDER, *[part for part in vars(ClusterMaker) if not part.startswith("_")])
"""Members of every provider that makes whole clusters."""


class Renting(Struct, frozen=True):
    """Who rents the machines of a pool, with the options of that provider."""

    provider: str
    options: Struct
    entry: str = ""
    """The cluster in spill.yaml as JSON, if whole clusters are made like it; else empty."""


class Reached(Struct, frozen=True):
    """Where agents reach the server."""

    here: str
    """HOST:PORT for agents on this machine."""
    elsewhere: str
    """HOST:PORT for agents on other machines."""
    pin: str = ""
    """SHA-256 of the certificate, hexadecimal; empty without TLS."""


class _OpenPool(Struct):
    """An open pool."""

    renting: Renting
    kind: ProviderKind
    control: PoolControl
    task: asyncio.Task[None] | None = None
    """Runs it; None until it is started."""


class OpenPools:
    """The open pools; each runs in its own supervised task."""

    def __init__(
        self,
        config: Config,
        data: Path,
        loop: Loop,
        umask: int,
        files: int | None,
        kinds: Callable[[], Kinds],
    ) -> None:
        self.kinds = kinds
        """Returns the kinds of clusters."""
        self._config = config
        self._data = data
        self._loop = loop
        self._umask = umask
        self._files = files
        self._open: dict[ClusterName, _OpenPool] = {}
        self._providers: Providers | None = None
        self.reached: Reached | None = None
        """None until agents can find the server. Then pools may run."""
        self.controls = PoolControls()

    def renting(self, cluster: ClusterName) -> Renting | None:
        """Return who rents the machines of a cluster; None if it has no open pool."""
        found = self._open.get(cluster)
        return None if found is None else found.renting

    def repin(self, pin: str) -> None:
        """Tell machines that are ordered from now on of another certificate."""
        if self.reached is not None:
            self.reached = replace(self.reached, pin=pin)

    def look_for_providers(self) -> None:
        """Find providers that were installed while the server runs."""
        self._providers = None

    def _kind(self, name: str) -> ProviderKind:
        """Return a provider; raise CannotOpen."""
        if self._providers is None:
            self._providers = load_providers()
        if name not in self._providers:
            raise CannotOpen(self._providers.why_not(name))
        return self._providers[name]

    def open(self, cluster: ClusterName, renting: Renting, owner: str, identity: str) -> None:
        """Open a pool without running it; raise CannotOpen."""
        kind = self._kind(renting.provider)
        provider = self._provider(cluster, kind, renting, owner)
        made = None
        if renting.entry:
            folder = self._data / "pools" / cluster / "clusters"
            made = ClusterKeeper(cluster, folder, renting.entry, self.kinds)
        control = PoolControl(
            self._loop,
            cluster,
            provider,
            owner,
            terms=lambda: self._terms(cluster, kind),
            identity=identity,
            made=made,
        )
        self._open[cluster] = _OpenPool(renting, kind, control)
        self.controls.add(control)

    def _provider(self, cluster: ClusterName, kind: ProviderKind, renting: Renting, owner: str) -> Provider:
        """Open a provider; turn any error into CannotOpen, as it may be of a package."""
        config = self._config
        opening = ProviderOpening(
            cluster,
            owner,
            self._data / "pools" / cluster,
            os.environ,
            Path.home(),
            self._umask,
            self._files,
            (
                *("--isolation", config.isolation, "--output-limit", str(config.output_limit)),
                *("--server-file", str(self._data.absolute() / "server.json")),
            ),
        )
        try:
            opening.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            provider = kind.open(renting.options, opening)
            parts = _MAKER if kind.makes_clusters(renting.options) else _PROVIDER
            lacking = [f"`{part}`" for part in parts if not hasattr(provider, part)]
        except CannotOpen:
            raise
        except Exception as error:
            raise CannotOpen(f"the provider {renting.provider} failed to open: {reason_of(error)}") from error
        if lacking:
            raise CannotOpen(
                f"provider {renting.provider}: it lacks {', '.join(lacking)}; see spillover.ports.provider.Provider"
            )
        return provider

    def _terms(self, cluster: ClusterName, kind: ProviderKind) -> JoinTerms | None:
        """Return what new machines are told; None if the server cannot be found or the pool is not configured."""
        spec = self._loop.state.clusters.get(cluster)
        if self.reached is None or spec is None or spec.pool is None:
            return None
        server = self.reached.here if kind.local else self.reached.elsewhere
        return JoinTerms(server, self.reached.pin, spec.pool.alone_for, kind.notices)

    async def check(
        self, clusters: Iterable[ClusterName], offers: dict[ClusterName, tuple[Offer, ...]]
    ) -> list[str]:
        """Return why offers of open pools cannot be rented, one line each."""
        pools = [(each, self._open[each].control.provider) for each in clusters if each in self._open]
        found = await asyncio.gather(*[problems_of(each, offers.get(name, ())) for name, each in pools])
        return [
            f"cluster {name}: {line}" for (name, _), lines in zip(pools, found, strict=True) for line in lines
        ]

    async def try_out(
        self, cluster: ClusterName, renting: Renting, owner: str, offers: tuple[Offer, ...]
    ) -> list[str]:
        """Return why a pool that is not open cannot be used, one line each."""
        try:
            kind = self._kind(renting.provider)
            lines = list(kind.missing(renting.options, os.environ, Path.home()))
            if lines:
                return lines
            provider = self._provider(cluster, kind, renting, owner)
        except CannotOpen as error:
            return [str(error)]
        except Exception as error:  # noqa: BLE001 - a provider of a package may raise anything
            return [f"the provider {renting.provider} failed to check its options: {reason_of(error)}"]
        try:
            return await problems_of(provider, offers)
        finally:
            await provider.close()

    def start(self) -> None:
        """Run open pools that do not run yet, if agents can find the server."""
        if self.reached is None:
            return
        for cluster, each in self._open.items():
            if each.task is None:
                if not each.kind.local and not each.renting.entry and is_loopback(self.reached.elsewhere):
                    log.warning(
                        "machines of a pool cannot reach this server from elsewhere; set `grpc` or `agents.address`",
                        pool=cluster,
                        address=self.reached.elsewhere,
                    )
                work = each.control.work
                each.task = asyncio.create_task(
                    surviving(work, each.control.run, self._loop.aside), name=work
                )

    async def close(self, cluster: ClusterName) -> None:
        """Close a pool. Its machines stay."""
        each = self._open.pop(cluster, None)
        if each is None:
            return
        self.controls.remove(cluster)
        each.control.retire()
        await _end(each)
        await each.control.provider.close()

    async def reopen(self, cluster: ClusterName, renting: Renting | None, owner: str, identity: str) -> None:
        """Open or replace a pool, or close it; raise CannotOpen, and then change nothing."""
        before = self._open.get(cluster)
        if (None if before is None else before.renting) == renting:
            return
        if renting is None:
            await self.close(cluster)
            return
        try:
            self.open(cluster, renting, owner, identity)
        except CannotOpen:
            if before is not None:
                self._open[cluster] = before
            raise
        if before is not None:
            before.control.retire()
            await _end(before)
            await before.control.provider.close()

    async def stop(self, *, machines_too: bool) -> None:
        """Stop running all pools; with `machines_too`, end the machines that are on this machine."""
        await asyncio.gather(*map(_end, self._open.values()))
        if machines_too:
            here = [each.control for each in self._open.values() if each.kind.local and each.task is not None]
            try:
                async with asyncio.timeout(LONGEST_END):
                    await asyncio.gather(*[each.end_all("the server was stopped") for each in here])
            except TimeoutError:
                log.warning("some rented machines on this machine did not end in time")

    async def end(self) -> None:
        """Close all pools. Their machines stay."""
        await asyncio.gather(*[self.close(each) for each in list(self._open)])


async def problems_of(provider: Provider, offers: tuple[Offer, ...]) -> list[str]:
    """Return why a provider cannot rent offers, one line each."""
    try:
        async with asyncio.timeout(LONGEST_CHECK):
            return list(await provider.check(offers))
    except TimeoutError:
        return [f"its provider did not answer within {LONGEST_CHECK:.0f} s"]
    except Exception as error:  # noqa: BLE001 - a provider of a package may raise anything
        return [f"its provider cannot be checked: {reason_of(error)}"]


def reached_at(config: Config, grpc: Address, here: str, names: Iterable[str], pin: str) -> Reached:
    """Return where agents reach a server that listens on an address; `names` are those of its certificate."""
    if config.address is not None:
        host, port = config.address
    elif grpc.is_any:
        away = [each for each in names if not each.startswith("*") and not is_loopback(str(Address(each, 0)))]
        host, port = (away or [socket.getfqdn()])[0], 0
    else:
        host, port = grpc.host, 0
    return Reached(here, str(Address(host, port or grpc.port)), pin)


async def _end(each: _OpenPool) -> None:
    """Cancel the task that runs a pool."""
    if each.task is not None:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)
