"""Asks a provider of OpenID Connect who somebody is, and checks its answers.

Its addresses come from its discovery document, its keys from its key set. Both are kept for an hour. A token that is
signed with an unknown key makes the server read the keys again, because providers rotate them; forged tokens cannot make
it do so more often than every few seconds.
"""

import asyncio
import hmac
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
import msgspec
from msgspec import Struct

from spillover.model.bounds import plain
from spillover.model.hosts import is_loopback
from spillover.model.identity import Oidc, groups_of
from spillover.ports.identity import NotProven, ProviderFailed

if TYPE_CHECKING:
    import jwt

T = TypeVar("T")
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    "EdDSA",
)
"""Signatures with a key that only the provider has. Neither `none`, nor those with a shared secret."""
PATIENCE: Final = 10.0
"""Seconds for an answer of the provider."""
KEPT: Final = 3600.0
"""Seconds for which its addresses and keys are kept."""
AGAIN: Final = 5.0
"""Least seconds between two readings of its keys."""
LEEWAY: Final = 30.0
"""Seconds by which its clock may differ."""
FRESH: Final = 600.0
"""Greatest age of an id_token that a program shows, in seconds."""
_MOST: Final = 1 << 20
"""Most bytes of an answer."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Discovered(Struct, frozen=True):
    """The part of the discovery document that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Tokens(Struct, frozen=True):
    """The answer to a code."""

    id_token: str
    access_token: str | None = None


