"""Creates a private certificate authority and a server certificate, for sites without an authority."""

import os
import re
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FILES: Final = ("ca.pem", "ca-key.pem", "server.pem", "server-key.pem")
AUTHORITY_DAYS: Final = 3650
LONGEST_NAME: Final = 64
"""Most characters of a common name."""
_DNS: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?", re.ASCII)
_EARLY: Final = timedelta(minutes=5)
"""How long before now a certificate becomes valid, as clocks differ."""


class CertificateTaken(Exception):
    """The files exist already."""


def make_certificates(
    out: Path,
    hosts: list[str],
    days: int,
    now: datetime | None = None,
    authority: str = "Spillover authority",
) -> None:
    """Write an authority and a certificate for some hosts into a folder; never overwrite a file."""
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    if there := [name for name in FILES if (out / name).exists()]:
        raise CertificateTaken(
            f"{out / there[0]} already exists; choose another folder with --out, or move the file"
        )
    at = now or datetime.now(UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _name(authority)
    ca = (
        _begin(ca_name, ca_name, ca_key.public_key(), at, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        _begin(_name(hosts[0][:LONGEST_NAME]), ca_name, key.public_key(), at, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    for name, body in zip(
        FILES, (ca.public_bytes(pem), _secret(ca_key), server.public_bytes(pem), _secret(key)), strict=True
    ):
        _write(out / name, body, 0o600 if "key" in name else 0o644)


def is_host(text: str) -> bool:
    """Return whether a certificate can be issued for this: a host name, also with a leading `*.`, or an address."""
    return _address(text) is not None or _DNS.fullmatch(text) is not None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _host(text: str) -> x509.GeneralName:
    """Return the certificate name of a host name or address."""
    address = _address(text)
    return x509.IPAddress(address) if address is not None else x509.DNSName(text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, at: datetime, days: int
) -> x509.CertificateBuilder:
    """Return a certificate builder with subject, issuer, key and validity."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _EARLY)
        .not_valid_after(at + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Return the usage of a key: to sign certificates, or for connections."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM without a password, as servers start unattended."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, body: bytes, mode: int) -> None:
    """Create a file with its final permissions from the start."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
