"""Creates the identities of a cluster: CA, certificates of its programs, key of service accounts, and kubeconfigs."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillover.server.certificates import make_certificates

DAYS: Final = 30
"""Validity of certificates; test clusters last for minutes."""
ADMINS: Final = "system:masters"
"""The group with full access, regardless of roles."""


class Identities:
    """A CA in a folder, with the certificates that it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        hosts = ["127.0.0.1", "localhost", "kubernetes.default.svc"]
        make_certificates(folder, hosts, DAYS, authority=f"{name} authority")
        self.ca = folder / "ca.pem"
        self.server, self.server_key = folder / "server.pem", folder / "server-key.pem"
        self.tokens_key = folder / "tokens-key.pem"
        """Signs the tokens of service accounts."""
        self.tokens_key.write_bytes(_pem(ec.generate_private_key(ec.SECP256R1())))
        self._authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._authority_key = key

    def certify(self, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Create a client certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group is not None:
            names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(self._authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=DAYS))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._authority_key, hashes.SHA256())
        )
        path = self._folder / f"{user.rpartition(':')[2]}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path = path.with_name(f"{path.stem}-key.pem")
        key_path.write_bytes(_pem(key))
        return path, key_path


@dataclass(frozen=True)
class Access:
    """One context of a kubeconfig."""

    context: str
    url: str
    ca: Path
    token: str | None = None
    certificate: tuple[Path, Path] | None = None
    namespace: str = "default"


def write_kubeconfig(path: Path, contexts: Sequence[Access]) -> Path:
    """Write a kubeconfig that needs no other file; its first context is the current one."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0].context,
        "clusters": [
            {
                "name": each.context,
                "cluster": {"server": each.url, "certificate-authority-data": _inline(each.ca)},
            }
            for each in contexts
        ],
        "users": [{"name": each.context, "user": _user(each)} for each in contexts],
        "contexts": [
            {
                "name": each.context,
                "context": {"cluster": each.context, "user": each.context, "namespace": each.namespace},
            }
            for each in contexts
        ],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _user(access: Access) -> dict[str, str]:
    user = {} if access.token is None else {"token": access.token}
    if access.certificate is not None:
        certificate, key = access.certificate
        user |= {"client-certificate-data": _inline(certificate), "client-key-data": _inline(key)}
    return user


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # Every program of Kubernetes can read this format, for tokens too.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
