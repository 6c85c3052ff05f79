"""What a rented machine is given to join: a file that is checked before anything starts, and a server known by its pin."""

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from ssl import PEM_cert_to_DER_cert
from typing import Any

import grpc
import pytest

from spillover.agent.__main__ import main
from spillover.agent.connection.calls import dial
from spillover.agent.connection.finding import NotFound, Target
from spillover.agent.connection.joining import ByJoin, read_join
from spillover.model.ids import ClusterName
from spillover.ports.provider import Join
from spillover.server.certificates import make_certificates

GIVEN = {"server": "10.0.0.5:7071", "cluster": "cloud", "name": "cloud-7", "token": "spj_x", "join_by": 5}


def written(folder: Path, **other: object) -> str:
    path = folder / "join.json"
    path.write_text(json.dumps({key: value for key, value in (GIVEN | other).items() if value is not None}))
    return str(path)


def test_a_join_file_has_the_fields_of_a_join_and_may_have_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, pin="ab" * 32, alone_for=9, notices="ec2", added_later=True)
    join = Join("10.0.0.5:7071", ClusterName("cloud"), "cloud-7", "spj_x", 5, "ab" * 32, 9, "ec2")
    assert read_join(path) == join
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    assert read_join("-") == join


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"token": None}, "has no 'token'"),
        ({"token": ""}, "'token' is empty"),
        ({"token": "a\nb"}, "'token' has characters that no token has"),
        ({"join_by": "soon"}, "'join_by' is not a number of nanoseconds"),
        ({"alone_for": True}, "'alone_for' is not a number of nanoseconds"),
        ({"name": 7}, "'name' is not text"),
        ({"name": "../x"}, "'name' is not 1 to 63 letters"),
        ({"server": "nowhere"}, "'server' is 'nowhere', which is not HOST:PORT"),
        ({"server": "host:70710"}, "which is not HOST:PORT"),
        ({"pin": "abc"}, "'pin' is not the SHA-256 of a certificate, 64 hexadecimal digits"),
    ],
)
def test_each_problem_of_a_join_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, object], problem: str
) -> None:
    path = written(tmp_path, **other)
    with pytest.raises(SystemExit) as end:
        main(["--data", str(tmp_path / "data"), "--join", path])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert f"--join: {path}: " in said
    assert problem in said
    assert said.count("\n") == 1
    assert "spj_x" not in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        (" " * 70_000, "has more than 64 KiB"),
    ],
)
def test_what_is_no_join_file_is_said_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "join").write_text(text)
    with pytest.raises(ValueError, match=problem) as raised:
        read_join(str(tmp_path / "join"))
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"--join .*gone: No such file"):
        read_join(str(tmp_path / "gone"))


def test_what_a_join_file_says_is_not_said_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--join", written(tmp_path), "--name", "x", "--cluster", "y"])
    assert "--join says what --name and --cluster would say; remove them" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--name", "x"])
    assert "required: --cluster (or --join)" in capsys.readouterr().err


def a_join(server: str, pin: str = "") -> Join:
    return Join(server, ClusterName("cloud"), "cloud-7", "spj_x", 5, pin)


async def test_without_a_pin_the_token_never_leaves_the_machine() -> None:
    assert await ByJoin(a_join("127.0.0.1:5")).find() == Target("127.0.0.1:5", "spj_x")
    with pytest.raises(NotFound, match="without TLS, which would expose the token") as raised:
        await ByJoin(a_join("10.0.0.5:7071")).find()
    assert raised.value.slow


async def _echo(request: bytes, _: object) -> bytes:
    return request


@asynccontextmanager
async def secured(folder: Path, *hosts: str, address: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, str]]:
    """A gRPC server with a certificate for these hosts; its address, and the pin."""
    make_certificates(folder, list(hosts), 5)
    cert = (folder / "server.pem").read_bytes()
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Echo": handler}),))
    credentials = grpc.ssl_server_credentials([((folder / "server-key.pem").read_bytes(), cert)])
    port = server.add_secure_port(address, credentials)
    await server.start()
    try:
        first = cert.decode().partition("-----END CERTIFICATE-----")
        yield f"127.0.0.1:{port}", sha256(PEM_cert_to_DER_cert(first[0] + first[1])).hexdigest()
    finally:
        await server.stop(None)


