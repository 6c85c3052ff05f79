"""Commands about who may do what: tokens, sign-ins and secrets."""

from spillover.control.requests.commands.base import CallerCommands
from spillover.control.requests.secrets import SecretRequests
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.tokens import Tokens
from spillover.ports.commands import CommandError, ErrorKind, NewSignIn, OidcReturn, OidcStart, Sender
from spillover.wire.api import (
    Me,
    NewToken,
    RekeyOutcome,
    SecretRef,
    SecretRequest,
    SecretView,
    SignInMethods,
    SignInRequest,
    SignInView,
    TokenRequest,
    TokenView,
)


class AccessCommands(CallerCommands):
    """Gives and takes tokens, sign-ins and secrets."""

    async def create_token(self, request: TokenRequest, who: str) -> NewToken:
        """Create a token; return its secret, which cannot be read later."""
        return await self._tokens.create(request, who)

    async def tokens(self) -> list[TokenView]:
        """Return all tokens, newest first."""
        return await self._tokens.all()

    async def revoke_token(self, token: str, who: str) -> None:
        """Revoke a token."""
        await self._tokens.revoke(token, who)

    @property
    def _tokens(self) -> Tokens:
        if self._parts.tokens is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server does not store tokens")
        return self._parts.tokens

    async def sign_in(self, request: SignInRequest, sender: Sender, who: str) -> NewSignIn:
        """Sign a person in; raise Stranger if its proof is not valid."""
        return await self._sign_ins.sign_in(request, sender, who)

    async def begin_oidc(self, url: str) -> OidcStart:
        """Begin to sign in at the provider; `url` is this server as the browser knows it."""
        return await self._sign_ins.begin_oidc(url)

    async def finish_oidc(self, back: OidcReturn, url: str, sender: Sender) -> NewSignIn:
        """Sign in a person who comes back from the provider; raise Stranger if that proves nothing."""
        return await self._sign_ins.finish_oidc(back, url, sender)

    async def sign_out(self, who: str) -> str:
        """End the sign-in of the caller; return its id."""
        return await self._sign_ins.sign_out(self._caller, who)

    async def sign_in_methods(self) -> SignInMethods:
        """Return how people can sign in."""
        return self._sign_ins.methods()

    async def sign_in_link(self, who: str) -> tuple[str, int]:
        """Return a code that signs its reader in as the caller, once, and when it ends in nanoseconds UTC."""
        return self._sign_ins.link(self._caller, who)

    async def me(self, who: str) -> Me:
        """Return who the caller is."""
        return self._sign_ins.me(self._caller, who)

    async def sign_ins(self) -> list[SignInView]:
        """Return the valid sign-ins of the caller, or for admins all, newest first."""
        return await self._sign_ins.all(self._caller)

    async def revoke_sign_in(self, sign_in: str, who: str) -> None:
        """End a sign-in."""
        await self._sign_ins.revoke(sign_in, self._caller, who)

    @property
    def _sign_ins(self) -> SignIns:
        if self._parts.sign_ins is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "nobody can sign in to this server")
        return self._parts.sign_ins

    async def set_secret(self, request: SecretRequest, who: str) -> SecretView:
        """Set a secret."""
        return await self._secrets.set(request, who)

    async def secrets(self, project: str | None) -> list[SecretView]:
        """Return secrets without their values, by project and name; None for all projects."""
        return await self._secrets.list(project)

    async def remove_secret(self, ref: SecretRef, who: str) -> SecretRef:
        """Remove a secret."""
        return await self._secrets.remove(ref, who)

    async def rekey_secrets(self) -> RekeyOutcome:
        """Encrypt all secrets with the first key."""
        return await self._secrets.rekey()

    @property
    def _secrets(self) -> SecretRequests:
        if self._parts.vault is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server does not store secrets")
        return SecretRequests(self._loop, self._parts.vault, self._rights, self._project)
