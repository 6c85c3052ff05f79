"""Who may ask at all: the names this server answers to, pages of other sites, the token, and who the caller says it is.

A page in a browser can reach loopback. It cannot know the token, and a name that was pointed here (DNS rebinding) fails on Host.
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
"""Bytes of a query string."""
ANONYMOUS: Final = "anonymous"
_UNREPEATED: Final = frozenset({b"host", b"origin", b"authorization", b"content-type", b"spill-user"})
"""Headers whose meaning a second one would make unclear."""


class RequestGuard:
    """Checks the headers of each request before anything else looks at it."""

    def __init__(self, callers: Callers, hosts: Collection[str] = ()) -> None:
        self._callers = callers
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._known: set[bytes] = set()
        """Host headers that were found good, so that the usual one costs one lookup; bounded."""

    def answer_to(self, hosts: Collection[str]) -> None:
        """Some more names are ours from now on."""
        self._hosts |= {host.lower() for host in hosts}

    def headers(self, pairs: Collection[tuple[bytes, bytes]], query: bytes) -> Headers:
        """The headers by name, once their number and the query's size are fine."""
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
                    raise RequestRefused(
                        HTTPStatus.BAD_REQUEST, f"the header {name.decode()} is there more than once"
                    )
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
            raise RequestRefused(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")

    def _check_name(self, host: bytes) -> None:
        """Whether a Host header names this server, with or without a port."""
        text = host.decode("latin-1").lower()
        name, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            name, port = text, "0"
        # A certificate for *.example.org is good for any one word before the first dot.
        alike = f"*.{name.partition('.')[2]}"
        if not (port.isascii() and port.isdigit()) or self._hosts.isdisjoint({name, text, alike}):
            raise RequestRefused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server does not answer to that Host; ask it as localhost, or add the name to its configuration",
            )
        if len(self._known) < 64:
            self._known.add(host)

    def caller(self, headers: Headers) -> Caller:
        """Who asks; whoever shows no token that is valid is refused."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        detail = "the token is wrong" if scheme else "a token is needed"
        if scheme.lower() == b"bearer":
            try:
                return self._callers.caller(given.strip().decode("latin-1"))
            except Stranger as stranger:
                detail = str(stranger)
        raise _stranger(detail)

    async def while_valid(self, caller: Caller, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What is sent to a caller, as long as its token is good."""
        try:
            async for chunk in chunks:
                if not self._callers.is_valid(caller.token):
                    raise _stranger(f"the token {caller.token} is not valid any more")
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def user(self, headers: Headers) -> str:
        """Who the caller says it is."""
        given = headers.get(b"spill-user")
        if given is None:
            return ANONYMOUS
        user = given.decode("latin-1")
        if not is_name(user):
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"the header Spill-User is not a name: {NAME_RULE}", kind="invalid"
            )
        return user


def _stranger(detail: str) -> RequestRefused:
    """The answer to whoever shows no token that is valid."""
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED,
        f"{detail}; send Authorization: Bearer with a token that `spill token create` printed, or with what the file `token` "
        "in the server's data folder holds",
        headers={"www-authenticate": 'Bearer realm="spillover"'},
    )
