"""The file with the keys of secrets: made once for its owner alone, read each time, and never guessed."""

import base64
import stat
from pathlib import Path

import pytest

from spillover.control.secrets.sealing import KeyProblem, draw_key, key_from
from spillover.server.secret_keys import CREDENTIAL, KEY_FILE, KeyFile, key_file_of


def test_the_key_of_the_data_folder_is_made_when_it_is_needed_for_its_owner_alone(tmp_path: Path) -> None:
    file = key_file_of(None, tmp_path, {})
    with pytest.raises(KeyProblem, match="restore it, or remove all secrets"):
        file.keys()
    (key,) = file.keys(create=True)
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    assert list(file.keys()) == list(file.keys(create=True)) == [key]
    assert base64.b64encode(key.key).decode() not in repr(key)


def test_a_configured_key_file_is_never_made(tmp_path: Path) -> None:
    path = tmp_path / "my.key"
    file = key_file_of(str(path), tmp_path, {})
    with pytest.raises(KeyProblem, match="create it with `openssl rand -base64 32`"):
        file.keys(create=True)
    path.write_text(draw_key())
    assert len(file.keys()) == 1


def test_a_credential_of_systemd_comes_before_the_data_folder(tmp_path: Path) -> None:
    given = tmp_path / "credentials"
    given.mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(given)}
    assert key_file_of(None, tmp_path, environ).path == tmp_path / KEY_FILE
    (given / CREDENTIAL).write_text(draw_key())
    assert key_file_of(None, tmp_path, environ).path == given / CREDENTIAL
    assert key_file_of("my.key", tmp_path, environ).path == Path("my.key")


def test_the_first_line_is_the_key_for_writing(tmp_path: Path) -> None:
    lines = [draw_key(), draw_key()]
    (tmp_path / "keys").write_text("\n".join(lines) + "\n")
    assert list(KeyFile(tmp_path / "keys", own=False).keys()) == [key_from(line) for line in lines]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("hello", "key 1 in .* is not a key: 32 bytes in base64"),
        (f"{'A' * 43}=\nc2hvcnQ=", "key 2 in .* is not a key"),
        ("\udcff", "key 1 in .* is not a key"),
    ],
)
def test_what_is_no_key_is_one_line_without_the_content(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "keys").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(KeyProblem, match=told) as problem:
        KeyFile(tmp_path / "keys", own=True).keys(create=True)
    assert "\n" not in str(problem.value)
    assert not text or text not in str(problem.value)
