"""What signing in needs of a provider of OpenID Connect."""

from collections.abc import Mapping
from typing import Any, Protocol


class NotProven(Exception):
    """The proof of who somebody is cannot be accepted; the message says why, and never contains the proof."""


class ProviderFailed(Exception):
    """The provider did not answer, or not as it should; the message says why in one line."""


class IdentityProvider(Protocol):
    """Sends people to a provider, and checks what it says about them. All methods may raise ProviderFailed."""

    async def address(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """Return where to send a browser; `challenge` is the SHA-256 of a verifier (PKCE)."""
        ...

    async def redeem(self, code: str, redirect_uri: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """Return what the provider says about the person who came back with a code; raise NotProven."""
        ...

    async def check(self, id_token: str, access_token: str | None) -> Mapping[str, Any]:
        """Return what the provider says about the person with a fresh id_token; raise NotProven."""
        ...
