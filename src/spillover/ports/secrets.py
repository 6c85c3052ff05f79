"""Encrypted values of secrets, beside the journal. The state says which secrets there are, and which version counts.

A value is stored before the event that makes it count, and versions that do not count any more are deleted afterwards.
So the store may have versions that do not count, and never lacks one that does.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class StoredSecret(Struct, frozen=True):
    """One version of a secret, without its value."""

    project: str
    name: str
    version: int
    key: str
    """Names the key that it is encrypted with."""


class SealedSecret(Struct, frozen=True):
    """One version of a secret with its encrypted value."""

    stored: StoredSecret
    body: bytes


class Secrets(Protocol):
    """Stores encrypted values by project, name and version."""

    async def put(self, sealed: SealedSecret, epoch: int) -> None:
        """Add a version, or replace it."""
        ...

    async def get(self, project: str, name: str, version: int) -> SealedSecret | None:
        """Return a version; None if there is none."""
        ...

    async def list(self) -> list[StoredSecret]:
        """Return all versions, by project, name and version."""
        ...

    async def forget(self, versions: Sequence[StoredSecret], epoch: int) -> None:
        """Delete versions, whatever their key is."""
        ...
