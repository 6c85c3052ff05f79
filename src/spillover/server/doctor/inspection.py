"""Reads what checks need, each part once and on demand; one check reports a part that cannot be read."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from spillover import __version__
from spillover.client import Client, SpillError
from spillover.config.config import Config
from spillover.control.live.loading import Progress, load
from spillover.control.live.replaying import Replayed, replay
from spillover.core.events import AgentDraining, AgentResumed, AnyEvent
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.job import JobSpec
from spillover.policies.loading import load_surely
from spillover.ports.journal import Damaged, Journal, Moved, StoreError
from spillover.server.files import Whereabouts, read_whereabouts
from spillover.stores.open import open_journal, version_of
from spillover.stores.rows import SCHEMA_VERSION
from spillover.stores.upgrade import refuse_newer
from spillover.wire.api import Overview, PoolView, ServerView
from spillover.wire.journal import decode_event, decode_spec

T = TypeVar("T")

TRIES: Final = 3
"""Tries to read a journal that a server compacts meanwhile."""
_PAGE: Final = 1_000
"""Specs to read at once."""
_OFTEN: Final = 1_000
"""Events between two progress messages."""


class Restarted(Struct, frozen=True):
    """The state that a server would start with."""

    state: State
    revision: int
    """Revision of the last event; 0 if there is none."""
    at: int
    """Time of the last event, nanoseconds UTC; 0 if there is none."""
    after_checkpoint: int
    """Events after the checkpoint."""


class Unfit(Exception):
    """No server could start with these data; the message says why."""


class Inspection:
    """A data folder with its configuration, a server, or both."""

    def __init__(
        self,
        *,
        data: Path | None,
        config: Config | None,
        connect: Callable[[], Client],
        quick: bool = False,
        clock: Callable[[], int] = time.time_ns,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.data = data
        """None for a server on another machine."""
        self.config = config
        """None if the configuration is unknown."""
        self.quick = quick
        """Whether to skip checks whose time grows with the history."""
        self.clock = clock
        """Returns nanoseconds UTC on this machine."""
        self.tell = tell
        """Called with progress messages."""
        self._connect = connect

    @property
    def folder(self) -> Path:
        """The data folder; raises LookupError if there is none."""
        if self.data is None:
            raise LookupError("no data folder was given")
        return self.data

    # --- the store

    @property
    def store(self) -> str:
        """The store as in spill.yaml; `memory` if there is nothing to check."""
        if self.data is None:
            return "memory"
        return "sqlite" if self.config is None else self.config.store

    @property
    def version(self) -> int:
        """Version of the data; raises StoreError if it cannot be read, or only by a newer Spillover."""
        if isinstance(self._version, StoreError):
            raise self._version
        return self._version

    @cached_property
    def _version(self) -> int | StoreError:
        try:
            found = asyncio.run(version_of(self.store, self.folder))
            refuse_newer(found, self.folder)
        except StoreError as error:
            return error
        return found

    @property
    def current(self) -> bool:
        """Whether the data can be read; if not, the store check says why."""
        try:
            return self.store != "memory" and self.version == SCHEMA_VERSION
        except StoreError:
            return False

    @property
    def restarted(self) -> Restarted:
        """The state that a server would start with; raises StoreError or Unfit."""
        if isinstance(self._restarted, StoreError | Unfit):
            raise self._restarted
        return self._restarted

    @cached_property
    def _restarted(self) -> Restarted | StoreError | Unfit:
        try:
            return self._of_journal(self._restart)
        except (StoreError, Unfit) as error:
            return error

    @property
    def state(self) -> State | None:
        """The durable state; None if it cannot be read, which the checkpoint check reports."""
        try:
            return self.restarted.state if self.current else None
        except (StoreError, Unfit):
            return None

    @cached_property
    def replayed(self) -> Replayed:
        """Result of a replay of the journal."""

        def see(_: AnyEvent, revision: int, last: int) -> None:
            if revision % _OFTEN == 0:
                self.tell(f"replaying the journal: event {revision:,} of {last:,}")

        return self._of_journal(lambda journal: replay(journal, load_surely, see))

    @cached_property
    def drainings(self) -> dict[str, int]:
        """When drained agents were drained, nanoseconds UTC, by CLUSTER/NAME, as far as the journal goes back."""

        async def read(journal: Journal) -> dict[str, int]:
            found: dict[str, int] = {}
            async for stored in journal.tail(0):
                event = decode_event(stored.event)
                if isinstance(event, AgentDraining) and event.who:
                    found.setdefault(f"{event.cluster}/{event.node}", event.at)
                elif isinstance(event, AgentResumed):
                    found.pop(f"{event.cluster}/{event.node}", None)
            return found

        return self._of_journal(read)

    def specs(self, digests: list[bytes]) -> dict[bytes, JobSpec | None]:
        """Return existing specs by digest; None for one that cannot be read."""

        async def read(journal: Journal) -> dict[bytes, JobSpec | None]:
            found: dict[bytes, JobSpec | None] = {}
            for start in range(0, len(digests), _PAGE):
                self.tell(f"reading specs: {start:,} of {len(digests):,}")
                for digest, body in (await journal.blobs(digests[start : start + _PAGE])).items():
                    found[digest] = _spec(body)
            return found

        return self._of_journal(read)

    async def _restart(self, journal: Journal) -> Restarted:
        checkpoint = (await journal.load()).checkpoint
        try:
            brought = await load(
                journal, lambda state: Engine(state, load_surely, whole=False), Progress(self.tell)
            )
        except Damaged as error:
            raise Unfit(f"{error.what} cannot be read: {' '.join(error.why.split())[:200]}") from error
        return Restarted(brought.engine.state, brought.revision, brought.at, brought.revision - checkpoint)

    def _of_journal(self, ask: Callable[[Journal], Awaitable[T]]) -> T:
        """Return what `ask` reads from the journal; retry if a server compacts it meanwhile."""

        async def asking(where: str, data: Path) -> T:
            journal = await open_journal(where, data)
            try:
                for _ in range(TRIES - 1):
                    try:
                        return await ask(journal)
                    except Moved:
                        pass
                return await ask(journal)
            finally:
                await journal.close()

        return asyncio.run(asking(self.store, self.folder))

    # --- the server

    @cached_property
    def whereabouts(self) -> Whereabouts | None:
        """Address of the current or last server of the data folder; None if unknown."""
        return None if self.data is None else read_whereabouts(self.data)

    @cached_property
    def client(self) -> Client:
        """Client for the server; raises SpillError if its address is unknown."""
        return self._connect()

    @cached_property
    def _answer(self) -> ServerView | SpillError:
        """The server's answer, or why there is none."""
        try:
            return self.client.server()
        except SpillError as error:
            return error

    @property
    def server(self) -> ServerView | None:
        """The running server; None if none answers."""
        return None if isinstance(self._answer, SpillError) else self._answer

    @property
    def silence(self) -> str:
        """Why no server answers; empty if one does."""
        return str(self._answer) if isinstance(self._answer, SpillError) else ""

    @property
    def url(self) -> str:
        """URL of the running server."""
        return self.client.url

    @cached_property
    def overview(self) -> Overview | None:
        """Time and clusters as the server sees them; None if no server answers."""
        if self.server is None:
            return None
        return self.client.overview(running=0, queued=0, agents=0)

    @cached_property
    def pools(self) -> list[PoolView]:
        """The pools of the server; empty if no server answers, or if it is of a release without pools."""
        if self.server is None or self.server.version != __version__:
            return []
        return self.client.pools()

    def close(self) -> None:
        """Close connections."""
        if "client" in self.__dict__:
            self.client.close()


def _spec(body: bytes) -> JobSpec | None:
    try:
        return decode_spec(body)
    except msgspec.MsgspecError:
        return None
