"""Where the server is and who asks: arguments, else the environment, else what a server left in its data folder."""

import getpass
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spillover.client.errors import Refused, Unreachable
from spillover.model.hosts import is_loopback
from spillover.model.ids import NAME_RULE, is_name

ANONYMOUS = "anonymous"
_GIVE: Final = "give one that `spill token create` printed"
_PRINTED: Final = "what `spill token create` printed"
_HINT: Final = (
    "set SPILL_TOKEN or SPILL_TOKEN_FILE, or name the server's data folder with --data or SPILL_DATA"
)


class ServerFile(Struct, frozen=True):
    """What a server writes to `DIR/server.json` once it accepts work; only what a client needs."""

    http: str
    """URL of its HTTP API."""
    ca: str | None = None
    """File of the authority that signed its certificate; None without TLS, or where everybody knows the authority."""


class ServerPlace(Struct, frozen=True):
    """A server and how to speak to it."""

    url: str
    """Without a slash at its end."""
    token: str
    user: str
    found: Path | None = None
    """The `server.json` that the URL was read from; None when it was given."""
    ca: Path | None = None
    """File of the authority to trust; None trusts those that are known everywhere."""
    ca_from: str = ""
    """The variable that names it; empty for what was named otherwise."""
    mending: str = _GIVE
    """What to do when the token is wrong, by where it is from."""

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"Authorization": f"Bearer {self.token}", "Spill-User": self.user}

    def again(self) -> "ServerPlace":
        """The same place as it is now: a server that was restarted may listen elsewhere."""
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
    """The place that arguments, environment and data folder tell, in this order."""
    folder = Path(data if data is not None else os.environ.get("SPILL_DATA") or "spill-data")
    given = server or (os.environ.get("SPILL_SERVER") if data is None else None)
    found = None if given else folder / "server.json"
    told = None if given else _told_in(folder / "server.json")
    url = told.http if told is not None else server_url(given or "")
    variable = os.environ.get("SPILL_CA") if not ca else None
    authority = ca or variable or (told.ca if told is not None else None)
    lent = told is not None or _may_show(folder, url, named=data is not None)
    secret, mending = token or "", _GIVE
    if not secret:
        secret, mending = _token(folder, token_file, named=data is not None, lent=lent)
    if not (secret.isascii() and secret.isprintable()):
        raise Unreachable("the token holds characters that no token has")
    if user is not None and not is_name(user):
        raise Refused(f"{user!r} cannot be a user: {NAME_RULE}", status=400, kind="invalid")
    trusted = Path(authority) if authority else None
    return ServerPlace(url, secret, user or _user(), found, trusted, "SPILL_CA" if variable else "", mending)


def _told_in(path: Path) -> ServerFile:
    """The address that a server left, and its authority."""
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
    """An address with its scheme, where nobody else could read a token on its way."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1)
    except ValueError:
        good = False
    if not good:
        raise Unreachable(f"{what} is {text!r}, which is not one; write http://127.0.0.1:7070")
    if parts.scheme == "http" and not is_loopback(f"{parts.hostname}:0"):
        instead = f"https://{parts.netloc}{parts.path}".rstrip("/")
        raise Refused(
            f"{what} is {text!r}, and without TLS others could read the token on its way there; write {instead}",
            status=400,
            kind="invalid",
        )
    return url.rstrip("/")


def named_token_file(given: str | Path | None = None, *, data: str | Path | None = None) -> Path | None:
    """The file that somebody named to read the token from; None where the token itself was given, or a data folder has it."""
    if given is None and data is None and not os.environ.get("SPILL_TOKEN"):
        given = os.environ.get("SPILL_TOKEN_FILE") or None
    return None if given is None else Path(given)


def _may_show(folder: Path, url: str, *, named: bool) -> bool:
    """Whether a server that somebody named may see the token of a data folder, which is good for everything on its own server.

    It may if the folder was named as well, or if it is on this machine or where the folder says that its server is.
    """
    if named or os.environ.get("SPILL_DATA") or is_loopback(f"{urlsplit(url).hostname}:0"):
        return True
    try:
        return _told_in(folder / "server.json").http == url
    except (Refused, Unreachable):
        return False


def _token(folder: Path, given: str | Path | None, *, named: bool, lent: bool) -> tuple[str, str]:
    """The secret that lets a client in, and what to do if it does not; a data folder that is `named` comes before what the environment says.

    That of the folder is not for the server unless it is `lent`.
    """
    file = named_token_file(given, data=folder if named else None)
    if file is None and not named and (token := os.environ.get("SPILL_TOKEN")):
        return token, f"set SPILL_TOKEN to {_PRINTED}"
    path = file or folder / "token"
    if file is None and not lent:
        raise Unreachable(f"there is no token for that server: {_HINT}")
    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        hint = "there is no such file" if file is not None else _HINT
        raise Unreachable(f"there is no token in {path}: {hint}") from None
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror}; only its owner may") from None
    except UnicodeDecodeError:
        token = ""
    if not token:
        raise Unreachable(f"{path} does not hold a token")
    if file is not None:
        return token, f"{path} must hold {_PRINTED}"
    return token, f"it is that of {path}; set SPILL_TOKEN to {_PRINTED}"


def _user() -> str:
    """Who runs this process, if that can be a name here."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ANONYMOUS
    return user if is_name(user) else ANONYMOUS
