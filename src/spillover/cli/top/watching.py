"""Polls the server in a thread, so that keys work while a request is under way."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spillover.cli.top.view import Away, Look

if TYPE_CHECKING:
    from spillover.client import Client


class Watcher:
    """The latest answer of a server, refreshed by a thread."""

    def __init__(
        self, connect: "Callable[[], Client]", interval: float, wake: Callable[[], None], rows: int
    ) -> None:
        self._connect = connect
        self._interval = interval
        self._wake = wake
        """Called when there is something new to draw."""
        self._client: Client | None = connect()
        self._rows = rows
        """Rows to request of each list."""
        self._again = threading.Event()
        """Set to ask at once, or to end."""
        self._ending = False
        self.look = self._ask(self._client)
        """The latest answer; replaced as a whole."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def want(self, rows: int) -> None:
        """Request this many rows from now on; ask at once if that is more than before."""
        more, self._rows = rows > self._rows, rows
        if more:
            self._again.set()

    def stop(self) -> None:
        """Stop polling; do not wait for a request that is under way."""
        self._ending = True
        self._again.set()
        if self._thread.is_alive():
            self._thread.join(timeout=0.2)

    def _run(self) -> None:
        """Poll until stopped; reconnect after each failure, because a server may return at another address."""
        from spillover.client import SpillError  # noqa: PLC0415 - heavy

        since: float | None = None
        while True:
            self._again.wait(self._interval)
            self._again.clear()
            if self._ending:
                break
            try:
                if self._client is None:
                    self._client = self._connect()
                self.look, since = self._ask(self._client), None
            except SpillError as error:
                since = time.monotonic() if since is None else since
                self._close()
                self.look = self.look._replace(away=Away(time.monotonic() - since, _short(error)))
            self._wake()
        self._close()

    def _ask(self, client: "Client") -> Look:
        rows = self._rows
        return Look(client.url, client.overview(running=rows, queued=rows, agents=rows), rows)

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _short(error: Exception) -> str:
    """Return the cause of an error without its advice, which the watcher follows already."""
    return str(error).partition("\n")[0].partition(";")[0]
