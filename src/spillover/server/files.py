"""What a server leaves in its data folder for the command line and for local agents: where it is, and the token."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

_FIRST: Final = 0x20
_LAST: Final = 0x7F
"""Between these are the characters of ASCII that can be seen."""


class Whereabouts(Struct, frozen=True):
    """`server.json`."""

    http: str
    """URL."""
    grpc: str
    """host:port."""
    epoch: int
    pid: int
    ca: str | None = None
    """File of the authority to trust; None without TLS, or where everybody knows the authority."""


def write_whereabouts(data: Path, where: Whereabouts) -> None:
    """Say where the server is; readers see the old file or the new one, never a part."""
    path = data / "server.json"
    fresh = data / f".server.json.{os.getpid()}"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(where)) + b"\n")
    fresh.replace(path)


def read_whereabouts(data: Path) -> Whereabouts | None:
    """Where a server is, or was until it died; None if nobody says."""
    try:
        return msgspec.json.decode((data / "server.json").read_bytes(), type=Whereabouts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def forget_whereabouts(data: Path) -> None:
    """The server is gone, if the file is still its own."""
    where = read_whereabouts(data)
    if where is not None and where.pid == os.getpid():
        with contextlib.suppress(OSError):
            (data / "server.json").unlink()


def token_of(data: Path) -> str:
    """The token, made at the first start and readable by its owner only; a file without one is made anew.

    Raises OSError for a file that holds something else: nobody could show it.
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
        with contextlib.suppress(FileExistsError):  # another server was faster, and its token counts
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return _read_token(path)


def _read_token(path: Path) -> str:
    """What a file says without spaces around it; raises OSError if that cannot be part of a request."""
    body = path.read_bytes().strip()
    if not all(_FIRST < letter < _LAST for letter in body):
        raise OSError(
            f"{path} holds no token: write printable characters without spaces, or delete the file for a new one"
        )
    return body.decode("ascii")
