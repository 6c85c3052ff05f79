"""Signs people in from a browser or with `spill login`: checks who it is, makes a token of its own for it, and ends it.

A sign-in has the rights of the token that it came from, and ends with it. One-time links are in memory only: they work
for a minute, and not after a restart.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct, structs

from spillover.control.live.loop import Loop
from spillover.control.requests.limits import Buckets, Rate
from spillover.control.requests.rights import AccessRules
from spillover.control.requests.tokens import Tokens, draw_token
from spillover.core.proposals import Refusal, RevokeToken, SignIn
from spillover.model.bounds import plain
from spillover.model.identity import CALLBACK, NotAllowed, Oidc, person_of
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import SignInMethod, Token, TokenRole, TokenText, digest_of, holder_of, origins
from spillover.model.units import SECOND, format_time
from spillover.ports.callers import Caller, Stranger
from spillover.ports.commands import (
    CommandError,
    ErrorKind,
    NewSignIn,
    OidcReturn,
    OidcStart,
    Sender,
    refused,
)
from spillover.ports.identity import IdentityProvider, NotProven, ProviderFailed
from spillover.wire.api import (
    FieldProblem,
    Me,
    OidcMethod,
    SignInMethods,
    SignInOutcome,
    SignInRequest,
    SignInView,
)

START: Final = "/v1/sign-in/oidc"
"""Path that sends a browser to the provider."""
ID_TOKEN_LASTS: Final = 3600 * SECOND
"""Nanoseconds for which a used id_token is remembered; it is accepted for less."""
LINK_LASTS: Final = 60 * SECOND
MOST_LINKS: Final = 10_000
"""Most links that work at a time."""
LINKS_OF_ONE: Final = 20
"""Most links of one token that work at a time. The next one ends the oldest."""
FAILURES: Final = Rate(1 / 6, 10)
"""How often one address may fail to sign in: 10 times at once, then every 6 seconds."""
SIGN_INS: Final = Rate(1 / 5, 100)
"""How often people may sign in with one token, or with sign-ins that came from it: 100 times at once, then every 5 seconds."""
_NOBODY: Final = "anonymous"


class _Link(Struct, frozen=True):
    """A one-time link."""

    maker: Caller
    called: str
    until: int
    """Monotonic nanoseconds."""


class SignIns:
    """All sign-ins of a server."""

    def __init__(
        self,
        tokens: Tokens,
        loop: Loop,
        rules: AccessRules,
        open_provider: Callable[[Oidc], IdentityProvider] | None = None,
    ) -> None:
        self._tokens = tokens
        self._loop = loop
        self._rules = rules
        self._open_provider = open_provider
        """None for a server that cannot ask a provider."""
        self._opened: tuple[Oidc, IdentityProvider] | None = None
        """The provider in use, which a new configuration can replace."""
        self._shown: dict[bytes, int] = {}
        """Digests of the id_tokens that were accepted, or are being checked, with the monotonic nanoseconds until which they are fresh."""
        self._links: dict[bytes, _Link] = {}
        """By the digest of the code, oldest first."""
        self._failures = Buckets(loop.monotonic, FAILURES)
        self._rates = Buckets(loop.monotonic, SIGN_INS)

    def methods(self) -> SignInMethods:
        """Return how people can sign in."""
        settings = self._rules.access.oidc
        if settings is None or self._open_provider is None:
            return SignInMethods(token=True, oidc=None)
        oidc = OidcMethod(settings.name, START, settings.issuer, settings.device_client_id, settings.scope)
        return SignInMethods(token=True, oidc=oidc)

    # --- signing in

    async def sign_in(self, asked: SignInRequest, sender: Sender, stated: str) -> NewSignIn:
        """Sign a person in; `stated` is the user that the request names. Raise Stranger if the proof is not valid."""
        self._check_failures(sender)
        called = _called(asked.user, stated)
        match (asked.token, asked.code, asked.id_token):
            case (str() as token, None, None):
                how: SignInMethod = "token"
                try:
                    maker = self._tokens.caller(token)
                except Stranger as stranger:
                    self._failures.take(sender.peer)
                    raise Stranger(
                        f"{stranger}; `spill token create` makes one, and `spill open` signs you in"
                    ) from None
            case (None, str() as code, None):
                how = "link"
                maker, linked = self._redeemed(code, sender)
                called = called or linked
            case (None, None, str() as id_token):
                return await self._exchanged(id_token, asked.access_token, sender)
            case _:
                raise CommandError(ErrorKind.INVALID, "give one of token, code and id_token")
        if maker.role is TokenRole.AGENT:
            told = "a token of role agent is for machines, and nobody can sign in with it; use one of another role"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        parent = maker.token or self._tokens.own_mark
        return await self._begin(maker, how, parent, "" if maker.user else called, sender)

    def _redeemed(self, code: str, sender: Sender) -> tuple[Caller, str]:
        """Use up a link; return its maker, and the user name that the maker stated."""
        link = self._links.pop(digest_of(code), None)
        if (
            link is not None
            and self._loop.monotonic() < link.until
            and self._tokens.is_valid(link.maker.token)
        ):
            return link.maker, link.called
        self._failures.take(sender.peer)
        raise Stranger(
            "the sign-in link was used already or is older than a minute; `spill open` makes another"
        )

    async def _begin(
        self, maker: Caller, how: SignInMethod, parent: str, called: str, sender: Sender, lasts: int = 0
    ) -> NewSignIn:
        """Make the token of a sign-in with the rights of its maker."""
        account = holder_of(self._loop.state.tokens, parent, maker.user)
        if (pause := self._rates.pause(account)) > 0:
            told = f"too many sign-ins with this token; try again in {pause:.0f} s"
            raise CommandError(ErrorKind.LIMITED, told, (), pause)
        self._rates.take(account)
        text, who = draw_token(), maker.user or called or _NOBODY
        expires = self._loop.now() + (lasts or self._rules.access.sign_in_lasts)
        proposal = SignIn(
            text.id,
            digest_of(text.secret),
            who,
            maker.role,
            how,
            expires,
            parent,
            maker.project,
            maker.user,
            called,
            browser_of(sender.program),
        )
        (reply,) = await self._loop.propose(proposal)
        if isinstance(reply, Refusal):
            raise refused(reply)
        return self._made(text, who)

    def _made(self, text: TokenText, who: str) -> NewSignIn:
        """Return a sign-in that was just made."""
        token = self._loop.state.tokens[text.id]
        expires = token.expires or 0
        shown = SignInOutcome(token.id, who, token.role, token.project, format_time(expires))
        return NewSignIn(str(text), shown, max(1, (expires - self._loop.now()) // SECOND))

    def _check_failures(self, sender: Sender) -> None:
        """Raise CommandError if an address failed too often."""
        if (pause := self._failures.pause(sender.peer)) > 0:
            told = f"too many sign-ins from {sender.peer} failed; try again in {pause:.0f} s"
            raise CommandError(ErrorKind.LIMITED, told, (), pause)

    # --- OpenID Connect

    async def begin_oidc(self, url: str) -> OidcStart:
        """Begin to sign in at the provider; `url` is this server as the browser knows it."""
        settings, provider = self._provider()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        back = settings.redirect_uri or url + CALLBACK
        try:
            location = await provider.address(back, state, nonce, challenge)
        except ProviderFailed as failed:
            raise _no_provider(failed) from None
        return OidcStart(location, f"{state}.{nonce}.{verifier}")

    async def finish_oidc(self, back: OidcReturn, url: str, sender: Sender) -> NewSignIn:
        """Sign in a person who comes back from the provider; raise Stranger if that proves nothing."""
        self._check_failures(sender)
        settings, provider = self._provider()
        state, _, rest = back.kept.partition(".")
        nonce, _, verifier = rest.partition(".")
        if not verifier or not hmac.compare_digest(state.encode(), back.state.encode()):
            self._failures.take(sender.peer)
            raise Stranger(
                "this sign-in was not begun in this browser, or more than ten minutes ago; begin again"
            )
        if back.error:
            raise Stranger(f"{settings.name} did not sign you in: {plain(back.error, 300)}")
        if back.issuer and back.issuer != settings.issuer:
            raise Stranger("another provider answered than the one that was asked; begin again")
        redirect_uri = settings.redirect_uri or url + CALLBACK
        asked = provider.redeem(back.code, redirect_uri, verifier, nonce)
        made = await self._as_person(settings, asked, sender)
        return structs.replace(made, secure=redirect_uri.startswith("https://"))

    async def _exchanged(self, id_token: str, access_token: str | None, sender: Sender) -> NewSignIn:
        """Sign in the person of an id_token, once; the token is for a program."""
        settings, provider = self._provider()
        # Without the signature, of which several texts may be valid.
        now, digest = self._loop.monotonic(), digest_of(id_token.rpartition(".")[0])
        for each in [one for one, until in self._shown.items() if until <= now]:
            del self._shown[each]
        if digest in self._shown:
            raise Stranger("this id_token was used already; sign in again")
        self._shown[digest] = now + ID_TOKEN_LASTS  # before the check, which takes time
        try:
            made = await self._as_person(settings, provider.check(id_token, access_token), sender)
        except BaseException:
            del self._shown[digest]
            raise
        return structs.replace(made, shown=structs.replace(made.shown, token=made.text))

    async def _as_person(
        self, settings: Oidc, asked: Awaitable[Mapping[str, Any]], sender: Sender
    ) -> NewSignIn:
        """Sign in the person about whom the provider is asked."""
        try:
            person = person_of(settings, await asked)
        except ProviderFailed as failed:
            raise _no_provider(failed) from None
        except NotProven as wrong:
            self._failures.take(sender.peer)
            raise Stranger(str(wrong)) from None
        except NotAllowed as refusal:
            raise CommandError(ErrorKind.FORBIDDEN, str(refusal)) from None
        maker = Caller(person.role, user=person.user, project=person.project)
        return await self._begin(maker, "oidc", "", "", sender, settings.lasts)

    def _provider(self) -> tuple[Oidc, IdentityProvider]:
        """Return the configured provider; raise CommandError if there is none."""
        settings = self._rules.access.oidc
        if settings is None or self._open_provider is None:
            raise CommandError(
                ErrorKind.INVALID, "this server has no provider of OpenID Connect (access.oidc)"
            )
        if self._opened is None or self._opened[0] != settings:
            self._opened = settings, self._open_provider(settings)
        return self._opened

    # --- links

    def link(self, maker: Caller, user: str) -> tuple[str, int]:
        """Return the code of a one-time link, and when it ends in nanoseconds UTC."""
        now = self._loop.monotonic()
        for each in [one for one, link in self._links.items() if link.until <= now]:
            del self._links[each]
        own = [one for one, link in self._links.items() if link.maker.token == maker.token]
        for each in own[: max(0, len(own) - LINKS_OF_ONE + 1)]:
            del self._links[each]
        if len(self._links) >= MOST_LINKS:
            raise CommandError(
                ErrorKind.LIMITED, f"{MOST_LINKS} sign-in links wait to be used; try again", (), 10.0
            )
        code = secrets.token_urlsafe(32)
        called = "" if maker.user or user == _NOBODY else user
        self._links[digest_of(code)] = _Link(maker, called, now + LINK_LASTS)
        return code, self._loop.now() + LINK_LASTS

    # --- what there is

    def me(self, caller: Caller, user: str) -> Me:
        """Return who a caller is."""
        token = self._loop.state.tokens.get(caller.token)
        expires = None if token is None or token.expires is None else format_time(token.expires)
        return Me(user, caller.role, caller.project, caller.token if caller.sign_in else None, expires)

    async def all(self, caller: Caller) -> list[SignInView]:
        """Return the valid sign-ins that a caller may see, newest first."""
        tokens = (await self._loop.read()).state.tokens
        now = self._loop.now()
        return [
            self._view(token, caller)
            for token in reversed(tokens.values())
            if token.how is not None and self._tokens.is_usable(token, now) and self._is_own(token, caller)
        ]

    async def revoke(self, sign_in: str, caller: Caller, who: str) -> None:
        """End a sign-in."""
        token = (await self._loop.read()).state.tokens.get(sign_in)
        if token is None or token.how is None or not self._is_own(token, caller):
            raise CommandError(ErrorKind.UNKNOWN, f"you have no sign-in {sign_in}")
        await self._end(sign_in, who)

    async def sign_out(self, caller: Caller, who: str) -> str:
        """End the sign-in of a caller; return its id."""
        if not caller.sign_in:
            told = (
                "this request has no sign-in: it shows another token; `spill token revoke` ends one of those"
            )
            raise CommandError(ErrorKind.CONFLICT, told)
        await self._end(caller.token, who)
        return caller.token

    async def _end(self, token: str, who: str) -> None:
        (reply,) = await self._loop.propose(RevokeToken(token, who))
        if isinstance(reply, Refusal):
            raise refused(reply)

    def _is_own(self, token: Token, caller: Caller) -> bool:
        """Return whether a sign-in is the caller's, or of the same user or token."""
        if caller.is_admin or token.id == caller.token:
            return True
        if caller.user is not None and token.user == caller.user:
            return True
        return bool(caller.token) and self._root(token.id) == self._root(caller.token)

    def _root(self, token: str) -> str:
        """Return the token from which a sign-in came in the end; itself if it came from none."""
        return [token, *origins(self._loop.state.tokens, token)][-1]

    def _view(self, token: Token, caller: Caller) -> SignInView:
        used = self._tokens.used(token.id)
        return SignInView(
            token.id,
            token.user or token.called or _NOBODY,
            token.role,
            token.project,
            token.how or "",
            token.note,
            format_time(token.created),
            format_time(token.expires or 0),
            None if used is None else format_time(used),
            token.id == caller.token,
        )


def _no_provider(failed: ProviderFailed) -> CommandError:
    """Return the error for a provider that cannot be asked."""
    return CommandError(ErrorKind.UNAVAILABLE, f"{failed}; tokens work without it", untouched=True)


def _called(given: str | None, stated: str) -> str:
    """Return the user name that a request states; empty if none."""
    name = stated if given is None else given
    if name and not is_name(name):
        told = f"{name[:80]!r} is not a name: {NAME_RULE}"
        raise CommandError(ErrorKind.INVALID, f"user: {told}", [FieldProblem("user", told)])
    return "" if name == _NOBODY else name


_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_of(program: str) -> str:
    """Return a short name of a browser or program from its User-Agent, as far as it can be shown."""
    browser = next((name for mark, name in _BROWSERS if mark in program), None)
    system = next((name for mark, name in _SYSTEMS if mark in program), None)
    if browser is not None:
        return browser if system is None else f"{browser} on {system}"
    return "".join(each for each in program[:60] if each.isprintable())
