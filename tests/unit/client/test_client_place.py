"""Where the server is and who asks."""

import getpass
import json
import re
from pathlib import Path
from stat import S_IMODE

import httpx
import pytest

from spillover.client.errors import Refused, Unreachable
from spillover.client.place import find, named_token_file
from spillover.client.signed_in import KeptSignIn, file_of_sign_ins, forget_sign_in, keep_sign_in
from spillover.client.transport import settings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPILL_SERVER", "SPILL_TOKEN", "SPILL_TOKEN_FILE", "SPILL_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def folder(path: Path, url: str = "http://127.0.0.1:7070", token: str = "secret\n") -> Path:
    path.mkdir(exist_ok=True)
    (path / "server.json").write_text(json.dumps({"http": url, "grpc": "x", "epoch": 1, "pid": 1}))
    (path / "token").write_text(token)
    return path


def test_arguments_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILL_SERVER", "https://other:1")
    monkeypatch.setenv("SPILL_TOKEN", "other")
    place = find("https://here:2/", "mine", user="ada")
    assert (place.url, place.token, place.user) == ("https://here:2", "mine", "ada")
    assert place.headers() == {"Authorization": "Bearer mine", "Spill-User": "ada"}


def test_the_environment_comes_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder(tmp_path / "spill-data")
    monkeypatch.setenv("SPILL_SERVER", "127.0.0.1:9")
    monkeypatch.setenv("SPILL_TOKEN", "other")
    assert (find().url, find().token) == ("http://127.0.0.1:9", "other")


def test_a_data_folder_that_is_named_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPILL_SERVER", "127.0.0.1:9")
    monkeypatch.setenv("SPILL_TOKEN", "other")
    place = find(data=folder(tmp_path / "d"))
    assert (place.url, place.token) == ("http://127.0.0.1:7070", "secret")


def test_the_data_folder_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder(tmp_path / "spill-data")
    assert (find().url, find().token) == ("http://127.0.0.1:7070", "secret")
    monkeypatch.setenv("SPILL_DATA", str(folder(tmp_path / "d", "http://127.0.0.1:8")))
    assert find().url == "http://127.0.0.1:8"


def test_a_server_that_moved_is_found_again(tmp_path: Path) -> None:
    place = find(data=folder(tmp_path / "d"))
    folder(tmp_path / "d", "http://127.0.0.1:8")
    assert place.again().url == "http://127.0.0.1:8"
    (tmp_path / "d" / "server.json").unlink()
    assert place.again() == place
    given = find("https://a:1", "t")
    assert given.again() is given


def test_without_a_server_it_says_how_to_start_one() -> None:
    with pytest.raises(Unreachable, match="start one with `spill up`") as error:
        find()
    assert not error.value.sent


@pytest.mark.parametrize("text", ["{", "[]", '{"http": 1}', '{"http": "ftp://x"}'])
def test_a_damaged_server_file_is_told(tmp_path: Path, text: str) -> None:
    (folder(tmp_path / "d") / "server.json").write_text(text)
    with pytest.raises(Unreachable, match=r"server\.json"):
        find(data=tmp_path / "d")


@pytest.mark.parametrize("server", ["ftp://x", "http://", "http://h:port", "http://[::1"])
def test_what_is_not_an_address_is_told(server: str) -> None:
    with pytest.raises(Unreachable, match="which is not a URL"):
        find(server, "t")


@pytest.mark.parametrize(
    ("server", "instead"),
    [
        ("http://build.example:7070", "https://build.example:7070"),
        ("build.example:7070", "https://build.example:7070"),
        ("HTTP://10.0.0.5/", "https://10.0.0.5"),
        ("http://127.evil.example", "https://127.evil.example"),
        ("http://[2001:db8::1]:7070", "https://[2001:db8::1]:7070"),
    ],
)
def test_a_token_goes_nowhere_where_others_could_read_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str, instead: str
) -> None:
    monkeypatch.setenv("SPILL_TOKEN", "my-secret")
    with pytest.raises(Refused, match=rf"without TLS.*; write {re.escape(instead)}$") as error:
        find(server)
    assert "my-secret" not in str(error.value)
    assert "\n" not in str(error.value)
    assert find(instead).url == instead
    with pytest.raises(Refused, match=r"server\.json.*without TLS"):
        find(data=folder(tmp_path / "d", server))


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:1", "http://127.3.2.1:1", "http://localhost:1", "http://[::1]:1"]
)
def test_what_stays_on_this_machine_needs_no_tls(server: str) -> None:
    assert find(server, "t").url == server


def test_a_server_that_moved_where_others_listen_is_not_followed(tmp_path: Path) -> None:
    place = find(data=folder(tmp_path / "d"))
    folder(tmp_path / "d", "http://build.example:7070")
    assert place.again() == place


def test_a_missing_or_damaged_token_is_told(tmp_path: Path) -> None:
    (folder(tmp_path / "d") / "token").unlink()
    with pytest.raises(Unreachable, match="there is no token"):
        find(data=tmp_path / "d")
    (tmp_path / "d" / "token").write_bytes(b"\xff")
    with pytest.raises(Unreachable, match="does not hold a token"):
        find(data=tmp_path / "d")
    (tmp_path / "d" / "token").unlink()
    (tmp_path / "d" / "token").mkdir()
    with pytest.raises(Unreachable, match="cannot be read"):
        find(data=tmp_path / "d")
    with pytest.raises(Unreachable, match="invalid characters; use one from `spill token create`"):
        find("https://h:1", "a\nb")


