"""The certificate of a server: read and checked before anything listens, with the names that it is good for, and again when it changes."""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog
from msgspec import Struct

from spillover.config.config import Address, Tls
from spillover.model.units import SECOND

if TYPE_CHECKING:
    from cryptography import x509

log = structlog.get_logger()

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOOK: Final = 60.0
"""Seconds between two looks at the files."""
Shown: TypeAlias = Callable[["Identity"], None]
"""Called with what is to be shown from now on; raises OSError, as ssl does, if it cannot be."""


class BadCertificate(Exception):
    """Files that no server can speak TLS with; the message says why and what to do."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(f"{setting}: {message}")
        self.setting = setting
        """Of the configuration: `tls`, or one of it as `tls.cert`."""
        self.message = message


class Identity(Struct, frozen=True):
    """Who the server is, to those who ask it over TLS."""

    cert: Path
    key: Path
    ca: Path | None
    names: tuple[str, ...]
    """Host names and addresses that the certificate is good for."""

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let a context show the certificate, to those who connect from now on."""
        context.load_cert_chain(self.cert, self.key, password=_none)

    def pair(self) -> tuple[bytes, bytes]:
        """Key and certificate, PEM."""
        return self.key.read_bytes(), self.cert.read_bytes()

    def called(self, address: Address) -> str:
        """The host by which those on this machine reach an address that the certificate is good for, if there is one."""
        here = [] if address.is_any else [address.host]
        here += LOOPBACK if address.is_any or address.is_loopback else ()
        plain = [name for name in self.names if not name.startswith("*")]
        return next((host for host in here if host in self.names), (plain or here or [address.host])[0])

    def hosts(self) -> tuple[str, ...]:
        """Names as they stand in the header Host."""
        return tuple(f"[{name}]" if ":" in name else name for name in self.names)


def load_identity(tls: Tls, now: float) -> Identity:
    """The certificate and what is to be known of it, as of some seconds after 1970; raises BadCertificate."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and only for servers with TLS

    paths = {"cert": Path(tls.cert), "key": Path(tls.key)} | (
        {"ca": Path(tls.ca)} if tls.ca is not None else {}
    )
    for what, path in paths.items():
        try:
            path.read_bytes()
        except OSError as error:
            hint = "; `spill cert init` makes one" if isinstance(error, FileNotFoundError) else ""
            raise BadCertificate(f"tls.{what}", f"{path}: {error.strerror}{hint}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(paths["cert"], paths["key"], password=_none)
        certificate = x509.load_pem_x509_certificates(paths["cert"].read_bytes())[0]
        if "ca" in paths:
            ssl.create_default_context(cafile=paths["ca"])
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate("tls", _reason(error, tls)) from None
    if certificate.not_valid_after_utc.timestamp() <= now:
        ended = certificate.not_valid_after_utc.date().isoformat()
        raise BadCertificate(
            "tls.cert", f"{tls.cert} expired on {ended}; make a new one, as with `spill cert init`"
        )
    ca = paths["ca"].resolve() if "ca" in paths else None
    # Links are not followed yet: who renews certificates may let them point elsewhere.
    return Identity(paths["cert"].absolute(), paths["key"].absolute(), ca, _names(certificate))


class CertificateRenewal:
    """Sees to it that a new certificate is shown to whoever connects from then on; connections that are there stay as they are."""

    def __init__(self, identity: Identity, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        """Nanoseconds UTC."""
        self.identity = identity
        """What is shown now."""
        self._shown: list[Shown] = []
        self._seen = _stamps(identity)
        self._pair = identity.pair()

    def pair(self) -> tuple[bytes, bytes]:
        """Key and certificate that are shown now, PEM."""
        return self._pair

    def on_change(self, shown: Shown) -> None:
        """Have something done with each new certificate."""
        self._shown.append(shown)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look(self._now() / SECOND)

    def look(self, now: float) -> bool:
        """Show what is in the files, if that is new; what cannot be used is told, and looked at again when it changes."""
        seen = _stamps(self.identity)
        if seen == self._seen:
            return False
        self._seen = seen
        old = self.identity
        try:
            tls = Tls(str(old.cert), str(old.key), None if old.ca is None else str(old.ca))
            found = load_identity(tls, now)
            pair = found.pair()
            for shown in self._shown:
                shown(found)
        except (BadCertificate, OSError) as error:
            log.warning("a new certificate cannot be used; the one before is shown", error=str(error))
            return False
        self.identity, self._pair = found, pair
        log.info("a new certificate is shown", names=found.names)
        return True


def _stamps(identity: Identity) -> tuple[object, ...]:
    """What changes when the files do."""
    found: list[object] = []
    for path in (identity.cert, identity.key):
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _none() -> bytes:
    """The password of a key; nobody could type it."""
    return b""


def _reason(error: Exception, tls: Tls) -> str:
    """What is wrong with files that could be read."""
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{tls.key} is not the key of {tls.cert}"
    return f"{tls.cert}, {tls.key} or the authority is not a PEM file of the right kind, without a password"


def _names(certificate: "x509.Certificate") -> tuple[str, ...]:
    """What the certificate says it is good for."""
    from cryptography import x509  # noqa: PLC0415 - as above

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    names = [name.lower() for name in found.get_values_for_type(x509.DNSName)]
    return (*names, *(str(address) for address in found.get_values_for_type(x509.IPAddress)))
