"""Finds the server and the user: from arguments, else the environment, else the data folder of a server."""

import getpass
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spillover.client.errors import Refused, Unreachable
from spillover.client.signed_in import KeptSignIn, read_sign_ins
from spillover.model.hosts import is_loopback
from spillover.model.ids import NAME_RULE, is_name

ANONYMOUS = "anonymous"
_GIVE: Final = "use one from `spill token create`"
_PRINTED: Final = "a token from `spill token create`"
_HINT: Final = (
    "set SPILL_TOKEN or SPILL_TOKEN_FILE, or name the server's data folder with --data or SPILL_DATA"
)


class ServerFile(Struct, frozen=True):
    """The part of `DIR/server.json` that a client needs; a server writes the file when it accepts work."""

    http: str
    """URL of its HTTP API."""
    ca: str | None = None
    """File with the CA of its certificate; None without TLS, or if the system trusts the CA."""


class ServerPlace(Struct, frozen=True):
    """A server, and how to connect to it."""

    url: str
    """Without a slash at the end."""
    token: str
    user: str
    found: Path | None = None
    """The `server.json` with the URL; None if the URL was given."""
    ca: Path | None = None
    """File with the CA to trust; None for those that the system trusts."""
    ca_from: str = ""
    """The variable that names the CA file; empty if it was named otherwise."""
    mending: str = _GIVE
    """Advice for a wrong token, by where the token came from."""

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        return {"Authorization": f"Bearer {self.token}", "Spill-User": self.user}

    def again(self) -> "ServerPlace":
        """Read the URL again: a restarted server may listen elsewhere."""
        if self.found is None:
            return self
        try:
            return msgspec.structs.replace(self, url=_told_in(self.found).http)
        except (Refused, Unreachable):
            return self


def find(
    server: str | None = None,
    token: str | None = None,
    data: str | Path | None = None,
    user: str | None = None,
    ca: str | Path | None = None,
    token_file: str | Path | None = None,
) -> ServerPlace:
    """Find the server from arguments, environment, data folder and the last sign-in, in this order."""
    folder = Path(data if data is not None else os.environ.get("SPILL_DATA") or "spill-data")
    given = server or (os.environ.get("SPILL_SERVER") if data is None else None)
    signed_in: KeptSignIn | None = None
    if data is None and not os.environ.get("SPILL_DATA"):
        given = given or (None if (folder / "server.json").exists() else read_sign_ins().server)
        signed_in = read_sign_ins().sign_ins.get(server_url(given)) if given else None
    found = None if given else folder / "server.json"
    told = None if given else _told_in(folder / "server.json")
    url = told.http if told is not None else server_url(given or "")
    variable = os.environ.get("SPILL_CA") if not ca else None
    kept_ca = told.ca if told is not None else signed_in.ca if signed_in is not None else None
    authority = ca or variable or kept_ca
    lent = told is not None or _may_show(folder, url, named=data is not None)
    secret, mending = token or "", _GIVE
    if not secret:
        secret, mending = _token(folder, token_file, signed_in, named=data is not None, lent=lent)
    if not (secret.isascii() and secret.isprintable()):
        raise Unreachable(f"the token has invalid characters; {_GIVE}")
    if user is not None and not is_name(user):
        raise Refused(f"{user!r} is not a user name; write {NAME_RULE}", status=400, kind="invalid")
    trusted = Path(authority) if authority else None
    return ServerPlace(
        url, secret, user or account(), found, trusted, "SPILL_CA" if variable else "", mending
    )


def _told_in(path: Path) -> ServerFile:
    """Read the URL and the CA that a server wrote."""
    try:
        told = msgspec.json.decode(path.read_bytes(), type=ServerFile)
        return ServerFile(server_url(told.http, str(path)), told.ca)
    except FileNotFoundError:
        what = "no server runs" if path.parent.is_dir() else "no server was started"
        raise Unreachable(
            f"{what} in {path.parent}; start one with `spill up`, or set SPILL_SERVER or SPILL_DATA"
        ) from None
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unreachable(f"{path} is damaged; start the server again with `spill up`") from None


def server_url(text: str, what: str = "the server's address") -> str:
    """Return a URL with a scheme; refuse one that would expose the token."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        good = False
    if not good:
        raise Unreachable(f"{what} is {text!r}, which is not a URL; write http://127.0.0.1:7070")
    if parts.scheme == "http" and not is_loopback(f"{parts.hostname}:0"):
        instead = f"https://{parts.netloc}{parts.path}".rstrip("/")
        raise Refused(
            f"{what} is {text!r}, which would send the token without TLS; write {instead}",
            status=400,
            kind="invalid",
        )
    return url.rstrip("/")


def named_token_file(given: str | Path | None = None, *, data: str | Path | None = None) -> Path | None:
    """Return the token file that the user named; None if the token itself was given, or the data folder has it."""
    if given is None and data is None and not os.environ.get("SPILL_TOKEN"):
        given = os.environ.get("SPILL_TOKEN_FILE") or None
    return None if given is None else Path(given)


def _may_show(folder: Path, url: str, *, named: bool) -> bool:
    """Return whether a named server may receive the admin token of a data folder.

    It may if the folder was named too, if it is on this machine, or if its URL is the one in the folder.
    """
    if named or os.environ.get("SPILL_DATA") or is_loopback(f"{urlsplit(url).hostname}:0"):
        return True
    try:
        return _told_in(folder / "server.json").http == url
    except (Refused, Unreachable):
        return False


def _token(
    folder: Path, given: str | Path | None, signed_in: KeptSignIn | None, *, named: bool, lent: bool
) -> tuple[str, str]:
    """Return the token, and advice for when it is wrong; a `named` data folder takes precedence over the environment.

    The token of the folder is used only if `lent` is True.
    """
    file = named_token_file(given, data=folder if named else None)
    if file is None and not named and (token := os.environ.get("SPILL_TOKEN")):
        return token, f"set SPILL_TOKEN to {_PRINTED}"
    if file is None and signed_in is not None:
        return signed_in.token, "run `spill login` to sign in again"
    path = file or folder / "token"
    if file is None and not lent:
        raise Unreachable(f"there is no token for that server: {_HINT}")
    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        hint = "there is no such file" if file is not None else _HINT
        raise Unreachable(f"there is no token in {path}: {hint}") from None
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror}; run this as its owner") from None
    except UnicodeDecodeError:
        token = ""
    if not token:
        raise Unreachable(f"{path} does not hold a token")
    if file is not None:
        return token, f"write {_PRINTED} to {path}"
    return token, f"it came from {path}; set SPILL_TOKEN to {_PRINTED}"


def account() -> str:
    """Return the user of this process; ANONYMOUS if that is not a valid name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ANONYMOUS
    return user if is_name(user) else ANONYMOUS
