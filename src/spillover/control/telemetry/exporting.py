"""Sends spans to a receiver of OTLP, in batches, and tries again while it is away.

The queue is bounded: a receiver that is away for long costs spans, never memory, and nothing waits for it.
"""

import asyncio
import contextlib
import random
import ssl
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from spillover.control.telemetry import otlp
from spillover.control.telemetry.spans import Span, Value
from spillover.model.units import so_many

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()

BATCH: Final = 512
"""Most spans in one request."""
LINGER: Final = 1.0
"""Seconds to collect spans, so that one request delivers many."""
MOST_QUEUED: Final = 32_768
"""Most spans that wait for their receiver."""
PATIENCE: Final = 10.0
"""Seconds for an answer."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries, from the first to the longest."""
LAST_TRY: Final = 1.0
"""Seconds in which a server that stops delivers what is left."""
_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
"""Answers after which OTLP asks to try again."""
DELIVERED: Final = "delivered"
DROPPED: Final = "dropped"
REFUSED: Final = "refused"


class Receiver(Struct, frozen=True):
    """Where spans go."""

    url: str
    headers: dict[str, str] = {}
    ca: str | None = None
    """File with the authority of its certificate; None for those of the system."""


class _TryAgain(Exception):
    """A request failed in a way that may pass."""

    def __init__(self, told: str, pause: float = 0.0) -> None:
        super().__init__(told)
        self.pause = pause
        """Seconds that the receiver asks to wait; 0 if it does not say."""


class Exporter:
    """The spans on their way to one receiver."""

    def __init__(
        self,
        receiver: Receiver,
        resource: Mapping[str, Value],
        *,
        most: int = MOST_QUEUED,
        linger: float = LINGER,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._receiver = receiver
        self._resource = resource
        self._most = most
        self._linger = linger
        self._first_pause = first_pause
        self._queue: deque[Span] = deque()
        self._news = asyncio.Event()
        self.counts: Counter[str] = Counter({DELIVERED: 0, DROPPED: 0, REFUSED: 0})
        """Spans by what became of them."""
        self._told = ""
        """The problem that was logged last; empty while all is well."""
        self._why = ""
        """What the last request failed with; empty if it delivered."""

    @property
    def problem(self) -> str | None:
        """What keeps spans from their receiver, and how many; None while they arrive."""
        if not self._told:
            return None
        waiting, lost = len(self._queue), self.counts[DROPPED] + self.counts[REFUSED]
        return f"{self._why or self._told}; {so_many(waiting, 'span')} waiting, {lost:,} lost"

    def put(self, spans: Sequence[Span]) -> None:
        """Queue spans; drop the new ones if the queue is full, so that the traces in it stay whole."""
        room = max(0, self._most - len(self._queue))
        self._queue.extend(spans[:room])
        if len(spans) > room:
            self.counts[DROPPED] += len(spans) - room
            self._tell("spans are dropped, because too many wait for their receiver", "")
        if self._queue:
            self._news.set()

    async def run(self) -> None:
        """Deliver spans until cancelled, and then once more."""
        import httpx  # noqa: PLC0415 - slow to import, and only needed with an endpoint

        async with httpx.AsyncClient(
            verify=_trusted(self._receiver), trust_env=False, timeout=PATIENCE
        ) as client:
            try:
                pause = 0.0
                while True:
                    if pause:
                        await asyncio.sleep(pause)
                    else:
                        await self._news.wait()
                        await asyncio.sleep(self._linger)
                    pause = await self._some(client, pause)
            finally:
                with contextlib.suppress(TimeoutError, _TryAgain):
                    async with asyncio.timeout(LAST_TRY):
                        while self._queue:
                            await self._deliver(client)

    async def _some(self, client: "httpx.AsyncClient", before: float) -> float:
        """Deliver all that waits; return the seconds until the next try, or 0 if nothing is left."""
        self._news.clear()
        try:
            while self._queue:
                await self._deliver(client)
                before = 0.0
        except _TryAgain as again:
            self._tell("cannot deliver traces; will retry", str(again))
            pause = min(LONGEST_PAUSE, 2 * before or self._first_pause)
            return max(again.pause, pause * random.uniform(0.75, 1.0))  # noqa: S311 - spreads requests, no secret
        return 0.0

    async def _deliver(self, client: "httpx.AsyncClient") -> None:
        """Deliver one batch; it stays in the queue if that has to be tried again."""
        import httpx  # noqa: PLC0415 - already imported at this point

        batch = list(islice(self._queue, BATCH))
        body = otlp.request(batch, self._resource)
        headers = {"Content-Type": "application/json", **self._receiver.headers}
        try:
            answer = await client.post(self._receiver.url, content=body, headers=headers)
        except (httpx.TransportError, ssl.SSLError) as error:
            raise _TryAgain(f"{self._receiver.url}: {str(error) or type(error).__name__}") from None
        if answer.status_code in _AGAIN:
            told = f"{self._receiver.url} answers {answer.status_code}"
            raise _TryAgain(told, _seconds(answer.headers.get("retry-after", "")))
        for _ in batch:
            self._queue.popleft()
        if not answer.is_success:
            self.counts[REFUSED] += len(batch)
            self._tell(
                "the receiver of traces refuses them",
                f"{self._receiver.url} answers {answer.status_code}: {answer.text[:200]}",
            )
            return
        lost, why = otlp.rejected(answer.content)
        lost = min(len(batch), max(0, lost))
        self.counts[DELIVERED] += len(batch) - lost
        self.counts[REFUSED] += lost
        if lost:
            self._tell("the receiver of traces refuses some of them", why)
        elif self._told:
            log.info("traces are delivered again", dropped=self.counts[DROPPED])
            self._told = self._why = ""

    def _tell(self, what: str, error: str) -> None:
        """Log a problem once, until it has passed or another one comes."""
        self._why = error or self._why
        if self._told != what:
            self._told = what
            log.warning(what, error=error)


def why_unreachable(receiver: Receiver) -> str | None:
    """Ask a receiver to take no spans at all; return why it does not, or None if it does."""
    import httpx  # noqa: PLC0415 - slow to import, and only needed with an endpoint

    headers = {"Content-Type": "application/json", **receiver.headers}
    try:
        with httpx.Client(verify=_trusted(receiver), trust_env=False, timeout=PATIENCE) as client:
            answer = client.post(receiver.url, content=otlp.NOTHING, headers=headers)
    except (httpx.TransportError, OSError) as error:
        return f"{receiver.url}: {str(error) or type(error).__name__}"
    return None if answer.is_success else f"{receiver.url} answers {answer.status_code}: {answer.text[:200]}"


def _trusted(receiver: Receiver) -> ssl.SSLContext | bool:
    """Return whom to trust."""
    if not receiver.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loads no authorities, which takes a while
    return ssl.create_default_context(cafile=None if receiver.ca is None else str(Path(receiver.ca)))


def _seconds(text: str) -> float:
    """Return the pause in a header; 0 if it is not a number of seconds."""
    try:
        return min(LONGEST_PAUSE, max(0.0, float(text)))
    except ValueError:
        return 0.0
