"""What both faces of the client are: a server, how to speak to it, and what is known of it."""

import time
from pathlib import Path

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
