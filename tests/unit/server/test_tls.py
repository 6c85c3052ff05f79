"""Certificates: made so that they are believed, read with the names that they are good for."""

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from msgspec.structs import replace

from spillover.config.config import Address, Tls
from spillover.server.certificates import CertificateTaken, is_host, make_certificates
from spillover.server.tls import BadCertificate, Identity, load_identity


def tls_in(folder: Path) -> Tls:
    return Tls(str(folder / "server.pem"), str(folder / "server-key.pem"), str(folder / "ca.pem"))


def an_identity(*names: str) -> Identity:
    return Identity(Path("c"), Path("k"), None, names)


def test_what_is_made_can_be_served_and_has_its_names(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["Build.example", "10.0.0.5", "::1", "*.lab.example"], 10)
    identity = load_identity(tls_in(tmp_path), time.time())
    assert identity.names == ("build.example", "*.lab.example", "10.0.0.5", "::1")
    assert identity.hosts() == ("build.example", "*.lab.example", "10.0.0.5", "[::1]")
    assert identity.ca == tmp_path / "ca.pem"
    key, cert = identity.pair()
    assert b"PRIVATE KEY" in key
    assert b"BEGIN CERTIFICATE" in cert


def test_the_authority_vouches_for_its_certificate_and_signs_no_other_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"], 10)
    ca, server = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("ca.pem", "server.pem")
    )
    server.verify_directly_issued_by(ca)
    limits = ca.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    strict = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")
    assert _shake_hands(strict, context) == "localhost"


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Let both speak to each other without a socket; the name that was believed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for each in (asking, answering):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(asking.server_hostname) if asking.getpeercert() else ""


def test_nothing_is_overwritten_not_even_in_part(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("mine")
    with pytest.raises(CertificateTaken, match=r"server\.pem already exists"):
        make_certificates(tmp_path, ["localhost"], 10)
    assert [path.name for path in tmp_path.iterdir()] == ["server.pem"]


@pytest.mark.parametrize("name", ["a", "a.b-c.example", "10.0.0.5", "::1", "*.lab.example", "X1"])
def test_names_and_addresses_are_hosts(name: str) -> None:
    assert is_host(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a:80", "https://a", "-a", "a-", "*", "a.*.b", "a_b", "é"])
def test_anything_else_is_not(name: str) -> None:
    assert not is_host(name)


def test_a_certificate_that_has_expired_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"], 10)
    load_identity(tls_in(tmp_path), time.time() + 9 * 86_400)
    with pytest.raises(BadCertificate, match="expired on 2"):
        load_identity(tls_in(tmp_path), time.time() + 11 * 86_400)


def test_those_here_reach_the_server_by_a_name_that_its_certificate_has() -> None:
    every, here, away = Address("0.0.0.0", 1), Address("127.0.0.1", 1), Address("10.0.0.5", 1)
    made = an_identity("build.example", "127.0.0.1", "10.0.0.5")
    assert (made.called(every), made.called(here), made.called(away)) == (
        "127.0.0.1",
        "127.0.0.1",
        "10.0.0.5",
    )
    own = an_identity("*.example", "build.example")
    assert {own.called(address) for address in (every, here, away)} == {"build.example"}
    assert an_identity("localhost").called(every) == "localhost"
    assert an_identity("*.example").called(away) == "10.0.0.5"


def test_machines_that_know_no_authority_trust_a_certificate_by_its_digest(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["one.example"], 5)
    identity = load_identity(tls_in(tmp_path), time.time())
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    assert identity.pin() == certificate.fingerprint(hashes.SHA256()).hex()
    assert identity.authority() == (tmp_path / "ca.pem").read_bytes()
    assert replace(identity, ca=None).authority() == b""
