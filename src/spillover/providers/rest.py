"""Requests to the REST API of a cloud. Errors tell whether a request may have had an effect.

There is no second try in here: the caller knows whether a repeated request makes a second machine.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import httpx
import msgspec
from msgspec import Struct

from spillover.model.bounds import plain
from spillover.ports.provider import ProviderError

T = TypeVar("T")

CONNECT: Final = 10.0
"""Seconds to establish a connection."""
ANSWER: Final = 60.0
"""Seconds of silence after which an answer counts as lost."""
LANES: Final = 4
"""Machines that are deleted at a time."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise, whatever the bytes are."""
Headers = Callable[[], Awaitable[Mapping[str, str]]]


class Trouble(Exception):
    """There is no answer; the message says in one line why."""


class Unsent(Trouble):
    """The request was certainly not sent."""


class NoCredentials(Unsent):
    """There are no credentials to send with it; the message says where they are looked for."""


class Unanswered(Trouble):
    """The request may have had an effect."""


class Answer(Struct, frozen=True):
    """An answer of any status."""

    status: int
    content: bytes
    after: float = 0.0
    """Seconds that the server asks to wait; 0 if it does not say."""

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300

    def read(self, form: type[T]) -> T:
        """Decode the content; raise Unanswered if it is not of this form, as from a proxy."""
        try:
            return msgspec.json.decode(self.content, type=form)
        except UNREADABLE as error:
            raise Unanswered(one_line(f"the answer (status {self.status}) cannot be read: {error}")) from None


class Rest:
    """One API, by its URL."""

    def __init__(self, url: str, headers: Headers, patience: float = ANSWER) -> None:
        self.url = url.rstrip("/")
        self._headers = headers
        """Called for each request; may raise Unsent."""
        self._patience = httpx.Timeout(patience, connect=min(patience, CONNECT))
        self._client: httpx.AsyncClient | None = None

    async def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Answer:
        """Send one request and return its answer; raise Unsent or Unanswered."""
        headers = {"Accept": "application/json", "User-Agent": "spillover", **await self._headers()}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        try:
            if self._client is None:
                self._client = httpx.AsyncClient(timeout=self._patience, verify=self.url.startswith("https:"))
            answer = await self._client.request(
                method, self.url + path, params=params, content=content, headers=headers
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            raise Unsent(one_line(f"cannot connect to {self.url}: {said(error)}")) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ssl.SSLError, ValueError) as error:
            raise Unsent(one_line(f"cannot use {self.url}: {said(error)}")) from None
        except httpx.TimeoutException:
            raise Unanswered(f"{self.url} does not answer in time") from None
        except httpx.HTTPError as error:
            raise Unanswered(one_line(f"the connection to {self.url} broke: {said(error)}")) from None
        return Answer(answer.status_code, answer.content, _after(answer.headers.get("Retry-After", "")))

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


async def destroyed(ids: Sequence[str], delete: Callable[[str], Awaitable[str]]) -> Mapping[str, str]:
    """Delete machines, some at a time; return why some were not. Raise ProviderError if no request was sent."""
    lanes = asyncio.Semaphore(LANES)

    async def one(machine: str) -> tuple[str, bool]:
        async with lanes:
            try:
                return await delete(machine), True
            except Unsent as error:
                return str(error), False
            except Trouble as error:
                return str(error), True

    answers = await asyncio.gather(*(one(each) for each in ids))
    if answers and not any(sent for _, sent in answers):
        raise ProviderError(answers[0][0])
    return {machine: why for machine, (why, _) in zip(ids, answers, strict=True) if why}


def one_line(text: str) -> str:
    """Return a text from outside as one bounded line that is safe to show."""
    return plain(" ".join(text.split())).rstrip()


def said(error: BaseException) -> str:
    """Return what an error says, or its name."""
    return str(error) or type(error).__name__


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return some names for a message."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _after(text: str) -> float:
    """Return the seconds of a Retry-After header; 0 if it has none or names a date."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0
