"""Handles signing in and out. The token of a browser is in a cookie that no script can read."""

from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import parse_qsl

from spillover.api.http.guard import COOKIE, cookie_in
from spillover.api.http.pages import message
from spillover.api.http.parameters import MOST_FIELDS
from spillover.api.http.problems import refused
from spillover.api.http.replies import Reply, as_json
from spillover.api.http.routing import Request, Sent, serves
from spillover.control.requests.signing_in import START
from spillover.model.identity import CALLBACK
from spillover.model.units import format_time
from spillover.ports.callers import Stranger
from spillover.ports.commands import CommandError, Commands, ErrorKind, OidcReturn, Sender
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

FLOW: Final = 600
"""Seconds that a person may take at the provider."""
FLOW_COOKIE: Final = "spill_oidc"


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


async def sign_in_at_provider(
    commands: Commands, method: str, path: str, query: bytes, sent: Sent
) -> Reply | None:
    """Answer a browser that signs in at a provider, with redirects and pages; None for any other request."""
    if method != "GET" or path not in {START, CALLBACK}:
        return None
    try:
        return await (_begun if path == START else _finished)(commands, query, sent)
    except Stranger as stranger:
        told, status = str(stranger), int(HTTPStatus.UNAUTHORIZED)
    except CommandError as error:
        told, status = error.message, int(refused(error).status)
    gone = (b"set-cookie", _flow_cookie("", 0, sent))
    return message(
        "You are not signed in",
        [f"{told[:1].upper()}{told[1:]}."],
        status,
        (gone,),
        ("/sign-in", "Back to the sign-in"),
    )


async def _begun(commands: Commands, query: bytes, sent: Sent) -> Reply:
    """Send a browser to the provider."""
    del query
    start = await commands.begin_oidc(sent.url)
    try:
        location = start.location.encode("ascii")
    except UnicodeEncodeError:
        raise CommandError(ErrorKind.UNAVAILABLE, "the address of the provider is not ASCII") from None
    kept = (b"set-cookie", _flow_cookie(start.kept, FLOW, sent))
    return message("Sign in", [], HTTPStatus.SEE_OTHER, ((b"location", location), kept))


async def _finished(commands: Commands, query: bytes, sent: Sent) -> Reply:
    """Sign in the person whom the provider sent back.

    Browsers do not send a strict cookie with a request that another site caused, and that is also true of redirects in
    answer to it. So this is a page that goes on by itself.
    """
    try:
        given = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise CommandError(ErrorKind.INVALID, "the address cannot be read") from None
    error = ": ".join(each for each in (given.get("error"), given.get("error_description")) if each)
    back = OidcReturn(
        cookie_in(sent.headers, FLOW_COOKIE),
        given.get("state", ""),
        given.get("code", ""),
        error,
        given.get("iss", ""),
    )
    made = await commands.finish_oidc(back, sent.url, sender_of(sent))
    headers = (
        (b"set-cookie", cookie(sent, made.text, made.lasts, secure=made.secure)),
        (b"set-cookie", _flow_cookie("", 0, sent)),
        (b"refresh", b"0;url=/"),
    )
    return message("Signed in", [f"You are {made.shown.user}."], HTTPStatus.OK, headers, ("/", "Go on"))


def _flow_cookie(text: str, lasts: int, sent: Sent) -> bytes:
    """Return the cookie that a browser keeps while it is at the provider, whose redirect back has to bring it."""
    secure = "; Secure" if sent.is_secure else ""
    return f"{FLOW_COOKIE}={text}; Path={START}; Max-Age={lasts}; HttpOnly; SameSite=Lax{secure}".encode()


def link_of(url: str, code: str) -> str:
    """Return the address that signs its reader in. Browsers do not send what follows `#`."""
    return f"{url}/sign-in#{code}"


def cookie(sent: Sent, text: str, lasts: int, *, secure: bool = False) -> bytes:
    """Return the cookie with a token for so many seconds; other sites cannot make a browser send it."""
    alone = "; Secure" if secure or sent.is_secure else ""
    return f"{COOKIE}={text}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{alone}".encode()


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