async def echoed(target: Target) -> bytes:
    async with dial(target) as channel:
        call: Any = channel.unary_unary("/test/Echo", bytes, bytes)
        return bytes(await call(b"hello", timeout=5))


@pytest.mark.parametrize("host", ["build.example.org", "*.example.org", "192.0.2.7"])
async def test_a_server_with_the_pinned_certificate_is_trusted_whatever_its_name(
    tmp_path: Path, host: str
) -> None:
    async with secured(tmp_path, host) as (address, pin):
        target = await ByJoin(a_join(address, pin.upper())).find()
        assert target.tls
        assert await echoed(target) == b"hello"


async def test_a_server_with_another_certificate_gets_nothing(tmp_path: Path) -> None:
    async with secured(tmp_path / "a", "one.example") as (address, pin):
        with pytest.raises(NotFound, match="not the one that this machine was told to trust") as raised:
            await ByJoin(a_join(address, "0" * 64)).find()
        assert raised.value.slow
        target = await ByJoin(a_join(address, pin)).find()
    # Whoever takes the place of the server between the two handshakes fails in the second.
    async with secured(tmp_path / "b", "one.example") as (other, _):
        moved = Target(other, target.token, tls=True, ca=target.ca, shown_as=target.shown_as)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await echoed(moved)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_known_server_is_tried_once_before_its_certificate_is_looked_at_again(tmp_path: Path) -> None:
    async with secured(tmp_path, "one.example") as (address, pin):
        finder = ByJoin(a_join(address, pin))
        target = await finder.find()
        finder.found(target)
    assert await finder.find() == target, "nobody answers there"
    with pytest.raises(NotFound, match="cannot be reached"):
        await finder.find()


async def test_what_does_not_speak_tls_is_told_apart(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(NotFound, match="does not speak TLS"):
            await ByJoin(a_join(f"127.0.0.1:{port}", "0" * 64)).find()


async def test_a_server_on_this_machine_may_move(tmp_path: Path) -> None:
    published = tmp_path / "server.json"
    finder = ByJoin(a_join("127.0.0.1:5"), published)
    with pytest.raises(NotFound, match="no server found"):
        await finder.find()
    published.write_text('{"grpc": "127.0.0.1:6"}')
    assert await finder.find() == Target("127.0.0.1:6", "spj_x")


async def test_a_machine_that_has_joined_accepts_a_new_certificate_of_its_authority(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with secured(old, "one.example") as (address, pin):
        finders = [ByJoin(a_join(address, pin)) for _ in range(3)]
        for finder in finders:
            await finder.find()
    async with secured(new, "one.example", address=address):
        joined, deceived, waits = finders
        joined.exchanged("spt_x_y", (new / "ca.pem").read_bytes())
        target = await joined.find()
        assert target.token == "spt_x_y"
        assert await echoed(target) == b"hello"
        deceived.exchanged("spt_x_y", (old / "ca.pem").read_bytes())
        with pytest.raises(grpc.aio.AioRpcError):
            await echoed(await deceived.find())
        with pytest.raises(NotFound, match="not the one that this machine was told to trust"):
            await waits.find()


AGENT = """
import ctypes, os, sys
from spillover.agent.connection.joining import hide_memory
os.setgroups([]), os.setgid(65534), os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after the start of a program
if sys.argv[1] == "hides":
    hide_memory()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
@pytest.mark.parametrize("hides", ["hides", "shows"])
def test_tasks_of_the_same_user_cannot_read_the_memory_of_an_agent(hides: str) -> None:
    command = [sys.executable, "-c", AGENT, hides]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        files = [f"/proc/{agent.pid}/{name}" for name in ("environ", "maps")]
        read = [
            subprocess.run(
                ["cat", file], user=65534, group=65534, extra_groups=[], capture_output=True, check=False
            )
            for file in files
        ]
        agent.communicate(b"")
        assert agent.returncode == 0
    assert [done.returncode == 0 for done in read] == [hides == "shows"] * 2
