"""`spill token` and `spill cert`: what is asked for, and what is printed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pytest

from spillover.client import Unreachable
from spillover.wire.api import NewToken, TokenView

AT = "2026-01-31T10:00:00.000000Z"


def a_token(name: str, **changes: Any) -> TokenView:
    usual: dict[str, Any] = {
        "id": name,
        "role": "submit",
        "state": "valid",
        "project": None,
        "user": None,
        "cluster": None,
        "created_at": AT,
        "created_by": "ada",
        "expires_at": None,
        "revoked_at": None,
        "revoked_by": None,
        "used_at": None,
        "note": "",
    }
    return TokenView(**usual | changes)


@pytest.fixture
def tokens(client: Any) -> Any:
    def create(role: str, **limits: Any) -> NewToken:
        client.asked.append((role, limits))
        return NewToken("t1", "spt_t1_secret", AT)

    def revoke(token: str) -> str:
        client.asked.append(token)
        return token

    client.create_token, client.revoke_token = create, revoke
    client.tokens = lambda: [
        a_token("t2", state="revoked", revoked_at=AT, revoked_by="bob", role="agent", cluster="onprem"),
        a_token("t1", project="vision", user="eve", expires_at=AT, used_at=AT, note="nightly"),
    ]
    return client


def test_create_prints_the_token_and_nothing_else(tokens: Any, spill: Callable[..., Any]) -> None:
    typed = spill(
        "token", "create", "--role", "submit", "--project", "vision", "--expires", "90d", "--note", "x"
    )
    assert (typed.out, typed.err) == ("spt_t1_secret\n", "")
    role, limits = tokens.asked[-1]
    assert role == "submit"
    assert limits == {
        "project": "vision",
        "user": None,
        "cluster": None,
        "expires": 90 * 86_400.0,
        "note": "x",
    }
    typed = spill("token", "create", "--role", "agent", "--json")
    assert json.loads(typed.out) == {"id": "t1", "token": "spt_t1_secret", "expires_at": AT}


def test_create_writes_the_token_to_a_file_of_its_owner_alone(
    tokens: Any, spill: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "agent.token"
    before = os.umask(0)
    try:
        assert spill("token", "create", "--role", "agent", "--out", str(out)) == (0, "", "")
    finally:
        os.umask(before)
    assert out.read_text() == "spt_t1_secret\n"
    assert S_IMODE(out.stat().st_mode) == 0o600


def test_no_token_is_made_that_cannot_be_written(
    tokens: Any, spill: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "agent.token"
    out.write_text("old")
    for words, says in (
        (("--out", str(out)), f"--out {out}: file exists; choose another name"),
        (("--out", str(tmp_path / "no" / "f")), "No such file or directory"),
        (("--out", str(tmp_path / "f"), "--json"), "exclude each other"),
    ):
        typed = spill("token", "create", "--role", "agent", *words)
        assert (typed.code, typed.out, says in typed.err) == (2, "", True), typed.err
    assert out.read_text() == "old"
    assert tokens.asked == []


def test_a_token_that_is_refused_leaves_no_file(
    tokens: Any, spill: Callable[..., Any], tmp_path: Path
) -> None:
    def refuse(role: str, **limits: Any) -> NewToken:
        raise Unreachable("no server answers")

    tokens.create_token = refuse
    assert spill("token", "create", "--role", "agent", "--out", str(tmp_path / "f")).code == 2
    assert list(tmp_path.iterdir()) == []


def test_list_says_what_each_is_for_and_no_secret(tokens: Any, spill: Callable[..., Any]) -> None:
    lines = spill("token", "list").out.splitlines()
    assert lines[0].split() == ["TOKEN", "ROLE", "STATE", "FOR", "CREATED", "BY", "EXPIRES", "USED", "NOTE"]
    assert lines[1].split()[:5] == ["t2", "agent", "revoked", "cluster", "onprem"]
    assert "project vision, user eve" in lines[2]
    assert lines[2].endswith("nightly")
    assert [one["id"] for one in json.loads(spill("token", "list", "--json").out)] == ["t2", "t1"]
    tokens.tokens = list
    assert spill("token", "list").err == "spill: no tokens except the server's own\n"


def test_revoke_is_quiet(tokens: Any, spill: Callable[..., Any]) -> None:
    typed = spill("token", "revoke", "t1")
    assert (typed.out, typed.err, tokens.asked[-1]) == ("", "", "t1")


def test_a_whole_token_is_not_revoked_and_not_repeated(tokens: Any, spill: Callable[..., Any]) -> None:
    typed = spill("token", "revoke", "spt_t1_secret")
    assert typed.code == 2
    assert "use its id, t1" in typed.err
    assert "secret" not in typed.err
    assert tokens.asked == []


def test_cert_init_says_what_to_do_next(spill: Callable[..., Any], tmp_path: Path) -> None:
    typed = spill("cert", "init", "--out", str(tmp_path / "tls"), "--host", "build.example")
    assert typed.err == ""
    assert f"tls: {{cert: {tmp_path}/tls/server.pem, key: {tmp_path}/tls/server-key.pem" in typed.out
    assert (
        "Created a certificate for build.example, localhost, 127.0.0.1, ::1, valid for 825 days" in typed.out
    )
    assert "spill agent --server https://build.example:7070 --ca ca.pem" in typed.out
