"""Encrypts values of secrets with AES-256-GCM, by the package `cryptography`.

A value is bound to its project, name and version: the ciphertext of one secret is not valid as that of another.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from spillover.ports.secrets import SealedSecret, StoredSecret

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_ID_BYTES: Final = 4
"""Bytes of the digest of a key that name it: enough to find it, and nothing that helps to guess it."""


class KeyProblem(Exception):
    """The key cannot be used; the message says why and what to do, in one line."""


class SecretKey(Struct, frozen=True):
    """A key, and the name under which stored values know it."""

    id: str
    key: bytes

    def __repr__(self) -> str:
        return f"SecretKey({self.id})"


class KeySource(Protocol):
    """Where the keys come from."""

    def keys(self, *, create: bool) -> Sequence[SecretKey]:
        """Return the keys, the one for writing first; with `create`, make one if there is none. Raises KeyProblem. Blocks."""
        ...


def key_from(text: str) -> SecretKey:
    """Read a key as it is in a key file; raise ValueError if it is not one."""
    raw = base64.b64decode(text, validate=True)
    if len(raw) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes in base64, as from `openssl rand -base64 {KEY_BYTES}`")
    return SecretKey(hashlib.sha256(b"spillover key " + raw).digest()[:_ID_BYTES].hex(), raw)


def draw_key() -> str:
    """Return a new key, as it is in a key file."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def seal(key: SecretKey, project: str, name: str, version: int, value: bytes) -> SealedSecret:
    """Encrypt a value."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow to import

    nonce = secrets.token_bytes(_NONCE_BYTES)
    body = nonce + AESGCM(key.key).encrypt(nonce, value, _bound_to(project, name, version))
    return SealedSecret(StoredSecret(project, name, version, key.id), body)


def unseal(keys: Sequence[SecretKey], sealed: SealedSecret) -> bytes:
    """Decrypt a value; raise KeyProblem if no key fits, or if the stored value was changed."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow to import

    one = sealed.stored
    key = next((key for key in keys if key.id == one.key), None)
    if key is None:
        have = ", ".join(key.id for key in keys)
        raise KeyProblem(f"it needs key {one.key}, and the key file has {have}")
    nonce, body = sealed.body[:_NONCE_BYTES], sealed.body[_NONCE_BYTES:]
    try:
        return AESGCM(key.key).decrypt(nonce, body, _bound_to(one.project, one.name, one.version))
    except InvalidTag:
        raise KeyProblem("its stored value is damaged; set it again") from None


def _bound_to(project: str, name: str, version: int) -> bytes:
    """Return what a ciphertext is bound to. Names have no slash, so it is unambiguous."""
    return f"spillover/{project}/{name}/{version}".encode()
