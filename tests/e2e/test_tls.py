"""A real server that speaks TLS, on loopback and on another address of this machine; what fails is one clear line."""

import json
import os
import re
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spillover.client import Client
from spillover.server.certificates import make_certificates
from tests.support.fork_server import fork_server
from tests.support.processes import ServerProcess, clean_environment, free_ports, wait_until

CLUSTERS = [{"name": "onprem", "local": [{"name": "n1", "cpu": 1}]}]


def spill(folder: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Type a command somewhere, with nothing but some variables set."""
    return fork_server().run(words, folder=folder, environment=clean_environment() | environment)


def refused(done: "subprocess.CompletedProcess[str]", says: str) -> None:
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("spill: ")
    assert says in line


def own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Made by the command, for this machine."""
    hosts = [word for address in (own_address(), "build.example") if address for word in ("--host", address)]
    made = spill(tmp_path, "cert", "init", "--out", "tls", *hosts)
    assert made.returncode == 0, made
    return tmp_path / "tls"


def tls_of(folder: Path) -> dict[str, str]:
    return {
        "cert": str(folder / "server.pem"),
        "key": str(folder / "server-key.pem"),
        "ca": str(folder / "ca.pem"),
    }


def test_certificates_are_made_once_for_their_owner_alone(certificates: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in certificates.iterdir()}
    assert modes["ca-key.pem"] == modes["server-key.pem"] == 0o600
    assert set(modes) == {"ca.pem", "ca-key.pem", "server.pem", "server-key.pem"}
    before = {path: path.read_bytes() for path in certificates.iterdir()}
    refused(spill(certificates.parent, "cert", "init", "--out", "tls"), "already exists")
    assert {path: path.read_bytes() for path in certificates.iterdir()} == before
    refused(
        spill(certificates.parent, "cert", "init", "--out", "x", "--host", "a b"),
        "is not a host name or address",
    )
    refused(spill(certificates.parent, "cert", "init", "--out", "x", "--days", "9999"), "--days")


def test_beside_the_data_folder_everything_works_as_without_tls(
    servers: Callable[..., ServerProcess], certificates: Path
) -> None:
    server = servers(clusters=CLUSTERS, tls=tls_of(certificates)).up()
    assert server.url.startswith("https://127.0.0.1:")
    where = json.loads((server.data / "server.json").read_text())
    assert (where["http"], where["ca"]) == (server.url, str(certificates / "ca.pem"))
    ran = server.spill("run", "--wait", "--", "echo", "hello")
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran
    with Client(data=server.data) as client:
        assert client.ready() is None
    with Client(
        server.url, token=(server.data / "token").read_text().strip(), ca=certificates / "ca.pem"
    ) as client:
        assert [agent.name for agent in client.agents()] == ["n1"]
    server.stop()
    server.up()
    assert server.spill("ls").returncode == 0


def test_a_server_is_asked_by_an_address_that_is_not_loopback(
    servers: Callable[..., ServerProcess], certificates: Path, tmp_path: Path
) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has loopback addresses only")
    http, grpc = free_ports(2)
    server = servers(
        clusters=CLUSTERS, tls=tls_of(certificates), http=f"0.0.0.0:{http}", grpc=f"0.0.0.0:{grpc}"
    ).up()
    away = tmp_path / "away"
    away.mkdir()
    url, token = f"https://{address}:{http}", (server.data / "token").read_text().strip()
    ca = str(certificates / "ca.pem")
    ran = spill(away, "run", "--wait", "--", "echo", "hi", SPILL_SERVER=url, SPILL_TOKEN=token, SPILL_CA=ca)
    assert (ran.returncode, ran.stdout) == (0, "hi\n"), ran
    done = spill(away, "ls", "--server", url, "--ca", ca, SPILL_TOKEN=token)
    assert done.returncode == 0
    server.stop()
    only = servers(
        folder=tmp_path / "only",
        clusters=CLUSTERS,
        tls=tls_of(certificates),
        http=f"{address}:{http}",
        grpc=f"{address}:{grpc}",
    ).up()
    assert only.url == url
    assert only.spill("run", "--wait", "--", "true").returncode == 0


def test_what_is_wrong_with_trust_is_one_clear_line(
    servers: Callable[..., ServerProcess], certificates: Path, tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS, tls=tls_of(certificates)).up()
    token = (server.data / "token").read_text().strip()
    stranger = tmp_path / "stranger"
    make_certificates(stranger, ["localhost"], 5, authority="Somebody else")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")

    def ls(url: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return spill(tmp_path, "ls", "--server", url, *options, SPILL_TOKEN=token)

    refused(ls(server.url), "is not trusted, because no CA of this system signed it; name its CA with --ca")
    refused(ls(server.url, "--ca", str(stranger / "ca.pem")), "did not sign it")
    refused(ls(server.url, "--ca", str(junk)), f"{junk} has no CA certificate")
    refused(ls(server.url, "--ca", str(tmp_path / "none.pem")), "No such file")
    refused(
        ls(server.url.replace("https", "http"), "--ca", str(certificates / "ca.pem")),
        "if it speaks TLS, write https://",
    )
    plain = servers(folder=tmp_path / "plain", clusters=CLUSTERS).up()
    refused(
        ls(plain.url.replace("http", "https"), "--ca", str(certificates / "ca.pem")),
        "does not speak TLS; write http://",
    )
    assert ls(server.url, "--ca", str(certificates / "ca.pem")).returncode == 0


@contextmanager
def speaking_tls(folder: Path) -> Iterator[int]:
    """Something that shows a certificate to whoever connects, and says no more; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def test_a_certificate_that_is_old_or_of_another_name_is_told_apart(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    cases = {
        "old": (["127.0.0.1"], now - timedelta(days=30), "is not valid now: certificate has expired"),
        "early": (["127.0.0.1"], now + timedelta(days=30), "is not valid now"),
        "other": (["build.example"], now, "is for another name"),
    }
    for name, (hosts, at, says) in cases.items():
        folder = tmp_path / name
        make_certificates(folder, hosts, 5, at)
        with speaking_tls(folder) as port:
            url, ca = f"https://127.0.0.1:{port}", str(folder / "ca.pem")
            refused(spill(tmp_path, "ls", "--server", url, "--ca", ca, SPILL_TOKEN="x"), says)


def test_a_server_does_not_start_with_what_cannot_work(
    servers: Callable[..., ServerProcess], certificates: Path, tmp_path: Path
) -> None:
    old, other = tmp_path / "old", tmp_path / "other"
    make_certificates(old, ["localhost"], 5, datetime.now(UTC) - timedelta(days=30))
    make_certificates(other, ["localhost"], 5)
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    good = tls_of(certificates)
    cases: list[tuple[dict[str, object], str]] = [
        ({"http": "0.0.0.0:0"}, "'0.0.0.0' is not a loopback address and needs TLS"),
        ({"grpc": "[::]:0"}, "'::' is not a loopback address and needs TLS"),
        ({"http": "192.0.2.7:0"}, "is not a loopback address and needs TLS"),
        (
            {"tls": good | {"cert": "none.pem"}},
            "tls.cert: none.pem: No such file or directory; `spill cert init` makes one",
        ),
        ({"tls": good | {"key": str(other / "server-key.pem")}}, "is not the key of"),
        ({"tls": good | {"cert": str(junk)}}, "is not a PEM file of the right kind"),
        ({"tls": good | {"ca": str(junk)}}, "is not a PEM file of the right kind"),
        ({"tls": tls_of(old)}, "expired on"),
        ({"tls": {"cert": "x"}}, "key"),
        ({"tls": good, "hosts": ["a b"]}, "'a b' is not a host name or address"),
    ]
    started = []
    for at, (settings, _) in enumerate(cases):
        started.append(servers(folder=tmp_path / f"server{at}", clusters=CLUSTERS, **settings))
        started[-1].launch()
    for server, (settings, says) in zip(started, cases, strict=True):
        assert server.await_end(20) == 2, says
        line = server.log.read_text().splitlines()[-1]
        assert line.startswith("spill: ")
        assert says in line, line
        assert "tls" not in settings or re.search(r"spill\.yaml:[0-9]+: (tls|hosts)", line), line
    server = servers(clusters=CLUSTERS)
    server.launch("--http", "0.0.0.0:0")
    assert server.await_end(20) == 2
    (line,) = server.log.read_text().splitlines()
    assert line.startswith("spill: --http: '0.0.0.0' is not a loopback address")


def test_a_host_that_is_configured_is_answered_and_any_other_is_not(
    servers: Callable[..., ServerProcess], certificates: Path
) -> None:
    server = servers(clusters=CLUSTERS, tls=tls_of(certificates), hosts=["alias.example"]).up()
    port = int(server.url.rpartition(":")[2])
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    statuses = {}
    for host in ("build.example", "alias.example", "127.0.0.1", "evil.example"):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(
                f"GET /v1/health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
            )
            statuses[host] = int(secure.recv(4096).split()[1])
    assert statuses == {"build.example": 200, "alias.example": 200, "127.0.0.1": 200, "evil.example": 421}


def test_whoever_does_not_speak_tls_does_no_harm(
    servers: Callable[..., ServerProcess], certificates: Path
) -> None:
    server = servers(clusters=CLUSTERS, tls=tls_of(certificates)).up()
    port = int(server.url.rpartition(":")[2])
    grpc = int(json.loads((server.data / "server.json").read_text())["grpc"].rpartition(":")[2])
    for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b""):
        for each in (port, grpc):
            with socket.create_connection(("127.0.0.1", each), timeout=10) as plain:
                plain.sendall(data)
    wait_until(lambda: server.spill("agents").returncode == 0, "an answer")
    assert server.spill("run", "--wait", "--", "true").returncode == 0
    assert "Traceback" not in server.log.read_text()
