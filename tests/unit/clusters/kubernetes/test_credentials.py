"""Who we are is read anew from files that change, and had anew from programs when it runs out."""

import os
import sys
from pathlib import Path

import pytest

from spillover.clusters.kubernetes.api import credentials
from spillover.clusters.kubernetes.api.credentials import Credential, Credentials, NoCredential
from spillover.clusters.kubernetes.api.kubeconfig import Access, Program, User, Variable


def of(user: User) -> Credentials:
    return Credentials(Access("https://example", user))


def a_program(folder: Path, body: str) -> Program:
    """A program that says who we are, and counts how often it was asked."""
    path = folder / "who"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys\ncount = pathlib.Path({str(folder / 'count')!r})\n{body}"
    )
    path.chmod(0o700)
    return Program(str(path), ("now",), (Variable("WHO", "me"),))


SAYS = """
count.write_text(count.read_text() + "." if count.exists() else ".")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False
assert (os.environ["WHO"], sys.argv[1]) == ("me", "now")
token = f"token-{len(count.read_text())}"
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {"token": token, %s}}))
"""


async def test_what_is_written_in_a_kubeconfig_counts_for_good() -> None:
    who = of(User(token="t", certificate=b"c", key=b"k"))
    shown = await who.current()
    assert shown == Credential("t", b"c", b"k")
    who.refused(shown)
    assert await who.current() == shown


async def test_a_token_file_is_read_again_when_the_token_is_refused_or_has_been_read_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    who = of(User(token=path))
    first = await who.current()
    assert first.token == "one"
    path.write_text("two")
    assert (await who.current()) is first
    who.refused(first)
    assert (await who.current()).token == "two"
    monkeypatch.setattr(credentials, "LASTS", 0.0)
    path.write_text("three")
    who.refused(await who.current())
    assert (await who.current()).token == "three"
    path.write_text("four")
    assert (await who.current()).token == "four"


async def test_a_file_that_did_not_change_gives_the_same_again_so_that_connections_go_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    who = of(User(token=path))
    first = await who.current()
    who.refused(first)
    assert (await who.current()) is first


async def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoCredential, match=r"cannot read .*token: No such file"):
        await of(User(token=tmp_path / "token")).current()


async def test_a_program_is_asked_once_until_what_it_said_runs_out_or_is_refused(tmp_path: Path) -> None:
    who = of(User(program=a_program(tmp_path, SAYS % '"expirationTimestamp": "2100-01-01T00:00:00Z"')))
    first = await who.current()
    assert first.token == "token-1"
    assert (await who.current()) is first
    who.refused(first)
    assert (await who.current()).token == "token-2"
    who.refused(first)  # which was replaced already
    assert (await who.current()).token == "token-2"


async def test_a_program_is_asked_again_before_what_it_said_runs_out(tmp_path: Path) -> None:
    now = 1000.0
    user = User(program=a_program(tmp_path, SAYS % '"expirationTimestamp": "1970-01-01T00:02:00Z"'))
    who = Credentials(Access("https://example", user), lambda: now, lambda: 0.0)
    assert (await who.current()).token == "token-1"
    now += 89
    assert (await who.current()).token == "token-1"
    now += 2
    assert (await who.current()).token == "token-2"


async def test_a_program_may_say_a_certificate(tmp_path: Path) -> None:
    who = of(User(program=a_program(tmp_path, SAYS % '"clientCertificateData": "C", "clientKeyData": "K"')))
    assert await who.current() == Credential("token-1", b"C", b"K")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('first\\nlog in first')", "ended with 1: log in first"),
        ("print('{}')", "printed no valid credentials"),
        ("print('{\"status\": {}}')", "printed neither a token nor a certificate"),
    ],
)
async def test_a_program_that_does_not_know_is_told(tmp_path: Path, body: str, why: str) -> None:
    with pytest.raises(NoCredential, match=why):
        await of(User(program=a_program(tmp_path, body))).current()


async def test_a_program_that_is_not_there_says_how_to_get_it() -> None:
    program = Program("/nowhere/aws", install_hint="get it from the shop\n")
    with pytest.raises(NoCredential, match=r"cannot run /nowhere/aws: No such file .*; get it from the shop"):
        await of(User(program=program)).current()


async def test_a_program_that_does_not_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "PATIENCE", 1.0)
    program = a_program(tmp_path, "import time\ncount.write_text(str(os.getpid()))\ntime.sleep(100)")
    with pytest.raises(NoCredential, match="does not answer within 1s"):
        await of(User(program=program)).current()
    if (tmp_path / "count").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "count").read_text()), 0)
