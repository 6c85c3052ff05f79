"""People sign in to a real server: by the link that it prints, by `spill open`, over TLS, and across restarts."""

import os
import pty
import select
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from spillover.server.certificates import make_certificates
from tests.support.processes import ServerProcess

OURS = {"Sec-Fetch-Site": "same-origin"}


@contextmanager
def terminal(server: ServerProcess) -> Iterator[int]:
    """Give a server a terminal for standard error; yield the side where a person sees it."""
    master, slave = pty.openpty()
    server.terminal = slave
    try:
        yield master
    finally:
        server.terminal = None
        os.close(slave)
        os.close(master)


def seen(master: int, until: str, seconds: float = 15.0) -> str:
    """Return what a person sees on a terminal, once it has this text."""
    text, end = "", time.monotonic() + seconds
    while until not in text:
        left = end - time.monotonic()
        assert left > 0, text
        if select.select([master], [], [], left)[0]:
            text += os.read(master, 4096).decode()
    return text


def browser(server: ServerProcess, **options: object) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=OURS, **options)  # type: ignore[arg-type]


def link_in(text: str) -> tuple[str, str]:
    """Return the address of a link without its code, and its code."""
    (link,) = [word for word in text.split() if "/sign-in#" in word]
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}{parts.path}", parts.fragment


def test_a_server_on_a_terminal_prints_a_link_that_signs_in_once(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers()
    with terminal(server) as master:
        server.up()
        page, code = link_in(seen(master, "makes another)"))
        with browser(server) as person:
            shell = person.get(page)
            assert shell.headers["content-type"] == "text/html; charset=utf-8"
            signed_in = person.post("/v1/sign-in", json={"code": code})
            assert signed_in.status_code == 201, signed_in.text
            assert person.get("/v1/me").json()["role"] == "admin"
            assert person.post("/v1/sign-in", json={"code": code}).status_code == 401
        server.stop()


def test_a_server_in_the_background_prints_no_link(server: ServerProcess) -> None:
    server.stop()
    assert "sign-in#" not in server.log.read_text()


def test_open_prints_a_link_with_the_rights_of_its_token_and_the_name_of_its_user(
    server: ServerProcess,
) -> None:
    made = server.spill("token", "create", "--role", "read", "--user", "ada")
    opened = server.spill("open", "--print", variables={"SPILL_TOKEN": made.stdout.strip()})
    assert opened.returncode == 0, opened.stderr
    _, code = link_in(opened.stdout)
    with browser(server) as person:
        told = person.post("/v1/sign-in", json={"code": code}).json()
        assert (told["user"], told["role"]) == ("ada", "read")
        assert person.post("/v1/jobs", json={}).status_code == 403
    listed = server.spill("token", "list").stdout
    assert "sign-in by link" in listed


def test_sign_ins_survive_a_crash_and_end_with_the_token_of_the_server(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers().up()
    own = server.data / "token"
    with browser(server) as person:
        assert person.post("/v1/sign-in", json={"token": own.read_text().strip()}).status_code == 201
        server.kill()
        server.end_agents()
        server.up()
        assert person.get("/v1/me").status_code == 200
        server.stop()
        own.unlink()
        server.up()
        ended = person.get("/v1/me")
    assert ended.status_code == 401
    assert "came from an earlier token of the server; sign in again" in ended.json()["detail"]


def test_over_tls_the_cookie_is_for_tls_only(servers: Callable[..., ServerProcess], tmp_path: Path) -> None:
    make_certificates(tmp_path / "tls", ["127.0.0.1", "localhost"], 30)
    names = {"cert": "server.pem", "key": "server-key.pem", "ca": "ca.pem"}
    server = servers(tls={name: str(tmp_path / "tls" / file) for name, file in names.items()}).up()
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
    with browser(server, verify=trusted) as person:
        link = server.spill("open", "--print").stdout
        assert link.startswith("https://")
        answer = person.post("/v1/sign-in", json={"code": link_in(link)[1]})
        assert "; Secure" in answer.headers["set-cookie"]
        assert person.get("/v1/me").status_code == 200


def test_what_a_person_follows_ends_when_the_sign_in_is_revoked(server: ServerProcess) -> None:
    with browser(server, timeout=30) as person:
        token = (server.data / "token").read_text().strip()
        sign_in = person.post("/v1/sign-in", json={"token": token}).json()["id"]
        with person.stream("GET", "/v1/events", params={"follow": "true", "after": "0"}) as history:
            lines = history.iter_lines()
            assert next(lines)
            assert server.spill("token", "revoke", sign_in).returncode == 0
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
