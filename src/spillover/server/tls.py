"""The certificate of a server: read and checked before anything listens, with the names that it is good for."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from spillover.config.config import Address, Tls

if TYPE_CHECKING:
    from cryptography import x509

LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
    return Identity(paths["cert"].resolve(), paths["key"].resolve(), ca, _names(certificate))


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
