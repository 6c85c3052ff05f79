"""The common base of both clients: the server's address and credentials, and retries."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from spillover.client import transport
from spillover.client.asks import Ask
from spillover.client.flows import Attempts
from spillover.client.place import find

F = TypeVar("F", bound="Face")
W = TypeVar("W")


class Face:
    """A client without the code that sends requests."""

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        data: str | Path | None = None,
        user: str | None = None,
        patience: float = 0.0,
        ca: str | Path | None = None,
        token_file: str | Path | None = None,
    ) -> None:
        self._place = find(server, token, data, user, ca, token_file)
        self._patience = patience
        self._kept: dict[str, float] = {}
        """Blobs that the server has, and when the client learned that."""

    @property
    def url(self) -> str:
        """URL of the server."""
        return self._place.url

    @property
    def ca(self) -> str | None:
        """File with the CA to trust; None for those of the system."""
        return None if self._place.ca is None else str(self._place.ca.absolute())

    @property
    def user(self) -> str:
        """User name sent to the server."""
        return self._place.user

    def _attempts(self) -> Attempts:
        """Return the retries that `patience` allows."""
        return Attempts(self._patience, time.monotonic)

    @contextmanager
    def _failures(self, ask: Ask[Any]) -> Iterator[None]:
        """Translate httpx errors of a request to errors of the client."""
        import httpx  # noqa: PLC0415 - slow to import, and only needed for requests

        try:
            yield
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
        except KeyboardInterrupt:
            # It may interrupt code that holds a lock of the connection pool, which then stays locked: use a new pool.
            self.__dict__.pop("_http", None)
            raise


def beside(kind: type[F], other: Face) -> F:
    """Return a client of a kind for the same server as another."""
    client = kind.__new__(kind)
    client.__dict__.update(_place=other._place, _patience=other._patience, _kept={})  # noqa: SLF001 - it is made here
    return client


class Behind(Generic[W]):
    """What handles of calls need of their client, beside its methods."""

    def __init__(
        self,
        face: Face,
        run: Callable[..., Any],
        attempts: Callable[[], Attempts],
        watching: Callable[["Behind[W]"], W],
    ) -> None:
        self.face = face
        self.run = run
        """Runs an operation; that of asyncio is awaited."""
        self.attempts = attempts
        """Returns new retries."""
        self._make_watching = watching

    @cached_property
    def watching(self) -> W:
        """What waits for many calls at once, made on first use."""
        return self._make_watching(self)
