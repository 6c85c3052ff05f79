"""Files in the data folder for the command line and local agents: the address of the server, and its token."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

_FIRST: Final = 0x20
_LAST: Final = 0x7F
"""Printable ASCII characters other than space are between these."""


class Whereabouts(Struct, frozen=True):
    """Content of `server.json`."""

    http: str
    """URL."""
    grpc: str
    """HOST:PORT."""
    epoch: int
    pid: int
    ca: str | None = None
    """File of the authority to trust; None without TLS, or if the authority is publicly trusted."""


def write_whereabouts(data: Path, where: Whereabouts) -> None:
    """Write the address of the server; readers never see a partial file."""
    path = data / "server.json"
    fresh = data / f".server.json.{os.getpid()}"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(where)) + b"\n")
    fresh.replace(path)


def read_whereabouts(data: Path) -> Whereabouts | None:
    """Return the address of the current or last server; None if there is no valid file."""
    try:
        return msgspec.json.decode((data / "server.json").read_bytes(), type=Whereabouts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def forget_whereabouts(data: Path) -> None:
    """Delete the address file, if this process wrote it."""
    where = read_whereabouts(data)
    if where is not None and where.pid == os.getpid():
        with contextlib.suppress(OSError):
            (data / "server.json").unlink()


def token_of(data: Path) -> str:
    """Return the token; create it at the first start, readable by its owner only, or if the file is empty.

    Raises OSError if the file holds something that cannot be part of a request.
    """
    path = data / "token"
    with contextlib.suppress(FileNotFoundError):
        if token := _read_token(path):
            return token
        path.unlink()
    fresh = data / f".token.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):  # another server was faster; use its token
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return _read_token(path)


def _read_token(path: Path) -> str:
    """Return the stripped content of a file; raise OSError if it cannot be part of a request."""
    body = path.read_bytes().strip()
    if not all(_FIRST < letter < _LAST for letter in body):
        raise OSError(
            f"{path} holds no token; write printable characters without spaces, or delete the file to get a new one"
        )
    return body.decode("ascii")
