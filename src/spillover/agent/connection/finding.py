"""Finds the server's address and the agent's credentials, again for every connection because both may change."""

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
"""Seconds between two tries to find a server: the first pause, and the longest."""


class Target(Struct, frozen=True):
    """The address of a server, and the credentials for it."""

    address: str
    """HOST:PORT of the agents' service."""
    token: str
    tls: bool = False
    ca: bytes | None = None
    """PEM of the authority to trust; None trusts those of the system."""
    shown_as: str = ""
    """A name in the server's certificate, which is trusted whatever name reaches the server; empty checks that name."""


class NotFound(Exception):
    """The agent found no server to connect to; the message says why."""

    def __init__(self, message: str, *, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow
        """Whether a person must fix something first, so that quick retries are useless."""


class ServerFinder(Protocol):
    """Finds the server."""

    async def find(self) -> Target:
        """Return the current address of the server; raise NotFound if there is none."""
        ...

    def found(self, target: Target) -> None:
        """Record that this server answered, so that the next search can try it first."""
        ...

    def exchanged(self, token: str, authority: bytes) -> None:
        """Use another token from now on, which the server gave for a join token, and its authority as PEM, if any."""
        ...


class FoundServer(Struct, frozen=True):
    """The file in which a server publishes its addresses."""

    grpc: str
    http: str = ""
    ca: str | None = None


class InFolder:
    """Finds a server whose data folder is on this machine."""

    def __init__(self, server_file: Path, token_file: Path) -> None:
        self._server_file = server_file
        self._token_file = token_file

    async def find(self) -> Target:
        """See ServerFinder."""
        try:
            token = self._token_file.read_text().strip()
        except OSError as error:
            raise NotFound(f"no server found: {error}") from None
        return published(self._server_file, token)

    def found(self, target: Target) -> None:
        """See ServerFinder. Nothing to record, because reading the file again is cheap."""

    def exchanged(self, token: str, authority: bytes) -> None:
        """See ServerFinder. Its token is no join token."""


class ByUrl:
    """Asks a server for the address of its agents' service, by its URL.

    It tries the last known address once before it asks again. Otherwise each of thousands of returning agents would
    open another connection only to ask.
    """

    def __init__(self, url: str, token_file: Path, ca_file: Path | None = None) -> None:
        self._url = url
        self._token_file = token_file
        self._ca_file = ca_file
        self._known: Target | None = None
        """The address to try next; None asks the server."""

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

    def exchanged(self, token: str, authority: bytes) -> None:
        """See ServerFinder. Its token is no join token."""

    async def cluster(self) -> str:
        """Return the cluster to join if the user named none: that of the token, or the only one."""
        address, _ = await self._ask()
        if address.cluster is None:
            named = ", ".join(address.clusters) or "the server has no cluster that agents may join"
            raise NotFound(f"choose a cluster with --cluster: {named}", slow=True)
        return address.cluster

    async def await_cluster(self, away: Callable[[str], None]) -> str:
        """Like `cluster`, but wait for the server and pass reasons to `away`; raise NotFound if a person must act."""
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
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - jitter needs no secure randomness
            delay = min(LONGEST_DELAY, 2 * delay)

    def _credentials(self) -> tuple[str, bytes | None]:
        """Read the token, and the authority to trust, from their files."""
        token = _read(self._token_file).decode(errors="replace").strip()
        if not token:
            raise NotFound(f"{self._token_file} holds no token", slow=True)
        return token, _read(self._ca_file) if self._ca_file is not None else None

    async def _ask(self) -> "tuple[AgentsAddress, Target]":
        """Ask the server for the address of its agents' service."""
        from spillover.client import AsyncClient, Refused, SpillError  # noqa: PLC0415 - heavy, and not for local agents

        token, ca = self._credentials()
        try:
            async with AsyncClient(server=self._url, token=token, ca=self._ca_file) as client:
                answer = await client.agents_address()
                url = client.url
        except SpillError as error:
            raise NotFound(str(error), slow=isinstance(error, Refused)) from None
        parts = urlsplit(url)
        host = answer.host or parts.hostname or ""
        address = f"[{host}]:{answer.port}" if ":" in host else f"{host}:{answer.port}"
        return answer, checked(Target(address, token, parts.scheme == "https", ca))


def published(server_file: Path, token: str) -> Target:
    """Return the server that published its addresses in a file; raise NotFound if there is none."""
    try:
        found = msgspec.json.decode(server_file.read_bytes(), type=FoundServer)
        ca = Path(found.ca).read_bytes() if found.ca else None
    except (OSError, msgspec.DecodeError) as error:
        raise NotFound(f"no server found: {error}") from None
    return checked(Target(found.grpc, token, found.http.startswith("https:"), ca))


def checked(target: Target) -> Target:
    """Return the target; raise NotFound if the token would cross the network in the clear."""
    if not target.tls and not is_loopback(target.address):
        raise NotFound(
            f"the server listens for agents at {target.address} without TLS, which would expose the token; "
            "give the server certificates (`spill cert init`)",
            slow=True,
        )
    return target


def _read(path: Path) -> bytes:
    """Read a small file that the command line names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", slow=True) from None
