"""Handles signing in and out. The token of a browser is in a cookie that no script can read."""

from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from spillover.api.http.guard import COOKIE
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import HttpRoute, Request, Sent, serves
from spillover.model.units import format_time
from spillover.ports.commands import Sender
from spillover.wire import endpoints
from spillover.wire.api import (
    Me,
    SignInLink,
    SignInMethods,
    SignInRef,
    SignInRequest,
    SignInView,
)
from spillover.wire.parameters import NoParameters


@serves(endpoints.SIGN_IN)
async def sign_in(request: Request[NoParameters, SignInRequest]) -> Reply:
    """Sign a person in."""
    made = await request.commands.sign_in(request.body, sender_of(request.sent), request.user)
    reply = as_json(made.shown, endpoints.SIGN_IN.status)
    if made.shown.token is not None:  # for a program
        return reply
    return reply.with_header(b"set-cookie", cookie(request.sent, made.text, made.lasts))


@serves(endpoints.SIGN_OUT)
async def sign_out(request: Request[NoParameters, None]) -> Reply:
    """End the sign-in of the caller."""
    ended = SignInRef(await request.commands.sign_out(request.user))
    return as_json(ended).with_header(b"set-cookie", cookie(request.sent, "", 0))


@serves(endpoints.SIGN_IN_METHODS)
async def sign_in_methods(request: Request[NoParameters, None]) -> SignInMethods:
    """Show how people can sign in."""
    return await request.commands.sign_in_methods()


@serves(endpoints.SIGN_IN_LINK)
async def sign_in_link(request: Request[NoParameters, None]) -> SignInLink:
    """Make a link that signs its reader in as the caller, once."""
    code, until = await request.commands.sign_in_link(request.user)
    return SignInLink(code, link_of(request.sent.url, code), format_time(until))


@serves(endpoints.ME)
async def me(request: Request[NoParameters, None]) -> Me:
    """Show who the caller is."""
    return await request.commands.me(request.user)


@serves(endpoints.SIGN_INS)
async def sign_ins(request: Request[NoParameters, None]) -> list[SignInView]:
    """List sign-ins."""
    return await request.commands.sign_ins()


@serves(endpoints.REVOKE_SIGN_IN)
async def revoke_sign_in(request: Request[NoParameters, SignInRef]) -> SignInRef:
    """End a sign-in."""
    await request.commands.revoke_sign_in(request.body.id, request.user)
    return request.body


def link_of(url: str, code: str) -> str:
    """Return the address that signs its reader in. Browsers do not send what follows `#`."""
    return f"{url}/sign-in#{code}"


def cookie(sent: Sent, text: str, lasts: int) -> bytes:
    """Return the cookie with a token for so many seconds; other sites cannot make a browser send it."""
    secure = "; Secure" if sent.is_secure else ""
    return f"{COOKIE}={text}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}".encode()


def sender_of(sent: Sent) -> Sender:
    """Return where a request came from; of an IPv6 address only the network, because a person has the whole network."""
    try:
        address = ip_address(sent.peer)
    except ValueError:
        peer = sent.peer
    else:
        whole = isinstance(address, IPv6Address) and address.ipv4_mapped is None
        peer = f"{IPv6Address(int(address) >> 64 << 64)}/64" if whole else str(address)
    return Sender(peer, sent.program)


ROUTES: Final[tuple[HttpRoute[Any, Any], ...]] = tuple(
    bound for bound in globals().values() if isinstance(bound, HttpRoute)
)
"""All routes that are bound above."""
