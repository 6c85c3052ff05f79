"""Signs a person in at a provider of OpenID Connect without a browser on this machine: the device flow (RFC 8628)."""

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spillover.client.errors import Refused, Unreachable
from spillover.model.bounds import plain
from spillover.model.hosts import is_loopback
from spillover.wire.api import OidcMethod

T = TypeVar("T")
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
PATIENCE: Final = 15.0
"""Seconds for an answer of the provider."""
SLOWER: Final = 5.0
"""Seconds to add to the pause when the provider asks for that."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Places(Struct, frozen=True):
    """The part of the discovery document that is used."""

    issuer: str
    token_endpoint: str
    device_authorization_endpoint: str | None = None


class DeviceCode(Struct, frozen=True):
    """What a person enters, and where."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = 5.0
    """Seconds between two questions whether the person is done."""


class Proof(Struct, frozen=True):
    """What the provider gives in the end."""

    id_token: str
    access_token: str | None = None


class _Failure(Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class DeviceFlow:
    """One sign-in at a provider."""

    def __init__(
        self, oidc: OidcMethod, ca: str | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._oidc = oidc
        self._ca = ca
        """File with one more CA to trust."""
        self._sleep = sleep
        self._places: Places | None = None

    def begin(self) -> DeviceCode:
        """Return what the person has to enter."""
        places = self._discover()
        where = places.device_authorization_endpoint
        if where is None:
            raise _refused(
                f"the provider {self._oidc.name} has no device flow; sign in with a token, or enable it there"
            )
        form = {"client_id": self._oidc.client_id, "scope": self._oidc.scope}
        status, content = self._ask("POST", where, form)
        if status != 200:
            raise _refused(
                f"the provider {self._oidc.name} refuses the client {self._oidc.client_id}: {_said(status, content)}"
            )
        return self._decoded(content, DeviceCode)

    def wait(self, code: DeviceCode) -> Proof:
        """Return the proof once the person is done."""
        form = {"grant_type": GRANT, "device_code": code.device_code, "client_id": self._oidc.client_id}
        pause, left = max(1.0, code.interval), code.expires_in
        while left > 0:
            self._sleep(pause)
            left -= pause
            status, content = self._ask("POST", self._discover().token_endpoint, form)
            if status == 200:
                return self._decoded(content, Proof)
            match _failure(content).error:
                case "authorization_pending":
                    pass
                case "slow_down":
                    pause += SLOWER
                case "access_denied":
                    raise _refused(f"the provider {self._oidc.name} did not sign you in: it was declined")
                case "expired_token":
                    break
                case _:
                    raise _refused(
                        f"the provider {self._oidc.name} did not sign you in: {_said(status, content)}"
                    )
        raise _refused("the code was not entered in time; run `spill login` again")

    def _discover(self) -> Places:
        """Return where things are at the provider."""
        if self._places is None:
            issuer = self._oidc.issuer
            status, content = self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if status != 200:
                raise Unreachable(f"the provider at {issuer} answered with status {status}")
            places = self._decoded(content, Places)
            if places.issuer != issuer:
                raise Unreachable(f"the provider at {issuer} calls itself {plain(places.issuer, 200)!r}")
            self._places = places
        return self._places

    def _decoded(self, content: bytes, form: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=form)
        except _UNREADABLE as error:
            told = plain(str(error), 200)
            raise Unreachable(
                f"the answer of the provider at {self._oidc.issuer} cannot be read: {told}"
            ) from None

    def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Return status and content of an answer."""
        import httpx  # noqa: PLC0415 - slow to import

        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(f"{parts.hostname}:0"):
            raise _refused(f"the provider names {plain(url, 200)!r}, which is not an https address")
        context = ssl.create_default_context()
        try:
            if self._ca is not None:
                context.load_verify_locations(self._ca)
            data: dict[str, Any] = {} if form is None else {"data": dict(form)}
            answer = httpx.request(
                method, url, verify=context, timeout=PATIENCE, headers={"accept": "application/json"}, **data
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            told = plain(str(error), 200) or type(error).__name__
            raise Unreachable(f"the provider at {self._oidc.issuer} does not answer: {told}") from None
        return answer.status_code, answer.content


def _refused(told: str) -> Refused:
    return Refused(told, status=403, kind="forbidden")


def _failure(content: bytes) -> _Failure:
    """Return why a provider refuses; empty if it does not say so in the usual form."""
    try:
        return msgspec.json.decode(content, type=_Failure)
    except _UNREADABLE:
        return _Failure()


def _said(status: int, content: bytes) -> str:
    """Return the words of a provider that refuses."""
    failure = _failure(content)
    said = ": ".join(each for each in (failure.error, failure.error_description) if each)
    return plain(said, 300) or f"status {status}"
