"""Keeps up with all objects of a kind: lists them, then watches from there on, for as long as it is told to.

A watch that ends goes on where it was; one that is too old for that begins with a list again. What cannot be had is tried again,
ever more rarely and not at the same time as everybody else. Nothing is asked for regularly: a watch says when something changes.
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

from spillover.clusters.kubernetes.api import Api, ApiRefused, Trouble, Unanswered, pause
from spillover.clusters.kubernetes.decoding import Decoding, T
from spillover.clusters.kubernetes.objects import UNREADABLE, Complaint, said, version_of

log = structlog.get_logger()

D = TypeVar("D")

PAGE: Final = 1000
"""Objects that are asked for at a time."""
LASTS: Final = (240, 480)
"""Seconds after which the server is to end a watch, at the least and at the most: ends are spread out."""
SILENCE: Final = 150.0
"""Seconds after which a watch over which nothing comes is begun anew; servers say something every minute."""
LIVED: Final = 5.0
"""Seconds after which a watch counts as one that works."""
GONE: Final = 410
MAY_GO_ON: Final = frozenset((401, 403, 429))
"""Refusals that are about who asks and how often, not about where a watch is to go on from."""
_ERROR: Final = b'{"type":"ERROR"'
_COMPLAINTS: Final = msgspec.json.Decoder(Complaint)


class Sink(Struct, Generic[T], frozen=True):
    """Who wants to know."""

    listed: Callable[[Sequence[T], int], None]
    """These were all of them at a version."""
    put: Callable[[T], None]
    """One is there, or is not as it was."""
    drop: Callable[[T], None]
    """One is gone; this is how it was."""


class Reflector(Generic[T]):
    """All objects of one kind."""

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
        """Tries in a row that failed."""
        self.error = ""
        self._api = api
        self._path = path
        self._sink = sink
        self._changed = changed
        self._params = params or {}
        self._version: str | None = None
        """Up to where everything is known; None if a list is needed."""
        self._tries = 0
        """Like `failures`, but a watch must have worked for a while to count as one that did not fail."""
        self._watching: asyncio.Timeout | None = None
        self._decoding = Decoding(kind)

    async def run(self) -> None:
        """Keep up until cancelled."""
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
                log.exception("cannot take in what is seen of a cluster; will list it anew", path=self._path)
                self._version = None
                self._failed(f"{self._path} cannot be taken in: {error}")
            finally:
                self._watching = None
            if time.monotonic() - began >= LIVED and not self.failures:
                self._tries = 0
                continue
            await asyncio.sleep(pause(self._tries))
            self._tries += 1

    def begin_anew(self) -> None:
        """Over what is being watched nothing will come any more, as the server does not answer: ask it again."""
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(0.0)

    async def _list(self) -> None:
        """Everything as it is now: of the present, not of what a server happens to remember."""
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
            await asyncio.sleep(0)  # thousands of objects keep nobody else waiting for longer than a page
        self._version = page.metadata.resource_version
        self._sink.listed(items, version_of(page.metadata))
        self._works(listed=True)

    async def _watch(self) -> None:
        """What changes, until the server ends it."""
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
        """One line of a watch."""
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
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it costs this object alone
            self._decoding.odd(meta.name, repr(error))
        self._version = meta.resource_version or self._version

    def _decoded(self, decode: Callable[[bytes], D], data: bytes) -> D:
        try:
            return decode(data)
        except UNREADABLE as error:
            self._version = None
            raise Unanswered(f"{self._path} holds what cannot be read: {error}") from None

    def _works(self, *, listed: bool = False) -> None:
        """What is known is up to date."""
        self.failures, self.error = 0, ""
        self.listed = self.listed or listed
        self._changed()

    def _lose(self, trouble: Trouble) -> None:
        """What was asked for was not had: what was too long ago to go on from, or is refused for another reason, is listed anew."""
        expired = isinstance(trouble, ApiRefused) and trouble.code == GONE and self._version is not None
        if isinstance(trouble, ApiRefused) and trouble.code not in MAY_GO_ON:
            self._version = None
        if not expired:
            self._failed(str(trouble))

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.error = said(why)
        self._changed()
