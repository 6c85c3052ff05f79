"""Assembles a server from stores, loop, clusters and APIs, and runs it until it is stopped or loses the lead."""

import asyncio
import contextlib
import os
import shlex
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from spillover.api.grpc.agents import AgentsService, serve_agents
from spillover.api.grpc.clusters import ClustersService
from spillover.api.grpc.jobs import JobsService
from spillover.api.http.app import App, build_app
from spillover.api.http.door import Door
from spillover.api.http.serving import HttpBounds, serving
from spillover.api.http.signing_in import link_of
from spillover.client.place import account
from spillover.clusters.agents.hub import Hub
from spillover.config.config import Address, Config, OnShutdown
from spillover.control.agents.earlier import EarlierValues
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.lease_terms import least_lost_after
from spillover.control.agents.requests import AgentRequests
from spillover.control.agents.taken import TakenFiles
from spillover.control.agents.tickets import Tickets
from spillover.control.controllers.archiving import Archiving
from spillover.control.controllers.auditing import Auditing
from spillover.control.controllers.budgets import BudgetWatch
from spillover.control.controllers.delivering import Delivering
from spillover.control.controllers.files import FileKeeping
from spillover.control.controllers.indexing import Indexing
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.controllers.leases import Leases
from spillover.control.controllers.notifying import Notifying
from spillover.control.controllers.removed import RemovedClusters
from spillover.control.controllers.replacing import Replacing
from spillover.control.controllers.sampling import Sampling
from spillover.control.controllers.sources import Sources
from spillover.control.controllers.stealing import Stealing
from spillover.control.controllers.tracing import Tracing
from spillover.control.driving.drivers import Drivers
from spillover.control.live.clock import SystemClock
from spillover.control.live.leader import Leader
from spillover.control.live.loop import RETRY, Loop
from spillover.control.live.set_aside import surviving
from spillover.control.live.specs import Specs
from spillover.control.notifications.settings import Settings
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.files import JobFiles
from spillover.control.requests.limits import Gauge, Rate
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.rights import AccessRules
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.submitting import Submitting
from spillover.control.requests.tokens import Tokens
from spillover.control.secrets.delivery import SecretDelivery
from spillover.control.secrets.vault import Vault
from spillover.control.views.history import dropped_member
from spillover.core.proposals import QueueBounds, Refusal, StartEpoch
from spillover.model.ids import ClusterName
from spillover.model.units import SECOND
from spillover.policies.loading import load_surely
from spillover.ports.callers import ADMIN
from spillover.ports.clock import Clock
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import StoreError, Unwritable
from spillover.ports.kinds import CannotOpen
from spillover.server.administration import ServerAdministration
from spillover.server.clusters import ClusterParts, OpenClusters, Unusable, cluster_settings, identity_for
from spillover.server.files import Whereabouts, forget_whereabouts, token_of, write_whereabouts
from spillover.server.frontier import Frontier
from spillover.server.lives import ClusterLives
from spillover.server.metrics import Metrics
from spillover.server.oidc import OpenIdProvider
from spillover.server.pools import Reached, reached_at
from spillover.server.secret_keys import key_file_of
from spillover.server.senders.channels import Channels
from spillover.server.telemetry import telemetry_of
from spillover.server.tls import CertificateRenewal, Identity
from spillover.stores.blobs import FileBlobs, MemoryBlobs
from spillover.stores.counted import CountedBlobs
from spillover.stores.store import Store
from spillover.wire.api import AgentsAddress
from spillover.wire.clusterfile import LocalAgentsDoc

log = structlog.get_logger()

Taken = TypeVar("Taken")

GAP: Final = 10 * SECOND
"""Nanoseconds; a longer time without a server does not count as waiting."""


