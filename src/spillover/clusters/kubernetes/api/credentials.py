"""Provides the credentials for a cluster: reads files again, and runs credential programs again before they expire."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api.kubeconfig import Access, Program, User

LASTS: Final = 60.0
"""Seconds after which a credential file is read again."""
EARLY: Final = 30.0
"""Seconds before a credential expires to ask for a new one."""
PATIENCE: Final = 60.0
"""Seconds for a credential program to answer."""


class NoCredential(Exception):
    """No credential could be obtained; the message says why."""


class Credential(Struct, frozen=True):
    """A credential to send; all None for an anonymous request."""

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class _Status(Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Said(Struct, frozen=True):
    """The answer of a credential program."""

    status: _Status


class Credentials:
    """The credentials for one cluster."""

    def __init__(
        self,
        access: Access,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        self._access = access
        self._monotonic = monotonic
        self._utc = utc
        self._now: Credential | None = None
        self._until = 0.0
        """When to renew, in seconds on the monotonic clock."""
        self._asking = asyncio.Lock()

    async def current(self) -> Credential:
        """Return the current credential; raise NoCredential."""
        if self._now is None or self._monotonic() >= self._until:
            async with self._asking:
                if self._now is None or self._monotonic() >= self._until:
                    shown, until = await self._renew(self._access.user)
                    if shown.token is not None and not (shown.token.isascii() and shown.token.isprintable()):
                        raise NoCredential(f"the token of {self._access.origin} has invalid characters")
                    self._now, self._until = shown, until
        return self._now

    def refused(self, shown: Credential) -> None:
        """Renew a credential that the server rejected before its time."""
        if self._now is shown:
            self._until = 0.0

    async def _renew(self, user: User) -> tuple[Credential, float]:
        if user.program is not None:
            return await self._run(user.program)
        token = user.token if isinstance(user.token, str) else _text(user.token)
        shown = Credential(token, _content(user.certificate), _content(user.key))
        if not any(isinstance(each, Path) for each in (user.token, user.certificate, user.key)):
            return shown, float("inf")
        # Return the same object if nothing changed, so that connections stay usable.
        same = self._now if self._now is not None and self._now == shown else shown
        return same, self._monotonic() + LASTS

    async def _run(self, program: Program) -> tuple[Credential, float]:
        """Get a credential from a program."""
        status = await _ask(program, self._access)
        key, certificate = status.client_key_data, status.client_certificate_data
        if status.token is None and certificate is None:
            raise NoCredential(f"{program.command} printed neither a token nor a certificate")
        until = float("inf")
        if status.expiration_timestamp is not None:
            left = status.expiration_timestamp.timestamp() - self._utc() - EARLY
            until = self._monotonic() + max(1.0, left)
        shown = Credential(
            status.token, certificate.encode() if certificate else None, key.encode() if key else None
        )
        return shown, until


async def _ask(program: Program, access: Access) -> _Status:
    """Run a credential program and return its answer."""
    spec: dict[str, object] = {"interactive": False}
    if program.provide_cluster_info:
        spec["cluster"] = {"server": access.server, "insecure-skip-tls-verify": access.unchecked}
    info = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    env = {each.name: each.value for each in program.env or ()}
    env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    hint = f"; {program.install_hint.strip()}" if program.install_hint else ""
    try:
        process = await asyncio.create_subprocess_exec(
            program.command,
            *(program.args or ()),
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise NoCredential(f"cannot run {program.command}: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(PATIENCE):
            said, complaint = await process.communicate()
    except TimeoutError:
        raise NoCredential(f"{program.command} does not answer within {PATIENCE:.0f}s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        words = complaint.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise NoCredential(f"{program.command} ended with {process.returncode}: {words}{hint}")
    try:
        return msgspec.json.decode(said, type=_Said).status
    except msgspec.DecodeError as error:
        raise NoCredential(f"{program.command} printed no valid credentials: {error}") from None


def _text(path: Path | None) -> str | None:
    content = _content(path)
    return content.decode(errors="replace").strip() if content is not None else None


def _content(what: bytes | Path | None) -> bytes | None:
    if not isinstance(what, Path):
        return what
    try:
        return what.read_bytes()
    except OSError as error:
        raise NoCredential(f"cannot read {what}: {error.strerror}") from None
