"""What both faces of the client are: a server, how to speak to it, and what is known of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spillover.client import transport
from spillover.client.asks import Ask
from spillover.client.flows import Attempts
from spillover.client.place import find


class Face:
    """A client without the sending."""

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
        """Blobs that the server has, and when that was known."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._place.url

    @property
    def user(self) -> str:
        """Who asks."""
        return self._place.user

    def _attempts(self) -> Attempts:
        """As many as there is patience for."""
        return Attempts(self._patience, time.monotonic)

    @contextmanager
    def _failures(self, ask: Ask[Any]) -> Iterator[None]:
        """While a request is sent and answered: what fails of httpx is told as what it means."""
        import httpx  # noqa: PLC0415 - heavy, and not every import of the client sends something

        try:
            yield
        except httpx.TransportError as error:
            raise transport.failure(ask, self._place, error) from None
        except KeyboardInterrupt:
            # It may come while a lock of the connections is held, which nobody releases then: the next request has new ones.
            self.__dict__.pop("_http", None)
            raise
