"""Where the server is and what lets an agent in: looked up for every connection, as both may change."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spillover.model.hosts import is_loopback

if TYPE_CHECKING:
    from spillover.wire.api import AgentsAddress

FIRST_DELAY: Final = 0.05
LONGEST_DELAY: Final = 1.0
"""Seconds between two looks for a server: after the first, and at the most."""


class Target(Struct, frozen=True):
    """A server to connect to."""

    address: str
    """host:port of the agents' service."""
    token: str
    tls: bool = False
    ca: bytes | None = None
    """The authority to trust, PEM; None trusts those that are known everywhere."""


class NotFound(Exception):
    """No server can be connected to; the message says why."""

    def __init__(self, message: str, *, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow
        """Whether a person has to mend something first."""


class ServerFinder(Protocol):
    """Knows where to look."""

    async def find(self) -> Target:
        """The server as it is now; raises NotFound."""
        ...

    def found(self, target: Target) -> None:
        """The server was there, so that it can be looked for there first when the connection ends."""
        ...


class ServerFile(Struct, frozen=True):
    """What a server writes about itself."""

    grpc: str
    http: str = ""
    ca: str | None = None


class InFolder:
    """Finds the server whose data folder is on this machine."""

    def __init__(self, server_file: Path, token_file: Path) -> None:
        self._server_file = server_file
        self._token_file = token_file

    async def find(self) -> Target:
        """See ServerFinder."""
        try:
            told = msgspec.json.decode(self._server_file.read_bytes(), type=ServerFile)
            token = self._token_file.read_text().strip()
            ca = Path(told.ca).read_bytes() if told.ca else None  # noqa: ASYNC240 - a few small files
        except (OSError, msgspec.DecodeError) as error:
            raise NotFound(f"no server found: {error}") from None
        return _checked(Target(told.grpc, token, told.http.startswith("https:"), ca))

    def found(self, target: Target) -> None:
        """See ServerFinder: a file is read as fast as anything is remembered."""


class ByUrl:
    """Asks a server, anywhere, by its URL.

    Where it was is tried once before it is asked anew: thousands of agents that come back would each make another connection to ask.
    """

    def __init__(self, url: str, token_file: Path, ca_file: Path | None = None) -> None:
        self._url = url
        self._token_file = token_file
        self._ca_file = ca_file
        self._known: Target | None = None
        """Where the server was, if that is to be tried next."""

    async def find(self) -> Target:
        """See ServerFinder."""
        known, self._known = self._known, None
        if known is None:
            return (await self._ask())[1]
        token, ca = self._credentials()
        return Target(known.address, token, known.tls, ca)

    def found(self, target: Target) -> None:
        """See ServerFinder."""
        self._known = target

    async def cluster(self) -> str:
        """The cluster to join where none was named: that of the token, or the only one."""
        address, _ = await self._ask()
        if address.cluster is None:
            named = ", ".join(address.clusters) or "the server has none that agents may join"
            raise NotFound(f"name a cluster with --cluster: {named}", slow=True)
        return address.cluster

    async def await_cluster(self, away: Callable[[str], None]) -> str:
        """The same, once the server is there; what keeps us from it is told. Raises NotFound if a person has to mend something first."""
        delay, last = FIRST_DELAY, ""
        while True:
            try:
                return await self.cluster()
            except NotFound as error:
                if error.slow:
                    raise
                why = str(error)
            if why != last:
                away(why)
                last = why
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - so that agents do not come all at once
            delay = min(LONGEST_DELAY, 2 * delay)

    def _credentials(self) -> tuple[str, bytes | None]:
        """The token, and the authority to trust, as they are now."""
        token = _read(self._token_file).decode(errors="replace").strip()
        if not token:
            raise NotFound(f"{self._token_file} holds no token", slow=True)
        return token, _read(self._ca_file) if self._ca_file is not None else None

    async def _ask(self) -> "tuple[AgentsAddress, Target]":
        """What the server says."""
        from spillover.client import AsyncClient, Refused, SpillError  # noqa: PLC0415 - heavy, and not for local agents

        token, ca = self._credentials()
        try:
            async with AsyncClient(server=self._url, token=token, ca=self._ca_file) as client:
                told = await client.agents_address()
                url = client.url
        except SpillError as error:
            raise NotFound(str(error), slow=isinstance(error, Refused)) from None
        parts = urlsplit(url)
        host = told.host or parts.hostname or ""
        address = f"[{host}]:{told.port}" if ":" in host else f"{host}:{told.port}"
        return told, _checked(Target(address, token, parts.scheme == "https", ca))


def _checked(target: Target) -> Target:
    """The same, unless others could read the token on its way there."""
    if not target.tls and not is_loopback(target.address):
        raise NotFound(
            f"agents would be served at {target.address} without TLS, where others could read the token on its way; "
            "let the server have certificates (`spill cert init`)",
            slow=True,
        )
    return target


def _read(path: Path) -> bytes:
    """A small file that was named on the command line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", slow=True) from None
