"""`spill secret`: where values come from, and that none is printed."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.wire.api import SecretRef, SecretView

AT = "2026-01-31T10:00:00.000000Z"


@pytest.fixture
def secrets(client: Any) -> Any:
    def put(name: str, value: bytes, **fields: Any) -> SecretView:
        client.asked.append((name, value, fields))
        return SecretView(name, fields["project"] or "default", 2, AT, "kim", [], "usable")

    client.set_secret = put
    client.secrets = lambda project=None: [
        SecretView("api", "film", 1, AT, "kim", [], "no_key"),
        SecretView("db", project or "vision", 3, AT, "kim", ["ada", "bob"], "usable"),
    ]
    client.remove_secret = lambda name, project=None: SecretRef(name, project or "default")
    client.rekey_secrets = lambda: 2
    return client


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def pipe(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return pipe


def test_a_piped_value_is_taken_without_its_line_end(
    secrets: Any, spill: Callable[..., Any], piped: Callable[[bytes], None]
) -> None:
    for data, value in ((b"hunter2\n", b"hunter2"), (b"a\nb\r\n", b"a\nb"), (b" x\n\n", b" x\n")):
        piped(data)
        typed = spill("secret", "set", "db", "--project", "vision")
        assert typed.code == 0
        assert secrets.asked[-1] == ("db", value, {"project": "vision", "users": None})
        assert (typed.out, "hunter2" in typed.err) == ("", False)
        assert "set secret db of project vision, version 2" in typed.err


def test_a_file_is_taken_with_all_its_bytes(secrets: Any, spill: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "license"
    path.write_bytes(b"\xff\x00\n")
    assert spill("secret", "set", "db", "--file", str(path), "--users", "ada,bob").code == 0
    assert secrets.asked[-1] == ("db", b"\xff\x00\n", {"project": None, "users": ["ada", "bob"]})
    assert spill("secret", "set", "db", "--file", str(path), "--everyone").code == 0
    assert secrets.asked[-1][2]["users"] == []


@pytest.mark.parametrize(("size", "told"), [(0, "the value is empty"), (70_000, "larger than 64 KiB")])
def test_a_value_of_a_wrong_size_is_one_line(
    secrets: Any, spill: Callable[..., Any], piped: Callable[[bytes], None], size: int, told: str
) -> None:
    piped(b"x" * size)
    typed = spill("secret", "set", "db")
    assert (typed.code, typed.out) == (2, "")
    assert told in typed.err
    assert not secrets.asked


def test_a_missing_file_is_one_line(secrets: Any, spill: Callable[..., Any]) -> None:
    typed = spill("secret", "set", "db", "--file", "/nowhere/at/all")
    assert typed.code == 2
    assert "--file /nowhere/at/all: No such file or directory" in typed.err


def test_the_list_names_secrets_their_users_and_a_missing_key(
    secrets: Any, spill: Callable[..., Any]
) -> None:
    title, api, db = spill("secret", "ls").out.splitlines()
    assert title.split() == ["SECRET", "PROJECT", "VERSION", "FOR", "SET", "BY", "STATE"]
    assert api.split()[:4] == ["api", "film", "1", "-"]
    assert api.endswith("no key")
    assert db.split()[:4] == ["db", "vision", "3", "ada,"]
    listed = json.loads(spill("secret", "ls", "--json").out)
    assert set(listed[0]) == {"name", "project", "version", "set_at", "set_by", "users", "state"}


def test_removing_and_changing_the_key_say_what_they_did(secrets: Any, spill: Callable[..., Any]) -> None:
    assert json.loads(spill("secret", "rm", "db", "--json").out) == {"name": "db", "project": "default"}
    assert "2 secrets encrypted with the first key" in spill("secret", "rekey").err
    secrets.rekey_secrets = lambda: 0
    assert "all secrets are encrypted with the first key already" in spill("secret", "rekey").err