class OpenIdProvider:
    """Implements `IdentityProvider` of `ports/identity.py`."""

    def __init__(self, settings: Oidc, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._discovered: tuple[float, Discovered] | None = None
        """With the time at which it was read."""
        self._keys: tuple[float, list[dict[str, Any]]] | None = None
        """Likewise."""
        self._failed: tuple[float, str] | None = None
        """When its discovery document could not be read, and why."""
        self._reading = asyncio.Lock()

    async def address(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """See IdentityProvider."""
        base = (await self._discover()).authorization_endpoint
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{base}{'&' if urlsplit(base).query else '?'}{urlencode(asked)}"

    async def redeem(self, code: str, redirect_uri: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """See IdentityProvider."""
        found = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = self._authenticated(form, found.token_endpoint_auth_methods_supported)
        status, content = await self._ask("POST", found.token_endpoint, headers, form)
        if status in {400, 401, 403}:
            raise _refused(status, content)
        tokens = _read(status, content, Tokens, "the answer to the code")
        claims = await self._verified(tokens.id_token, (self._settings.client_id,))
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise NotProven("the id_token belongs to another sign-in (nonce)")
        return await self._completed(claims, tokens.access_token)

    async def check(self, id_token: str, access_token: str | None) -> Mapping[str, Any]:
        """See IdentityProvider."""
        clients = (self._settings.device_client_id, self._settings.client_id)
        claims = await self._verified(id_token, clients)
        if time.time() - claims["iat"] > FRESH + LEEWAY:
            raise NotProven("the id_token is older than ten minutes; sign in again")
        return await self._completed(claims, access_token)

    # --- tokens

    async def _verified(self, token: str, clients: tuple[str, ...]) -> dict[str, Any]:
        """Return the claims of an id_token for one of our clients; raise NotProven."""
        import jwt  # noqa: PLC0415 - slow to import, and only for servers with a provider

        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise NotProven("the id_token is not a signed token (JWT)") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise NotProven(f"the id_token is signed with {str(algorithm)[:20]!r}, which is not accepted")
        key = await self._key(key_id, algorithm)
        required = ["iss", "aud", "exp", "iat", "sub"]
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=clients,
                issuer=self._settings.issuer,
                leeway=LEEWAY,
                options={"require": required},
            )
        except jwt.ExpiredSignatureError:
            raise NotProven("the id_token has expired; sign in again") from None
        except jwt.InvalidSignatureError:
            raise NotProven("the signature of the id_token is wrong") from None
        except jwt.InvalidAudienceError:
            raise NotProven("the id_token is for another client (aud)") from None
        except jwt.InvalidIssuerError:
            raise NotProven("the id_token is of another issuer (iss)") from None
        except (jwt.InvalidTokenError, ValueError, TypeError) as error:
            raise NotProven(f"the id_token is not valid: {plain(str(error), 200)}") from None
        party = claims.get("azp")
        if party is not None and party not in clients:
            raise NotProven("the id_token was made for another client (azp)")
        return claims

    async def _key(self, key_id: str | None, algorithm: str) -> "jwt.PyJWK":
        """Return the key that signed a token; read the keys again if it is not known."""
        import jwt  # noqa: PLC0415 - as above

        for fresh in (False, True):
            for each in await self._key_set(fresh=fresh):
                if each.get("use", "sig") != "sig" or each.get("alg", algorithm) != algorithm:
                    continue
                if key_id is not None and each.get("kid") != key_id:
                    continue
                try:
                    return jwt.PyJWK(each, algorithm)
                except jwt.PyJWTError:  # of another kind
                    continue
        raise NotProven("the id_token is signed with a key that the provider does not have")

    async def _completed(self, claims: dict[str, Any], access_token: str | None) -> Mapping[str, Any]:
        """Add what an id_token leaves to the user info of the provider."""
        settings = self._settings
        wanted = {settings.user_claim} | ({"email_verified"} if settings.user_claim == "email" else set())
        whole = wanted <= claims.keys() and groups_of(claims, settings.groups_claim)
        where = (await self._discover()).userinfo_endpoint
        if whole or access_token is None or where is None:
            return claims
        status, content = await self._ask("GET", where, {"authorization": f"Bearer {access_token}"})
        if status in {401, 403}:
            raise NotProven("the provider does not accept its own access token for the user info")
        more = _read(status, content, dict[str, Any], "the user info")
        if more.get("sub") != claims["sub"]:
            raise NotProven("the user info is about another person (sub)")
        return more | claims

    # --- the provider

    async def _discover(self) -> Discovered:
        """Return where things are at the provider."""
        async with self._reading:
            known = self._discovered
            if known is not None and self._monotonic() - known[0] < KEPT:
                return known[1]
            if self._failed is not None and self._monotonic() - self._failed[0] < AGAIN:
                raise ProviderFailed(
                    self._failed[1]
                )  # so that those who wait do not wait one after the other
            try:
                found = await self._discovered_now()
            except ProviderFailed as failed:
                self._failed = self._monotonic(), str(failed)
                raise
            self._discovered = self._monotonic(), found
            return found

    async def _discovered_now(self) -> Discovered:
        """Read the discovery document."""
        issuer = self._settings.issuer
        status, content = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        found = _read(status, content, Discovered, "the discovery document")
        if found.issuer != issuer:
            raise ProviderFailed(
                f"the provider calls itself {plain(found.issuer, 200)!r}; write that as access.oidc.issuer"
            )
        for each in (
            found.authorization_endpoint,
            found.token_endpoint,
            found.jwks_uri,
            found.userinfo_endpoint,
        ):
            if each is not None and not is_safe_url(each):
                raise ProviderFailed(
                    f"the provider names {plain(each, 200)!r}, which is not an https address"
                )
        return found

    async def _key_set(self, *, fresh: bool) -> list[dict[str, Any]]:
        """Return the public keys of the provider; `fresh` ones were read a moment ago."""
        where = (await self._discover()).jwks_uri
        async with self._reading:
            known = self._keys
            if known is not None and self._monotonic() - known[0] < (AGAIN if fresh else KEPT):
                return known[1]
            status, content = await self._ask("GET", where)
            found = _read(status, content, dict[str, list[dict[str, Any]]], "the key set").get("keys", [])
            self._keys = self._monotonic(), found
            return found

    def _authenticated(self, form: dict[str, str], methods: tuple[str, ...]) -> dict[str, str]:
        """Return the headers that prove which client asks, or add the proof to the form."""
        settings = self._settings
        if settings.client_secret_file is None:
            form["client_id"] = settings.client_id
            return {}
        try:
            secret = Path(settings.client_secret_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            told = getattr(error, "strerror", None) or "not text"
            raise ProviderFailed(
                f"the secret of this server cannot be read: {settings.client_secret_file}: {told}"
            ) from None
        if "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": settings.client_id, "client_secret": secret}
            return {}
        pair = f"{quote_plus(settings.client_id)}:{quote_plus(secret)}"
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return status and content of an answer; raise ProviderFailed if there is none."""
        try:
            context = await asyncio.to_thread(ssl.create_default_context, cafile=self._settings.ca)
            # Without variables of the environment: a proxy there is not what was configured.
            client = httpx.AsyncClient(
                verify=context, follow_redirects=False, trust_env=False, timeout=PATIENCE
            )
            accepted = {"accept": "application/json"} | dict(headers or {})
            async with (
                asyncio.timeout(PATIENCE),
                client,
                client.stream(
                    method, url, headers=accepted, data=dict(form) if form is not None else None
                ) as answer,
            ):
                content = bytearray()
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > _MOST:
                        raise ProviderFailed(
                            f"the provider at {self._settings.issuer} sends more than {_MOST >> 20} MiB"
                        )
                return answer.status_code, bytes(content)
        except TimeoutError:
            told = f"no answer within {PATIENCE:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            told = plain(str(error), 200) or type(error).__name__
        except OSError as error:
            told = f"{self._settings.ca}: {error.strerror or error}"
        raise ProviderFailed(f"the provider at {self._settings.issuer} does not answer: {told}")


def is_safe_url(url: str) -> bool:
    """Return whether nobody can read what is sent to an address: https, or on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(f"{parts.hostname}:0"))


def _read(status: int, content: bytes, form: type[T], what: str) -> T:
    """Decode an answer; raise ProviderFailed if it is an error or of another form."""
    if status != 200:
        raise ProviderFailed(f"the provider answered with status {status} instead of {what}")
    try:
        return msgspec.json.decode(content, type=form)
    except _UNREADABLE as error:
        raise ProviderFailed(f"{what} of the provider cannot be read: {plain(str(error), 200)}") from None


def _refused(status: int, content: bytes) -> NotProven | ProviderFailed:
    """Return what it means that a provider refuses a code."""
    try:
        said = msgspec.json.decode(content, type=dict[str, Any])
    except _UNREADABLE:
        said = {}
    word = plain(str(said.get("error", f"status {status}")), 100)
    more = plain(str(said.get("error_description", "")), 200)
    told = f"the provider refuses the code: {word}{f' ({more})' if more else ''}"
    if word in {"invalid_client", "unauthorized_client"}:
        return ProviderFailed(f"{told}; check access.oidc.client_id and client_secret_file")
    return NotProven(told)
