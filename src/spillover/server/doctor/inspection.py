"""What there is to look at. Each part is read when the first check asks for it, and once; what cannot be read is told by one check."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from spillover.client import Client, SpillError
from spillover.config.config import Config
from spillover.control.loading import Progress, load
from spillover.control.replaying import Replayed, replay
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
from spillover.wire.api import Overview, ServerView
from spillover.wire.journal import decode_event, decode_spec

T = TypeVar("T")

TRIES: Final = 3
"""Looks at a journal that a server shortens meanwhile."""
_PAGE: Final = 1_000
"""Specs that are read at once."""
_OFTEN: Final = 1_000
"""Events between two words on how far the journal was read."""


class Restarted(Struct, frozen=True):
    """What a server would start with."""

    state: State
    revision: int
    """Of the last event; 0 if there is none."""
    at: int
    """When the last event was written, nanoseconds UTC; 0 if there is none."""
    after_checkpoint: int
    """Events that came after the checkpoint."""


class Unfit(Exception):
    """Data that no server could start with; the message says what is wrong with them."""


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
        """None for a server elsewhere."""
        self.config = config
        """None if nobody said how the server is configured."""
        self.quick = quick
        """Whether what takes as long as there is history is left out."""
        self.clock = clock
        """Nanoseconds UTC, on this machine."""
        self.tell = tell
        """Called with what is being done, again and again while it takes long."""
        self._connect = connect

    @property
    def folder(self) -> Path:
        """The data folder, where there is one."""
        if self.data is None:
            raise LookupError("no data folder was named")
        return self.data

    # --- the store

    @property
    def store(self) -> str:
        """Where the data are, as spill.yaml says it; `memory` if there is nothing to look at."""
        if self.data is None:
            return "memory"
        return "sqlite" if self.config is None else self.config.store

    @property
    def version(self) -> int:
        """Of the data; raises StoreError if they cannot be read, or only by a newer Spillover."""
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
        """Whether the data can be looked into; if not, the check of the store says why."""
        try:
            return self.store != "memory" and self.version == SCHEMA_VERSION
        except StoreError:
            return False

    @property
    def restarted(self) -> Restarted:
        """What a server would start with; raises StoreError or Unfit."""
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
        """The book, as far as it is durable; None if it cannot be read, which the check of the checkpoint tells."""
        try:
            return self.restarted.state if self.current else None
        except (StoreError, Unfit):
            return None

    @cached_property
    def replayed(self) -> Replayed:
        """What replaying the journal came to."""

        def see(_: AnyEvent, revision: int, last: int) -> None:
            if revision % _OFTEN == 0:
                self.tell(f"replaying the journal: event {revision:,} of {last:,}")

        return self._of_journal(lambda journal: replay(journal, load_surely, see))

    @cached_property
    def drainings(self) -> dict[str, int]:
        """When people drained agents that nobody resumed, nanoseconds UTC, by CLUSTER/NAME, as far back as the journal goes."""

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
        """Specs by digest, None for those that cannot be read; those that are not there are left out."""

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
        """What the journal says; a server may write it, and forget the oldest of it, meanwhile."""

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
        """Where the server of the data folder is, or was; None if nobody says."""
        return None if self.data is None else read_whereabouts(self.data)

    @cached_property
    def client(self) -> Client:
        """To ask the server with, where `server` is not None; raises SpillError if nobody says where it is."""
        return self._connect()

    @cached_property
    def _answer(self) -> ServerView | SpillError:
        """What the server says of itself, or why it says nothing."""
        try:
            return self.client.server()
        except SpillError as error:
            return error

    @property
    def server(self) -> ServerView | None:
        """The server that runs; None if none answers."""
        return None if isinstance(self._answer, SpillError) else self._answer

    @property
    def silence(self) -> str:
        """Why no server answers; empty if one does."""
        return str(self._answer) if isinstance(self._answer, SpillError) else ""

    @property
    def url(self) -> str:
        """Where the server is that runs."""
        return self.client.url

    @cached_property
    def overview(self) -> Overview | None:
        """The time and the clusters, as the server sees them; None if none answers."""
        if self.server is None:
            return None
        return self.client.overview(running=0, queued=0, agents=0)

    def close(self) -> None:
        """Let go of connections."""
        if "client" in self.__dict__:
            self.client.close()


def _spec(body: bytes) -> JobSpec | None:
    try:
        return decode_spec(body)
    except msgspec.MsgspecError:
        return None
