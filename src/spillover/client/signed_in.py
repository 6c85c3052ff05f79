"""Sign-ins of `spill login`, in a file that only its owner can read."""

import os
from pathlib import Path

import msgspec
from msgspec import Struct, field

from spillover.client.errors import Unreachable


class KeptSignIn(Struct, frozen=True, omit_defaults=True):
    """A sign-in at one server."""

    token: str
    user: str
    expires_at: str
    ca: str | None = None
    """File with the CA of the server's certificate; None for those of the system."""


class KeptSignIns(Struct, frozen=True):
    """The content of the file."""

    server: str | None = None
    """URL of the server at which somebody signed in last, which commands use if no other is named."""
    sign_ins: dict[str, KeptSignIn] = field(default_factory=dict)
    """By the URL of the server."""


def file_of_sign_ins() -> Path:
    """Return where the file is."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - home may be unknown
    return Path(base) / "spillover" / "sign-ins.json"


def read_sign_ins() -> KeptSignIns:
    """Return what is in the file; nothing if there is none."""
    path = file_of_sign_ins()
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptSignIns)
    except FileNotFoundError:
        return KeptSignIns()
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unreachable(f"{path} is damaged; remove it and run `spill login` again") from None


def keep_sign_in(server: str, sign_in: KeptSignIn) -> None:
    """Add a sign-in at a server."""
    known = read_sign_ins()
    _write(KeptSignIns(server, known.sign_ins | {server: sign_in}))


def forget_sign_in(server: str) -> None:
    """Remove the sign-in at a server."""
    known = read_sign_ins()
    left = {url: each for url, each in known.sign_ins.items() if url != server}
    _write(KeptSignIns(None if known.server == server else known.server, left))


def _write(content: KeptSignIns) -> None:
    """Replace the file; readers never see a part of it, and other users nothing."""
    path = file_of_sign_ins()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
