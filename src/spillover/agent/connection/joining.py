"""Joins a server from a file that was made for one machine, as rented machines do.

Such a machine knows nothing of the server's authority. It trusts one certificate, by its SHA-256: the **pin**. gRPC cannot
check that, so the agent first gets the certificate in a handshake that trusts nobody and sends nothing, compares it, and
then connects with this certificate as the only one that it trusts.

The token of the file works once. The answer to the first registration has another token, which the agent keeps in its
memory: tasks may be able to read every file that the agent can. It also has the authority of the server, which may
have another certificate later.
"""

import asyncio
import ctypes
import hmac
import logging
import os
import ssl
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import FieldInfo, fields

from spillover.agent.connection.finding import NotFound, Target, checked, published
from spillover.model.ids import NAME_RULE, is_name
from spillover.ports.provider import Join

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MOST_FILE: Final = 64 << 10
"""Bytes. Such a file has some hundred."""
PIN_LENGTH: Final = 64
HANDSHAKE: Final = 10.0
"""Seconds to get the server's certificate."""
STDIN: Final = "-"
_PR_SET_DUMPABLE: Final = 4

log = logging.getLogger("spillover.agent")


def read_join(named: str) -> Join:
    """Read what an agent needs to join from a file, or from standard input if it is `-`.

    Raises ValueError with all problems, one a line.
    """
    source = "standard input" if named == STDIN else named
    try:
        data = sys.stdin.buffer.read(MOST_FILE + 1) if named == STDIN else Path(named).read_bytes()
    except OSError as error:
        raise ValueError(f"--join {named}: {error.strerror}") from None
    try:
        if len(data) > MOST_FILE:
            raise ValueError(f"--join: {source} has more than {MOST_FILE >> 10} KiB")
        given = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"--join: {source} is not a JSON object: {error}") from None
    if wrong := _problems(given):
        raise ValueError("\n".join(f"--join: {source}: {problem}" for problem in wrong))
    return msgspec.convert(given, Join)


def _problems(given: dict[str, Any]) -> list[str]:
    """Return what is wrong with the fields of such a file."""
    wrong: list[str] = []
    for each in fields(Join):
        if each.name not in given:
            if each.required:
                wrong.append(f"has no {each.name!r}")
            continue
        wrong += _problem(each, given[each.name])
    if wrong:
        return wrong
    wrong += [f"{key!r} is not {NAME_RULE}" for key in ("cluster", "name") if not is_name(given[key])]
    host, _, port = given["server"].rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        wrong.append(f"'server' is {given['server'][:80]!r}, which is not HOST:PORT")
    if not given["token"].isascii() or not given["token"].isprintable():
        wrong.append("'token' has characters that no token has")
    pin = given.get("pin", "")
    if pin and (len(pin) != PIN_LENGTH or not set(pin.lower()) <= set("0123456789abcdef")):
        wrong.append(f"'pin' is not the SHA-256 of a certificate, {PIN_LENGTH} hexadecimal digits")
    return wrong


def _problem(field: FieldInfo, value: object) -> list[str]:
    """Return what is wrong with the type of a field."""
    if field.type is int:
        valid = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return [] if valid else [f"{field.name!r} is not a number of nanoseconds"]
    if not isinstance(value, str):
        return [f"{field.name!r} is not text"]
    return [f"{field.name!r} is empty"] if field.required and not value else []


def hide_memory() -> None:
    """Keep other processes of the same user, such as tasks, from reading the memory of this one, unless it is root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        log.warning("tasks may be able to read the memory of this agent: %s", os.strerror(ctypes.get_errno()))


class ByJoin:
    """Finds the server of a machine that was made to join it."""

    def __init__(self, join: Join, server_file: Path | None = None) -> None:
        self._join = join
        self._server_file = server_file
        """Where a server on this machine publishes its addresses, which may change; None uses that of the join."""
        self._known: Target | None = None
        """The server that answered last, to try once more; None looks at its certificate again."""
        self._token = join.token
        self._authority: bytes | None = None
        """PEM of the server's authority, empty for those of the system; None until the server has told."""
        self._keep: Callable[[str, bytes], None] = _keep_nothing
        self._shown_as = ""
        """A name in the certificate with the pin."""

    async def find(self) -> Target:
        """See ServerFinder."""
        join = self._join
        if self._server_file is not None:
            return published(self._server_file, self._token)
        known, self._known = self._known, None
        if known is not None:
            return known
        if not join.pin:
            return checked(Target(join.server, self._token))
        shown = await _certificate(join.server)
        if not hmac.compare_digest(sha256(shown).hexdigest(), join.pin.lower()):
            if self._authority is not None:  # the certificate was replaced
                ca, name = self._authority or None, self._shown_as
                return Target(join.server, self._token, tls=True, ca=ca, shown_as=name)
            raise NotFound(
                f"the certificate of {join.server} is not the one that this machine was told to trust",
                slow=True,
            )
        self._shown_as = _name_in(shown)
        return Target(join.server, self._token, tls=True, ca=_pem(shown), shown_as=self._shown_as)

    def found(self, target: Target) -> None:
        """See ServerFinder."""
        self._known = target

    def exchanged(self, token: str, authority: bytes) -> None:
        """See ServerFinder."""
        self._token, self._authority = token, authority
        self._keep(token, authority)

    def on_exchange(self, keep: Callable[[str, bytes], None]) -> None:
        """Pass tokens that the server gives from now on, and its authority, to a function that stores them."""
        self._keep = keep


def _keep_nothing(token: str, authority: bytes) -> None:
    """Leave the token in memory only."""
    del token, authority


async def _certificate(address: str) -> bytes:
    """Return the certificate that a server shows, DER; raise NotFound if it shows none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the pin decides, not this handshake
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(HANDSHAKE):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
        shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
    except TimeoutError:
        raise NotFound(f"{address} does not answer") from None
    except ssl.SSLError as error:
        raise NotFound(f"{address} does not speak TLS: {error.reason or error}") from None
    except OSError as error:
        raise NotFound(f"{address} cannot be reached: {error.strerror or error}") from None
    if shown is None:
        raise NotFound(f"{address} shows no certificate")
    return shown


def _pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode()


def _name_in(der: bytes) -> str:
    """Return a name or address of a certificate, for gRPC, which compares names; empty if it has none."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and only with a pin
    from cryptography.x509.oid import NameOID  # noqa: PLC0415 - likewise

    certificate: Certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(common[0].value) if common else ""
    found = [name.replace("*", "any") for name in names.get_values_for_type(x509.DNSName)]
    return (found + [str(address) for address in names.get_values_for_type(x509.IPAddress)] + [""])[0]
