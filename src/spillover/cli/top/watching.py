"""Asks the server again and again, beside whoever looks: keys are answered while an answer is awaited."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spillover.cli.top.view import Away, Look

if TYPE_CHECKING:
    from spillover.client import Client


class Watcher:
    """The last answer of a server, kept fresh by a thread."""

    def __init__(
        self, connect: "Callable[[], Client]", interval: float, wake: Callable[[], None], rows: int
    ) -> None:
        self._connect = connect
        self._interval = interval
        self._wake = wake
        """Called when there is something new to draw."""
        self._client: Client | None = connect()
        self._rows = rows
        """How many rows of each list are wanted."""
        self._again = threading.Event()
        """Set to ask at once, or to end."""
        self._ending = False
        self.look = self._ask(self._client)
        """What is known; replaced as a whole."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Go on asking."""
        self._thread.start()

    def want(self, rows: int) -> None:
        """Ask for so many rows from now on; at once if that is more than before."""
        more, self._rows = rows > self._rows, rows
        if more:
            self._again.set()

    def stop(self) -> None:
        """Ask no more; a request that is under way is not waited for."""
        self._ending = True
        self._again.set()
        if self._thread.is_alive():
            self._thread.join(timeout=0.2)

    def _run(self) -> None:
        """Ask until told to stop; a server that is away is looked for anew each time, as it may come back elsewhere."""
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
    """What is wrong, without what to do about it: that is being done."""
    return str(error).partition("\n")[0].partition(";")[0]
