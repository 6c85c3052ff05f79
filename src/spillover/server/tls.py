"""Loads and checks the server's certificate before anything listens, and reloads it when it changes."""

import asyncio
import ssl
import time
from collections.abc import Callable
from hashlib import sha256
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
"""Seconds between two checks of the files."""
Shown: TypeAlias = Callable[["Identity"], None]
"""Called with a new certificate; raises OSError, as ssl does, if it cannot be used."""


class BadCertificate(Exception):
    """The files cannot be used for TLS; the message says why and what to do."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(f"{setting}: {message}")
        self.setting = setting
        """The setting at fault: `tls`, or a part such as `tls.cert`."""
        self.message = message


class Identity(Struct, frozen=True):
    """The server's certificate and its host names."""

    cert: Path
    key: Path
    ca: Path | None
    names: tuple[str, ...]
    """Host names and addresses in the certificate."""

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use the certificate in a context, for new connections."""
        context.load_cert_chain(self.cert, self.key, password=_none)

    def pin(self) -> str:
        """Return the SHA-256 of the certificate, hexadecimal, by which machines that know no authority trust it."""
        first, mark, _ = self.cert.read_text().partition("-----END CERTIFICATE-----")
        return sha256(ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN") :] + mark)).hexdigest()

    def authority(self) -> bytes:
        """Return the authority to trust as PEM; empty if the system knows it."""
        return b"" if self.ca is None else self.ca.read_bytes()

    def pair(self) -> tuple[bytes, bytes]:
        """Return key and certificate as PEM."""
        return self.key.read_bytes(), self.cert.read_bytes()

    def called(self, address: Address) -> str:
        """Return a host for an address on this machine; one in the certificate if possible."""
        here = [] if address.is_any else [address.host]
        here += LOOPBACK if address.is_any or address.is_loopback else ()
        plain = [name for name in self.names if not name.startswith("*")]
        return next((host for host in here if host in self.names), (plain or here or [address.host])[0])

    def hosts(self) -> tuple[str, ...]:
        """Return names in the form of the Host header."""
        return tuple(f"[{name}]" if ":" in name else name for name in self.names)


def load_identity(tls: Tls, now: float) -> Identity:
    """Load a certificate and check it at a time, in seconds since 1970; raise BadCertificate."""
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
            "tls.cert", f"{tls.cert} expired on {ended}; make a new one, such as with `spill cert init`"
        )
    ca = paths["ca"].resolve() if "ca" in paths else None
    # Do not resolve links, as a renewal may change where they point.
    return Identity(paths["cert"].absolute(), paths["key"].absolute(), ca, _names(certificate))


class CertificateRenewal:
    """Uses renewed certificates for new connections; existing ones are not affected."""

    def __init__(self, identity: Identity, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        """Returns nanoseconds UTC."""
        self.identity = identity
        """The certificate in use."""
        self._shown: list[Shown] = []
        self._seen = _stamps(identity)
        self._pair = identity.pair()

    def pair(self) -> tuple[bytes, bytes]:
        """Return key and certificate in use, as PEM."""
        return self._pair

    def on_change(self, shown: Shown) -> None:
        """Call a function with each new certificate."""
        self._shown.append(shown)

    async def run(self) -> None:
        """Check the files regularly, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look(self._now() / SECOND)

    def look(self, now: float) -> bool:
        """Use the files if they changed and are valid; return whether they are used."""
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
            log.warning("cannot use the new certificate; keeping the old one", error=str(error))
            return False
        self.identity, self._pair = found, pair
        log.info("using a new certificate", names=found.names)
        return True


def _stamps(identity: Identity) -> tuple[object, ...]:
    """Return values that change when the files do."""
    found: list[object] = []
    for path in (identity.cert, identity.key):
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _none() -> bytes:
    """Return an empty password, so that OpenSSL does not prompt for one."""
    return b""


def _reason(error: Exception, tls: Tls) -> str:
    """Return what is wrong with readable files."""
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{tls.key} is not the key of {tls.cert}"
    return f"{tls.cert}, {tls.key} or the authority is not a PEM file of the right kind, without a password"


def _names(certificate: "x509.Certificate") -> tuple[str, ...]:
    """Return the host names and addresses in a certificate."""
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    names = [name.lower() for name in found.get_values_for_type(x509.DNSName)]
    return (*names, *(str(address) for address in found.get_values_for_type(x509.IPAddress)))
