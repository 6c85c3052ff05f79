"""Signs people in from a browser or with `spill login`: checks who it is, makes a token of its own for it, and ends it.

A sign-in has the rights of the token that it came from, and ends with it. One-time links are in memory only: they work
for a minute, and not after a restart.
"""

import secrets
from typing import Final

from msgspec import Struct

from spillover.control.live.loop import Loop
from spillover.control.requests.limits import Buckets, Rate
from spillover.control.requests.tokens import Tokens, draw_token
from spillover.core.proposals import Refusal, RevokeToken, SignIn
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import SignInMethod, Token, TokenRole, TokenText, digest_of
from spillover.model.units import DAY, SECOND, format_time
from spillover.ports.callers import Caller, Stranger
from spillover.ports.commands import CommandError, ErrorKind, NewSignIn, Sender, refused
from spillover.wire.api import (
    FieldProblem,
    Me,
    SignInMethods,
    SignInOutcome,
    SignInRequest,
    SignInView,
)

LASTS: Final = 7 * DAY
"""Nanoseconds after which people have to sign in again, unless the configuration says otherwise."""
LINK_LASTS: Final = 60 * SECOND
MOST_LINKS: Final = 10_000
"""Most links that work at a time."""
LINKS_OF_ONE: Final = 20
"""Most links of one token that work at a time. The next one ends the oldest."""
FAILURES: Final = Rate(1 / 6, 10)
"""How often one address may fail to sign in: 10 times at once, then every 6 seconds."""
SIGN_INS: Final = Rate(1 / 5, 30)
"""How often people may sign in with one token: 30 times at once, then every 5 seconds."""
_NOBODY: Final = "anonymous"


class _Link(Struct, frozen=True):
    """A one-time link."""

    maker: Caller
    called: str
    until: int
    """Monotonic nanoseconds."""


class SignIns:
    """All sign-ins of a server."""

    def __init__(self, tokens: Tokens, loop: Loop, lasts: int = LASTS) -> None:
        self._tokens = tokens
        self._loop = loop
        self._lasts = lasts
        self._links: dict[bytes, _Link] = {}
        """By the digest of the code, oldest first."""
        self._failures = Buckets(loop.monotonic, FAILURES)
        self._rates = Buckets(loop.monotonic, SIGN_INS)

    def methods(self) -> SignInMethods:
        """Return how people can sign in."""
        return SignInMethods(token=True, oidc=None)

    # --- signing in

    async def sign_in(self, asked: SignInRequest, sender: Sender, stated: str) -> NewSignIn:
        """Sign a person in; `stated` is the user that the request names. Raise Stranger if the proof is not valid."""
        if (pause := self._failures.pause(sender.peer)) > 0:
            told = f"too many sign-ins from {sender.peer} failed; try again in {pause:.0f} s"
            raise CommandError(ErrorKind.LIMITED, told, (), pause)
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
            case (None, None, str()):
                raise CommandError(
                    ErrorKind.INVALID, "this server has no provider of OpenID Connect (access.oidc)"
                )
            case _:
                raise CommandError(ErrorKind.INVALID, "give one of token, code and id_token")
        if maker.role is TokenRole.AGENT:
            told = "a token of role agent is for machines, and nobody can sign in with it; use one of another role"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        parent = maker.token or self._tokens.own_mark
        return await self._begin(maker, how, parent, "" if maker.user else called, sender, self._lasts)

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
        self, maker: Caller, how: SignInMethod, parent: str, called: str, sender: Sender, lasts: int
    ) -> NewSignIn:
        """Make the token of a sign-in with the rights of its maker."""
        account = parent or f"oidc:{maker.user}"
        if (pause := self._rates.pause(account)) > 0:
            told = f"too many sign-ins with this token; try again in {pause:.0f} s"
            raise CommandError(ErrorKind.LIMITED, told, (), pause)
        self._rates.take(account)
        text, who = draw_token(), maker.user or called or _NOBODY
        expires = self._loop.now() + lasts
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
        tokens = self._loop.state.tokens
        while (found := tokens.get(token)) is not None and found.parent:
            token = found.parent
        return token

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