class Server:
    """One server process."""

    def __init__(
        self,
        config: Config,
        data: Path,
        store: Store,
        clock: Clock | None = None,
        *,
        umask: int = -1,
        files: int | None = None,
        identity: Identity | None = None,
        reload: Callable[[], Config] | None = None,
    ) -> None:
        self._config = config
        self._data = data
        self._store = store
        self._clock = clock or SystemClock()
        self._identity = identity
        debug = bool(os.environ.get("SPILL_CHECK"))
        self.loop = Loop(
            store.journal,
            load_surely,
            self._clock,
            debug=debug,
            slow_after=config.slow_after,
            bounds=config.clock,
        )
        self._tokens = Tokens(token_of(data), self.loop)
        self._access = AccessRules(config.access)
        self.sign_ins = SignIns(self._tokens, self.loop, self._access, OpenIdProvider)
        self._hub = Hub(config.max_outputs, config.max_state)
        self._blobs = self._open_blobs()
        self._specs = Specs(store.journal)
        self._vault = Vault(self.loop, store.secrets, key_file_of(config.secrets_key, data))
        self._delivery = SecretDelivery(self.loop, self._specs, self._vault)
        self._telemetry = telemetry_of(config.telemetry, os.environ)
        self._tracing = None
        self._exporter = exporter = self._telemetry.exporter()
        if exporter is not None:
            self._tracing = Tracing(self.loop, self._telemetry.tracer, exporter)
        tickets = Tickets()
        self._agent_requests = AgentRequests(
            self.loop,
            self._hub,
            config.retention.logs,
            config.heartbeat,
            tickets,
            keep_output=config.keep_output,
            prepare_within=config.prepare_within,
            graph_of=self._graph_of,
        )
        kept = config.retention.jobs
        self._sources = Sources(self.loop, store.archive, self._specs, self._blobs, kept)
        self._files = FileKeeping(self.loop, self._specs, self._blobs, kept, self._sources)
        self._archiving = Archiving(self.loop, store.archive, self._files.keep)
        earlier = EarlierValues(self.loop, store.archive, self._blobs)
        taken = TakenFiles(self.loop, store.archive, self._blobs, config.max_inputs)
        self._lease_sender = LeaseSender(
            self.loop, self._hub, self._specs, tickets, earlier, taken, self._telemetry.tracer
        )
        self._gauge = _gauge_of(config, self._clock)
        drivers = Drivers()
        self._clusters = OpenClusters(
            ClusterParts(config, data, self.loop, self._lease_sender, self._blobs, drivers, umask, files)
        )
        self._settings = Settings(config.notifications, config.currency)
        self._delivering = Delivering(self.loop, store.outbox, self._settings, Channels(self._settings))
        self._metrics = Metrics(
            self.loop,
            self._gauge,
            self._blobs,
            self._clusters.pools.controls,
            None if exporter is None else exporter.counts,
            self._delivering,
        )
        self._lives = ClusterLives(self.loop, self._clusters, cluster_settings(config))
        self.administration = ServerAdministration(
            config, self.loop, self._clusters, self._lives, reload, self._access, self._settings
        )
        self._sampling = Sampling(self.loop, None if config.store == "memory" else data / "series.bin")
        self._frontier = Frontier(self.loop, data, keep=config.store != "memory")
        self.commands = self._commands(drivers)

    def _graph_of(self, cluster: ClusterName) -> str | None:
        """Return the file with the resource graph of a cluster; None if it has none."""
        form = self._clusters.form(cluster)
        return form.graph if isinstance(form, LocalAgentsDoc) else None

    def _open_blobs(self) -> CountedBlobs:
        """Open the store for files of jobs."""
        config = self._config
        if config.store == "memory":
            return CountedBlobs(MemoryBlobs(config.blobs))
        # Blobs expire by the time of the last step: the wall clock may be wrong, and threads read it.
        return CountedBlobs(FileBlobs(self._data / "blobs", config.blobs, lambda: self.loop.engine.now))

    def _commands(self, drivers: Drivers) -> LiveCommands:
        """Build the commands that both APIs call."""
        config, store = self._config, self._store
        files = JobFiles(self._blobs, config.max_inputs, config.max_outputs)
        lookup = Lookup(self.loop, store.archive, dropped=partial(dropped_member, self.loop, store.journal))
        submitting = Submitting(
            self.loop,
            store.archive,
            lookup,
            self._specs,
            lost_after=config.lost_after,
            least_lost_after=least_lost_after(config.heartbeat),
            files=files,
            gauge=self._gauge,
            refuse_too_large=config.limits.too_large == "refuse",
            secrets=self._delivery,
        )
        return LiveCommands(
            Parts(
                self.loop,
                store.journal,
                store.archive,
                self._hub,
                self._specs,
                lookup,
                submitting,
                config.currency,
                files=files,
                tokens=self._tokens,
                gauge=self._gauge,
                drivers=drivers,
                clusters=self.administration,
                pools=self._clusters.pools.controls,
                access=self._access,
                audit=store.audit,
                vault=self._vault,
                outbox=store.outbox,
                settings=self._settings,
                delivering=self._delivering,
                sign_ins=self.sign_ins,
                sampling=self._sampling,
                frontier=self._frontier,
                exporter=self._exporter,
            )
        )

    async def run(self, leader: Leader, http: socket.socket, stop: asyncio.Event) -> bool:
        """Lead and serve until stopped; return False if the lead was lost instead."""
        # Renew from the moment the lead is taken: loading many jobs takes longer than a term.
        keeping = asyncio.create_task(leader.keep(self.loop), name="leader")
        leading = asyncio.create_task(self._lead(leader.epoch, http, restored=leader.restored), name="server")
        ends = [asyncio.create_task(each.wait()) for each in (stop, self.loop.lost_lead)]
        try:
            await asyncio.wait({keeping, leading, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*ends, leading):
                each.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        if self.loop.lost_lead.is_set():
            return False
        for task in (leading, keeping):
            if not task.cancelled():
                task.result()
        return True

    async def _lead(self, epoch: int, http: socket.socket, *, restored: bool) -> None:
        """Load the state and serve until cancelled; raise the error of any part that ends."""
        door = Door(lambda: str(self.loop.loading or self.loop.problem or "starting"))
        async with contextlib.AsyncExitStack() as stack:
            listening = await stack.enter_async_context(
                serving(door, http, self._files_of_tls(), self._bounds())
            )
            last = await self.loop.load()
            await self._open_clusters()
            self.loop.begin(epoch, last)
            if self._tracing is not None:
                self._tracing.begin()
            service = AgentsService(
                self._agent_requests,
                self._hub,
                self._tokens,
                lambda: self.loop.epoch,
                self._blobs,
                self._lease_sender.starts,
                self._authority,
                self._delivery.values,
            )
            people = [
                each(self.commands.of, self._tokens, self._gauge) for each in (JobsService, ClustersService)
            ]
            renewal = (
                CertificateRenewal(self._identity, self.loop.now) if self._identity is not None else None
            )
            pair = renewal.pair if renewal is not None else None
            grpc_server, grpc_port = await serve_agents(service, str(self._config.grpc), pair, people)
            tasks: list[asyncio.Task[None]] = []
            try:
                await self._begin(epoch, last, tasks, restored=restored)
                await self._vault.begin()
                self._start(tasks)
                app = self._app(self._address(grpc_port))
                if renewal is not None:
                    renewal.on_change(partial(_show, listening.config.ssl, app))
                    renewing = surviving("certificates", renewal.run, self.loop.aside)
                    tasks.append(asyncio.create_task(renewing, name="certificates"))
                url = self.url(http)
                grpc = str(Address(self._called(self._config.grpc), grpc_port))
                ca = self._identity.ca if self._identity is not None else None
                where = Whereabouts(url, grpc, epoch, os.getpid(), str(ca) if ca is not None else None)
                write_whereabouts(self._data, where)
                self._clusters.start_agents(self._reached(grpc_port, grpc, renewal))
                door.open(app)
                print(f"ready {url}", flush=True)  # noqa: T201 - the starting process waits for it
                if sys.stderr.isatty():  # somebody looks on
                    print(self._invitation(url), file=sys.stderr, flush=True)  # noqa: T201 - not for logs
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                await stack.aclose()  # first, as nothing is left to answer requests
                await self._frontier.end()
                await self._end(tasks, grpc_server)

    def _start(self, tasks: list[asyncio.Task[None]]) -> None:
        """Start all controllers."""
        kept = self._config.retention
        keeping = Keeping(
            self.loop,
            self._store.journal,
            self._store.archive,
            self._store.audit,
            Retention(kept.jobs, kept.events, kept.audit),
            self._sources,
            self._store.outbox,
        )
        notifying = Notifying(
            self.loop,
            self._store.journal,
            self._store.archive,
            self._store.outbox,
            self._specs,
            self._settings,
            self._delivering.look,
        )
        controllers = {
            "runner": self._lease_sender.run,
            "archiving": self._archiving.run,
            "keeping": keeping.run,
            "indexing": Indexing(self.loop, self._store.journal).run,
            "auditing": Auditing(self.loop, self._store.journal, self._store.archive, self._store.audit).run,
            "notifying": notifying.run,
            "delivering": self._delivering.run,
            "budgets": BudgetWatch(self.loop).run,
            "files": self._files.run,
            "leases": Leases(self.loop, self._hub, self._agent_requests, self._config.forget_after).run,
            "removed clusters": RemovedClusters(self.loop).run,
            "clusters": self._lives.run,
            "pauses": self._metrics.pauses.run,
            "sampling": self._sampling.run,
        }
        controllers["replacing"] = Replacing(self.loop).run
        if self._tracing is not None:
            controllers["tracing"] = self._tracing.run
        if self._config.stealing:
            controllers["stealing"] = Stealing(self.loop, self._specs).run
        tasks.extend(
            asyncio.create_task(surviving(name, run, self.loop.aside), name=name)
            for name, run in controllers.items()
        )
        self._clusters.watch()

    async def _open_clusters(self) -> None:
        """Open all configured clusters; raise Unusable if a new one cannot be used."""
        state, clusters = self.loop.state, self._clusters
        clusters.identity = identity_for(state)
        try:
            await self._open_configured()
        except BaseException:
            await clusters.end()
            raise

    async def _open_configured(self) -> None:
        """Open the configured clusters; raise Unusable."""
        state, clusters = self.loop.state, self._clusters
        for spec in self._config.clusters:
            try:
                clusters.open(spec.name, spec.kind, cluster_settings(self._config)[spec.name])
            except CannotOpen as error:
                raise Unusable(f"cluster {spec.name}: {error}") from None
        # A cluster that was used before may be unreachable for a while; start without it.
        self._tell_of_orphans()
        wrong = await clusters.check(each for each in clusters if each not in state.conditions)
        offers = {each.name: each.pool.offers for each in self._config.clusters if each.pool is not None}
        wrong += await clusters.pools.check([each for each in offers if each not in state.pools], offers)
        if wrong:
            raise Unusable("\n".join(wrong))

    def _tell_of_orphans(self) -> None:
        """Log rented machines that nobody can end, because their pool is not configured any more."""
        left = Counter(
            [
                each.cluster
                for each in self.loop.state.machines.values()
                if each.is_live and self._clusters.pools.renting(each.cluster) is None
                if each.cluster not in self.loop.state.lives or not self.loop.state.lives[each.cluster].form
            ]
        )
        for cluster, count in left.items():
            log.error(
                "rented machines cost money, and their pool is not configured any more; "
                "configure it again, and end them with `spill pools pause CLUSTER --end`",
                pool=cluster,
                machines=count,
            )

    async def show(self, http: socket.socket, why: str, take: Callable[[], Awaitable[Taken]]) -> Taken:
        """Serve read-only while the store cannot be written; return what `take` does once it can. Closes the socket."""
        log.error("cannot write; serving read-only", error=why)
        with contextlib.closing(http):
            self.loop.keep_time(await self.loop.load())
            self.loop.problem = why
            async with serving(self._app(None), http, self._files_of_tls(), self._bounds()):
                print(f"read-only {self.url(http)}", flush=True)  # noqa: T201 - see `ready` above
                while True:
                    await asyncio.sleep(RETRY)
                    try:
                        return await take()
                    except Unwritable as error:
                        self.loop.problem = str(error)

    def _app(self, address: AgentsAddress | None) -> App:
        """Return the HTTP application."""
        hosts = self._config.hosts + (self._identity.hosts() if self._identity is not None else ())
        return build_app(
            self.commands,
            self._tokens,
            self._metrics.figures,
            hosts,
            blobs=self._blobs,
            address=address,
            gauge=self._gauge,
        )

    def _invitation(self, url: str) -> str:
        """Return a line with a link that signs its reader in."""
        code, _ = self.sign_ins.link(ADMIN, account())
        usual = self._data.resolve() == Path("spill-data").resolve()
        again = "spill open" if usual else f"spill open --data {shlex.quote(str(self._data))}"
        return f"web page: {link_of(url, code)} (works once, within a minute; `{again}` makes another)"

    def _bounds(self) -> HttpBounds:
        """Return the limits of HTTP connections."""
        limits = self._config.limits
        return HttpBounds(limits.head_time / SECOND, limits.connections, self._gauge.crowded)

    def _files_of_tls(self) -> tuple[Path, Path] | None:
        """Return certificate and key; None without TLS."""
        return (self._identity.cert, self._identity.key) if self._identity is not None else None

    def _reached(self, port: int, here: str, renewal: CertificateRenewal | None) -> Reached:
        """Return where agents reach the server; machines that are rented later are told of a new certificate."""
        identity = None if renewal is None else renewal.identity
        names = () if identity is None else identity.names
        pin = "" if identity is None else identity.pin()
        found = reached_at(self._config, self._config.grpc.at(port), here, names, pin)
        if renewal is not None:
            renewal.on_change(lambda new: self._clusters.pools.repin(new.pin()))
        return found

    def _authority(self) -> bytes:
        """Return the authority of the server's certificate as PEM; empty if it has none of its own."""
        return b"" if self._identity is None else self._identity.authority()

    def _called(self, address: Address) -> str:
        """Return the host under which programs on this machine reach an address."""
        return address.host if self._identity is None else self._identity.called(address)

    def _address(self, grpc_port: int) -> AgentsAddress:
        """Return the address of the agents' service; its host is None if it is the host of the HTTP API."""
        http, grpc = self._config.http, self._config.grpc
        same = grpc.is_any or grpc.host == http.host or (grpc.is_loopback and http.is_loopback)
        return AgentsAddress(None if same else self._called(grpc), grpc_port)

    def url(self, http: socket.socket) -> str:
        """Return the URL of the HTTP API."""
        scheme = "http" if self._identity is None else "https"
        return f"{scheme}://{Address(self._called(self._config.http), http.getsockname()[1])}"

    async def _begin(self, epoch: int, last: int, tasks: list[asyncio.Task[None]], *, restored: bool) -> None:
        """Start the epoch in the journal, and take over work of an earlier server; raise the error if the loop ends."""
        looping = asyncio.create_task(self.loop.run(), name="loop")
        tasks.append(looping)
        gap = self.loop.now() - last if last else 0
        config = self._config
        proposal = StartEpoch(
            epoch,
            config.clusters,
            config.policies,
            gap if gap > GAP else 0,
            config.budgets,
            config.ahead,
            self._clusters.identity if self._clusters.has_drivers else "",
            config.queues,
            restored,
        )
        while True:
            taking = asyncio.create_task(self.loop.propose(proposal))
            await asyncio.wait({taking, looping}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
                looping.result()
            try:
                (reply,) = await taking
                break
            except CommandError:
                if self.loop.held is None:
                    raise
                await asyncio.sleep(RETRY)  # until it is known which server leads
        if isinstance(reply, Refusal):
            raise CommandError(ErrorKind.INTERNAL, f"cannot become the leader: {reply.message}")
        self._archiving.begin()

    async def _end(self, tasks: list[asyncio.Task[None]], grpc_server: object) -> None:
        """Stop agents first, then their service, then the loop, so that last results are still accepted."""
        for task in tasks:
            if task.get_name() == "leases":
                task.cancel()
        lost = self.loop.lost_lead.is_set()
        stop = not lost and self._config.on_shutdown is OnShutdown.STOP
        await self._clusters.stop_agents(tasks_too=stop)
        with contextlib.suppress(StoreError, CommandError, TimeoutError):
            if not lost and self.loop.problem is None:
                async with asyncio.timeout(1.0):
                    await self.loop.checkpoints.write()
        await grpc_server.stop(0.2)  # type: ignore[attr-defined]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._clusters.end()
        forget_whereabouts(self._data)


def _show(context: ssl.SSLContext | None, app: App, identity: Identity) -> None:
    """Use a new certificate for HTTP, and accept requests for its host names."""
    if context is not None:
        identity.load_into(context)
    app.answer_to(identity.hosts())


def _gauge_of(config: Config, clock: Clock) -> Gauge:
    """Return the gauge that limits requests as configured."""
    limits = config.limits
    rate = None if limits.submissions is None else Rate(limits.submissions.rate, limits.submissions.burst)
    return Gauge(clock, QueueBounds(limits.queued, limits.queued_per_project), rate, limits.body)
