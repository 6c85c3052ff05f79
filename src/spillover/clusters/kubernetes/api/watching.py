"""Follows all objects of one kind: lists them, then watches for changes.

A watch that ends continues where it was; if the server no longer has that version, the reflector lists again. After a
failure it tries again with growing, randomized pauses. It never polls.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from spillover.clusters.kubernetes.api.decoding import Decoding, T
from spillover.clusters.kubernetes.api.objects import UNREADABLE, Complaint, said, version_of
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, Unanswered, pause

log = structlog.get_logger()

D = TypeVar("D")

PAGE: Final = 1000
"""Objects in one page of a list."""
LASTS: Final = (240, 480)
"""Least and most seconds after which the server ends a watch; random, so that not all end together."""
SILENCE: Final = 150.0
"""Seconds of silence after which to restart a watch; servers send bookmarks every minute."""
LIVED: Final = 5.0
"""Seconds after which a watch counts as working."""
GONE: Final = 410
MAY_GO_ON: Final = frozenset((401, 403, 429))
"""Refusals because of credentials or request rates; the watch can continue from its version."""
_ERROR: Final = b'{"type":"ERROR"'
_COMPLAINTS: Final = msgspec.json.Decoder(Complaint)


class Sink(Struct, Generic[T], frozen=True):
    """The receiver of the objects."""

    listed: Callable[[Sequence[T], int], None]
    """All objects at a version."""
    put: Callable[[T], None]
    """An added or changed object."""
    drop: Callable[[T], None]
    """A removed object, in its last state."""


class Reflector(Generic[T]):
    """Follows all objects of one kind."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[T],
        sink: Sink[T],
        changed: Callable[[], None],
        params: dict[str, str] | None = None,
    ) -> None:
        self.listed = False
        self.failures = 0
        """Failed tries in a row."""
        self.error = ""
        self._api = api
        self._path = path
        self._sink = sink
        self._changed = changed
        self._params = params or {}
        self._version: str | None = None
        """Version up to which everything is known; None if a list is needed."""
        self._tries = 0
        """Tries since a watch last worked for LIVED seconds; determines the pause."""
        self._watching: asyncio.Timeout | None = None
        self._decoding = Decoding(kind)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            began = time.monotonic()
            try:
                if self._version is None:
                    await self._list()
                async with asyncio.timeout(None) as self._watching:
                    await self._watch()
            except TimeoutError:
                self._failed("the API server does not answer")
            except Trouble as trouble:
                self._lose(trouble)
            except Exception as error:
                log.exception("cannot process a cluster's update; will list it again", path=self._path)
                self._version = None
                self._failed(f"{self._path} cannot be processed: {error}")
            finally:
                self._watching = None
            if time.monotonic() - began >= LIVED and not self.failures:
                self._tries = 0
                continue
            await asyncio.sleep(pause(self._tries))
            self._tries += 1

    def restart(self) -> None:
        """Restart the current watch, because the server no longer answers on its connection."""
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(0.0)

    async def _list(self) -> None:
        """List all objects, in their current state rather than from a server's cache."""
        items: list[T] = []
        params = {**self._params, "limit": str(PAGE)}
        while True:
            page = self._decoded(
                self._decoding.page, await self._api.ask("GET", self._path, params, once=True)
            )
            items += page.items
            if not page.metadata.more:
                break
            params["continue"] = page.metadata.more
            await asyncio.sleep(0)  # let other work run between pages
        self._version = page.metadata.resource_version
        self._sink.listed(items, version_of(page.metadata))
        self._works(listed=True)

    async def _watch(self) -> None:
        """Process changes until the server ends the watch."""
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(random.randint(*LASTS)),  # noqa: S311 - no secret
        }
        async with aclosing(self._api.lines(self._path, params, SILENCE)) as batches:
            async for lines in batches:
                for line in lines:
                    self._take(line)
                self._works()

    def _take(self, line: bytes) -> None:
        """Process one line of a watch."""
        if line.startswith(_ERROR):
            raise ApiRefused(self._decoded(_COMPLAINTS.decode, line).object)
        if not line:
            return
        change = self._decoded(self._decoding.change, line)
        if change is None:
            return
        meta = change.object.metadata
        try:
            if change.type == "DELETED":
                self._sink.drop(change.object)
            elif change.type != "BOOKMARK":
                self._sink.put(change.object)
        except Exception as error:  # noqa: BLE001 - a failure must affect this object only
            self._decoding.odd(meta.name, repr(error))
        self._version = meta.resource_version or self._version

    def _decoded(self, decode: Callable[[bytes], D], data: bytes) -> D:
        try:
            return decode(data)
        except UNREADABLE as error:
            self._version = None
            raise Unanswered(f"{self._path} holds an unreadable object: {error}") from None

    def _works(self, *, listed: bool = False) -> None:
        """Record success, and announce it."""
        self.failures, self.error = 0, ""
        self.listed = self.listed or listed
        self._changed()

    def _lose(self, trouble: Trouble) -> None:
        """Record a failure; list again if the server refused to continue from our version."""
        expired = isinstance(trouble, ApiRefused) and trouble.code == GONE and self._version is not None
        if isinstance(trouble, ApiRefused) and trouble.code not in MAY_GO_ON:
            self._version = None
        if not expired:
            self._failed(str(trouble))

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.error = said(why)
        self._changed()
