"""Checks who may send requests: Host and Origin headers, the token, and the name of the user.

A page in a browser can reach loopback. It does not know the token, and a foreign name that resolves to this server (DNS
rebinding) fails the check of Host.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from http import HTTPStatus
from typing import Final, TypeAlias

from spillover.api.http.problems import RequestRefused
from spillover.model.ids import NAME_RULE, is_name
from spillover.ports.callers import Caller, Callers, Stranger

Headers: TypeAlias = dict[bytes, bytes]
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
MOST_HEADERS: Final = 100
MOST_QUERY: Final = 8192
"""Most bytes of a query string."""
COOKIE: Final = "spill_sign_in"
"""The cookie with the token of a sign-in."""
ANONYMOUS: Final = "anonymous"
_UNREPEATED: Final = frozenset({b"host", b"origin", b"authorization", b"content-type", b"spill-user"})
"""Headers that would be ambiguous if repeated."""


class RequestGuard:
    """Checks the headers of each request before any other code."""

    def __init__(self, callers: Callers, hosts: Collection[str] = ()) -> None:
        self._callers = callers
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._known: set[bytes] = set()
        """Host headers that passed, so that the usual one costs one lookup. Bounded."""

    def answer_to(self, hosts: Collection[str]) -> None:
        """Accept more names of this server in Host headers."""
        self._hosts |= {host.lower() for host in hosts}

    def headers(self, pairs: Collection[tuple[bytes, bytes]], query: bytes) -> Headers:
        """Return the headers by name; refuse too many headers and too long queries."""
        if len(pairs) > MOST_HEADERS:
            raise RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MOST_HEADERS} headers; send fewer"
            )
        if len(query) > MOST_QUERY:
            raise RequestRefused(
                HTTPStatus.REQUEST_URI_TOO_LONG, f"the query is longer than {MOST_QUERY} bytes"
            )
        headers = dict(pairs)
        if len(headers) != len(pairs):
            for name in _UNREPEATED & headers.keys():
                if sum(1 for other, _ in pairs if other == name) > 1:
                    raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the header {name.decode()} is repeated")
        return headers

    def check_host(self, headers: Headers) -> None:
        """Refuse a Host that is not ours, and an Origin that is not this Host."""
        host = headers.get(b"host")
        if host is None:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "the header Host is missing")
        if host not in self._known:
            self._check_name(host)
        origin = headers.get(b"origin")
        if origin is not None and origin.lower().partition(b"://")[2] != host.lower():
            raise RequestRefused(HTTPStatus.FORBIDDEN, "cross-origin request refused")

    def _check_name(self, host: bytes) -> None:
        """Refuse a Host header that does not name this server, with or without a port."""
        text = host.decode("latin-1").lower()
        name, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            name, port = text, "0"
        # A certificate for *.example.org is valid for any single label before the first dot.
        alike = f"*.{name.partition('.')[2]}"
        if not (port.isascii() and port.isdigit()) or self._hosts.isdisjoint({name, text, alike}):
            raise RequestRefused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown Host; use localhost, or add the name to the server's configuration",
            )
        if len(self._known) < 64:
            self._known.add(host)

    def caller(self, headers: Headers, method: str = "GET") -> Caller:
        """Return the caller; refuse a request without a valid token. A header counts before a cookie."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if not scheme and (shown := cookie_in(headers, COOKIE)):
            return self._signed_in(shown, headers, method)
        detail = "the token is invalid" if scheme else "a token is required"
        if scheme.lower() == b"bearer":
            try:
                return self._callers.caller(given.strip().decode("latin-1"))
            except Stranger as stranger:
                detail = str(stranger)
        raise _stranger(detail)

    def _signed_in(self, shown: str, headers: Headers, method: str) -> Caller:
        """Return the caller with the cookie of a sign-in; refuse it if another site may have caused the request.

        Browsers send cookies by themselves. SameSite keeps those of other sites out, but not a program on another port
        of this host. Every browser of the last years says where a request comes from. `check_host` compared Origin.
        """
        site = headers.get(b"sec-fetch-site", b"").lower()
        reads = method in {"GET", "HEAD"}
        from_us = site == b"same-origin" or (not site and b"origin" in headers)
        if not from_us and not (reads and site in {b"", b"none"}):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                "cross-site request refused: a request with the cookie of a sign-in must come from the page of this server "
                "(Sec-Fetch-Site or Origin); programs send Authorization: Bearer with a token",
            )
        try:
            caller = self._callers.caller(shown)
        except Stranger as stranger:
            raise _signed_out(str(stranger)) from None
        if not caller.sign_in:
            raise _signed_out("the cookie holds no sign-in")
        return caller

    async def while_valid(self, caller: Caller, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks for a caller as long as its token is valid."""
        try:
            async for chunk in chunks:
                self.check_valid(caller)
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def check_valid(self, caller: Caller) -> None:
        """Refuse a caller whose token was accepted before and is no longer valid."""
        if not self._callers.is_valid(caller.token):
            raise _stranger(f"token {caller.token} is no longer valid")

    def user(self, headers: Headers, called: str = "") -> str:
        """Return the user that the request names, or else the sign-in."""
        given = headers.get(b"spill-user")
        if given is None:
            return called or ANONYMOUS
        user = given.decode("latin-1")
        if not is_name(user):
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"the header Spill-User is not a name: {NAME_RULE}", kind="invalid"
            )
        return user


def _stranger(detail: str) -> RequestRefused:
    """Return the refusal of a request without a valid token."""
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED,
        f"{detail}; send Authorization: Bearer with a token of `spill token create`, or the one in the file "
        "`token` of the server's data folder",
        headers={"www-authenticate": 'Bearer realm="spillover"'},
    )


def _signed_out(detail: str) -> RequestRefused:
    """Return the refusal of a request whose cookie is of no use."""
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED,
        f"you are signed out: {detail}; sign in again",
        headers={"www-authenticate": 'Bearer realm="spillover"'},
    )


def cookie_in(headers: Headers, wanted: str) -> str:
    """Return the value of a cookie; empty if there is none."""
    for each in headers.get(b"cookie", b"").split(b";"):
        name, _, value = each.strip().partition(b"=")
        if name == wanted.encode():
            return value.decode("latin-1")
    return ""
