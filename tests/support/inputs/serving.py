"""Runs a real server in this process on its own data, and checks what must hold after any input."""

import asyncio
import contextlib
import io
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self, TypeAlias
from unittest.mock import patch

import aiohttp
import grpc
from msgspec.structs import replace

from spillover.config.config import Config
from spillover.config.read import read_config
from spillover.control.controllers import archiving, files, keeping, leases
from spillover.control.live.clock import SystemClock
from spillover.control.live.leader import Leader
from spillover.control.live.replaying import replay
from spillover.deciding.protocols import Policies
from spillover.model.ids import JobId
from spillover.model.policy import PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load_surely
from spillover.ports.clock import Clock
from spillover.server import server as building
from spillover.server.files import read_whereabouts, token_of
from spillover.server.server import Server
from spillover.stores.open import open_journal, open_store
from tests.support.http import listen
from tests.support.inputs.canary import Canary

QUIET: Final = "quiet"
"""The cluster of the well-behaved agent."""
NOISY: Final = "noisy"
"""The cluster of the others, which is rented."""
CONFIG: Final = f"""
apiVersion: spillover/v1
kind: Config
http: 127.0.0.1:0
grpc: 127.0.0.1:0
budgets:
- {{project: default, limit: 1000000, per: month}}
limits: {{too_large: wait}}
clusters:
- {{name: {QUIET}, kind: agents, role: owned}}
- {{name: {NOISY}, kind: agents, role: rented, price: {{cpu_hour: 0.5, gpu_hour: 2}}}}
"""
"""A story may append clusters; DATA stands for the data folder."""
HURRY: Final[tuple[tuple[ModuleType, str, float], ...]] = (
    (archiving, "LINGER", 0.01),
    (files, "FIRST", 0.05),
    (files, "SWEEP", 0.2),
    (keeping, "EVERY", 0.05),
    (keeping, "OLDEST", 0),
    (keeping, "SWEEP", SECOND // 5),
    (leases, "EVERY", 0.05),
)
"""Short intervals for periodic controllers, so that their failures show before the story ends."""
PATIENCE: Final = 30.0
"""Seconds to wait for anything: far more than needed, so that only what never happens is late."""
ENDS: Final = 1.0
"""Seconds that a failed server needs to end."""
PAGES: Final = (
    "/v1/health",
    "/v1/server",
    "/v1/jobs?limit=50",
    "/v1/clusters",
    "/v1/agents",
    "/v1/overview",
    "/v1/costs",
    "/v1/budgets",
    "/v1/policy",
    "/v1/policy/history",
    "/v1/tokens",
    "/v1/events",
    "/v1/past",
    "/metrics",
)
"""Pages that must work in any state."""
FAST: Final = Path("/dev/shm")
"""Memory for the data, if available, because these stories do not test the disk."""


Load: TypeAlias = Callable[[PolicySet], Policies]
"""Loads the chosen policies."""


class Broken(AssertionError):
    """Input had more effect than allowed; the message says what is wrong with the server."""


class LiveServer:
    """A server that can be killed and restarted on the same data."""

    def __init__(self, config: str = CONFIG, clock: Clock | None = None, load: Load = load_surely) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="spill-inputs-", dir=FAST if FAST.is_dir() else None))
        self.config: Config = replace(
            read_config(config.replace("DATA", str(self.data))), data=str(self.data)
        )
        self.clock = clock or SystemClock()
        self._load = load
        self.url = ""
        self.grpc = ""
        self.token = ""
        self.jobs: list[str] = []
        """Jobs of the badly behaved agents, to check as well."""
        self._hurry = contextlib.ExitStack()
        self._stack = contextlib.AsyncExitStack()
        self._server: Server | None = None
        self._running: asyncio.Task[bool] | None = None
        self._stop = asyncio.Event()
        self._canaries = 0

    async def __aenter__(self) -> Self:
        for module, name, value in HURRY:
            self._hurry.enter_context(patch.object(module, name, value))
        self._hurry.enter_context(patch.object(building, "load_surely", self._load))
        try:
            await self.start()
        except BaseException:
            self._hurry.close()
            shutil.rmtree(self.data, ignore_errors=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.kill()
        finally:
            self._hurry.close()
            shutil.rmtree(self.data, ignore_errors=True)

    # --- lifecycle

    async def start(self) -> None:
        """Take the lead and serve; raise what prevents it."""
        http = self._stack.enter_context(contextlib.closing(listen()))
        store = await open_store(self.config.store, self.data)
        self._stack.push_async_callback(store.close)
        leader = Leader(store.election, self.clock, "a server under test")
        if await leader.take("http://test", standby=False) is not None:
            raise Broken("the data are held by a server that is gone")
        self._stack.push_async_callback(leader.resign)
        server = self._server = Server(self.config, self.data, store, self.clock)
        self._stop = asyncio.Event()
        with contextlib.redirect_stdout(io.StringIO()):  # hides its ready line
            self._running = asyncio.create_task(server.run(leader, http, self._stop), name="server")
            starting = self._running
            await self._until(lambda: starting.done() or self._is_served(leader.epoch), "the server starts")
            if starting.done():
                starting.result()
        where = read_whereabouts(self.data)
        if where is None:
            raise Broken("the server does not give its address")
        self.url, self.grpc, self.token = where.http, where.grpc, token_of(self.data)

    def _is_served(self, epoch: int) -> bool:
        where = read_whereabouts(self.data)
        return where is not None and where.epoch == epoch

    async def stop(self) -> None:
        """Stop the server in order."""
        self._stop.set()
        running, self._running = self._running, None
        if running is not None:
            async with asyncio.timeout(PATIENCE):
                await running
        await self._stack.aclose()

    async def kill(self) -> None:
        """Kill the server without a last checkpoint; ignore earlier errors."""
        running, self._running = self._running, None
        if running is not None and self._server is not None:
            self._server.loop.problem = "killed"  # skips the orderly shutdown
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await self._stack.aclose()

    # --- checks

    def alive(self) -> None:
        """Raise Broken with the cause if the server ended by itself."""
        running = self._running
        if running is not None and running.done() and not running.cancelled():
            error = running.exception()
            raise Broken(f"the server ended by itself: {error!r}") from error

    async def check(self) -> None:
        """Check that the server answers, and that a job of another user runs to its end."""
        try:
            await self._check()
        except (aiohttp.ClientError, grpc.aio.AioRpcError, TimeoutError) as error:
            await asyncio.sleep(ENDS)  # it may be about to end
            self.alive()
            raise Broken(f"the server does not answer: {error!r}") from error

    async def _check(self) -> None:
        self.alive()
        async with self.session() as session:
            for page in (*PAGES, *(f"/v1/jobs/{job}{part}" for job in self.jobs for part in ("", "/why"))):
                await self._page(session, page)
            async with asyncio.timeout(PATIENCE):
                while (told := await self._ready(session)) is not None:
                    self.alive()
                    await asyncio.sleep(0.05)
            if told is not None:
                raise Broken(f"the server is not ready: {told}")
        await self.canary()

    async def canary(self) -> None:
        """Check that a job on a well-behaved agent succeeds."""
        self._canaries += 1
        async with (
            Canary(self.grpc, self.token, QUIET, f"canary-{self._canaries}") as agent,
            self.session() as session,
        ):
            document = {
                "apiVersion": "spillover/v1",
                "kind": "Job",
                "metadata": {"project": "canaries"},
                "spec": {"run": "true", "where": {"cluster": [QUIET]}, "priority": 1000},
            }
            async with session.post(f"{self.url}/v1/jobs", json=document) as reply:
                said = await reply.json()
                if reply.status != 201:
                    raise Broken(f"a plain job is answered {reply.status}: {said}")
            job = said["jobs"][0]
            waiting = f"{self.url}/v1/jobs/{job}/wait?timeout={PATIENCE:g}"
            async with session.get(waiting) as reply:
                said = await reply.json()
            self.alive()
            if said.get("state") != "SUCCEEDED":
                raise Broken(f"a job of somebody else does not end: {said}; its agent: {agent.trouble}")
        await self._until(lambda: self._is_archived(job), "what ended is archived")

    def _is_archived(self, job: str) -> bool:
        return self._server is not None and JobId(job) not in self._server.loop.state.jobs

    async def restarted(self, *, killed: bool = True) -> None:
        """Restart the server on the same data."""
        self.alive()
        await (self.kill() if killed else self.stop())
        await self.start()

    async def replays(self) -> None:
        """Raise Broken unless each plan in the journal follows from the events before it."""
        journal = await open_journal(self.config.store, self.data)
        try:
            replayed = await replay(journal, self._load)
        finally:
            await journal.close()
        if replayed.difference is not None:
            raise Broken(f"the journal does not replay: {replayed.difference}")

    async def holds(self) -> None:
        """Run all checks, also after a restart of a killed and of a stopped server."""
        await self.check()
        await self.restarted()
        await self.check()
        await self.restarted(killed=False)
        await self.canary()
        await self.replays()

    # --- requests

    @asynccontextmanager
    async def session(self, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """Open an HTTP session, by default with the token of the data folder."""
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self.token if token is None else token}"}
        limit = aiohttp.ClientTimeout(total=2 * PATIENCE)
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as session:
            yield session

    async def _page(self, session: aiohttp.ClientSession, page: str) -> None:
        async with session.get(f"{self.url}{page}") as reply:
            body = await reply.read()
            if reply.status >= 500:
                await asyncio.sleep(ENDS)
                self.alive()
                raise Broken(f"{page} is answered {reply.status}: {body[:500]!r}")

    async def _ready(self, session: aiohttp.ClientSession) -> Any:
        async with session.get(f"{self.url}/v1/ready") as reply:
            return None if reply.status == 200 else await reply.text()

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for a condition, or for the end of the server."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    await asyncio.sleep(0.002)
                    if not holds():
                        self.alive()
        except TimeoutError:
            raise Broken(f"{what}: not within {PATIENCE:g} s") from None