def test_a_token_is_read_from_the_file_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.token", tmp_path / "other.token"
    mine.write_text("mine\n")
    other.write_text("other\n")
    monkeypatch.setenv("SPILL_TOKEN_FILE", str(other))
    assert find("https://h:1").token == "other"
    assert find("https://h:1", token_file=mine).token == "mine"
    assert find("https://h:1", "given", token_file=mine).token == "given"
    monkeypatch.setenv("SPILL_TOKEN", "direct")
    assert find("https://h:1").token == "direct"
    assert find("https://h:1", token_file=mine).token == "mine"
    assert find(data=folder(tmp_path / "d")).token == "secret"
    assert find(data=tmp_path / "d", token_file=mine).token == "mine"


def test_a_token_file_that_holds_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"no token in .*none\.token: there is no such file"):
        find("https://h:1", token_file=tmp_path / "none.token")
    (tmp_path / "empty").touch()
    with pytest.raises(Unreachable, match="empty does not hold a token"):
        find("https://h:1", token_file=tmp_path / "empty")


def test_the_file_that_was_named_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_token_file() is None
    monkeypatch.setenv("SPILL_TOKEN_FILE", "a.token")
    assert named_token_file() == Path("a.token")
    assert named_token_file("b.token", data="d") == Path("b.token")
    assert named_token_file(data="d") is None
    monkeypatch.setenv("SPILL_TOKEN", "direct")
    assert named_token_file() is None


def test_a_user_that_cannot_be_a_name_is_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "DOMAIN\\ada")
    assert find("https://h:1", "t").user == "anonymous"
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert find("https://h:1", "t").user == "ada"


def test_nobody_at_all_is_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert find("https://h:1", "t").user == "anonymous"


def test_a_user_that_is_given_must_be_a_name() -> None:
    with pytest.raises(Refused, match="is not a user name"):
        find("https://h:1", "t", user="a b")


@pytest.mark.parametrize(
    "server", ["https://elsewhere.example:7070", "https://127.evil.example", "https://10.0.0.1:1"]
)
def test_the_token_of_a_folder_that_nobody_named_is_not_shown_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str
) -> None:
    folder(tmp_path / "spill-data")
    with pytest.raises(Unreachable, match="there is no token for that server: set SPILL_TOKEN") as error:
        find(server)
    assert "secret" not in str(error.value)
    monkeypatch.setenv("SPILL_SERVER", server)
    with pytest.raises(Unreachable, match="there is no token for that server"):
        find()
    assert find("http://localhost:1").token == find("https://[::1]:1").token == "secret"
    assert find(server, data=tmp_path / "spill-data").token == "secret"
    folder(tmp_path / "spill-data", server)
    assert find(server).token == "secret"


def test_an_authority_that_the_environment_names_is_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPILL_CA", "ca.pem")
    with pytest.raises(Unreachable, match=r"^SPILL_CA: ca\.pem cannot be read: No such file or directory$"):
        settings(find("https://h", "secret"), httpx.HTTPTransport)
    with pytest.raises(Unreachable, match=r"^other\.pem cannot be read"):
        settings(find("https://h", "secret", ca="other.pem"), httpx.HTTPTransport)


def kept(token: str, ca: str | None = None) -> KeptSignIn:
    return KeptSignIn(token, "ada", "2026-01-31T10:00:00Z", ca)


def test_a_sign_in_is_used_for_its_server_and_the_last_one_without_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_sign_in("https://lab:1", kept("of-lab", "/etc/lab.pem"))
    keep_sign_in("https://home:2", kept("of-home"))
    assert (find().url, find().token) == ("https://home:2", "of-home")
    lab = find("https://lab:1/")
    assert (lab.token, lab.ca, lab.mending) == (
        "of-lab",
        Path("/etc/lab.pem"),
        "run `spill login` to sign in again",
    )
    with pytest.raises(Unreachable, match="there is no token for that server"):
        find("https://other:3")
    monkeypatch.setenv("SPILL_SERVER", "https://lab:1")
    assert find().token == "of-lab"
    monkeypatch.setenv("SPILL_TOKEN", "named")
    assert find().token == "named"
    monkeypatch.delenv("SPILL_TOKEN")
    monkeypatch.delenv("SPILL_SERVER")
    folder(tmp_path / "spill-data")
    assert find().token == "secret", "the server of this folder comes before the last sign-in"
    assert find("https://lab:1").token == "of-lab"
    assert find("https://lab:1", data=tmp_path / "spill-data").token == "secret"


def test_sign_ins_are_for_their_owner_alone_and_end_one_by_one() -> None:
    keep_sign_in("https://lab:1", kept("of-lab"))
    keep_sign_in("https://home:2", kept("of-home"))
    assert S_IMODE(file_of_sign_ins().stat().st_mode) == 0o600
    assert S_IMODE(file_of_sign_ins().parent.stat().st_mode) == 0o700
    assert [each.name for each in file_of_sign_ins().parent.iterdir()] == ["sign-ins.json"]
    forget_sign_in("https://home:2")
    with pytest.raises(Unreachable, match="no server was started"):
        find()
    assert find("https://lab:1").token == "of-lab"


def test_a_damaged_file_of_sign_ins_says_what_to_do() -> None:
    keep_sign_in("https://lab:1", kept("of-lab"))
    file_of_sign_ins().write_text("{")
    with pytest.raises(Unreachable, match=r"sign-ins.json is damaged; remove it and run `spill login` again"):
        find("https://lab:1")
