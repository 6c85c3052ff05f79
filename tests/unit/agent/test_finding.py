"""Where an agent finds its server: in a data folder, or by asking a URL; what is wrong is said in a line."""

import json
from pathlib import Path

import pytest

from spillover.agent.connection.finding import ByUrl, InFolder, NotFound, Target
from spillover.wire.api import AgentsAddress
from tests.support.http import TOKEN, http_server
from tests.support.served import served


def folder(path: Path, **told: object) -> InFolder:
    (path / "server.json").write_text(json.dumps({"grpc": "127.0.0.1:5", "http": "http://x:1"} | told))
    (path / "token").write_text("secret\n")
    return InFolder(path / "server.json", path / "token")


async def test_a_data_folder_says_where_the_server_is_now(tmp_path: Path) -> None:
    finder = folder(tmp_path)
    assert await finder.find() == Target("127.0.0.1:5", "secret")
    folder(tmp_path, grpc="127.0.0.1:6")
    assert (await finder.find()).address == "127.0.0.1:6"


async def test_a_data_folder_says_whom_to_trust(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    finder = folder(tmp_path, http="https://x:1", ca=str(tmp_path / "ca.pem"))
    assert await finder.find() == Target("127.0.0.1:5", "secret", tls=True, ca=b"authority")
    folder(tmp_path, http="https://x:1", ca=None)
    assert (await finder.find()).ca is None


async def test_a_folder_without_a_server_is_looked_at_again(tmp_path: Path) -> None:
    finder = InFolder(tmp_path / "server.json", tmp_path / "token")
    with pytest.raises(NotFound) as raised:
        await finder.find()
    assert not raised.value.slow
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(NotFound):
        await finder.find()


async def test_a_server_is_asked_for_the_port_and_reached_by_the_same_host(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for told, address in (
        (AgentsAddress(None, 71), "127.0.0.1:71"),
        (AgentsAddress("127.0.0.5", 71), "127.0.0.5:71"),
        (AgentsAddress("::1", 71), "[::1]:71"),
    ):
        async with served() as inside, http_server(inside.commands, address=told) as url:
            assert await ByUrl(url, token).find() == Target(address, TOKEN)


async def test_where_a_server_was_is_tried_once_before_it_is_asked_anew(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with served() as inside, http_server(inside.commands, address=AgentsAddress(None, 71)) as url:
        finder = ByUrl(url, token)
        finder.found(await finder.find())
    token.write_text("renewed")
    assert await finder.find() == Target("127.0.0.1:71", "renewed"), "without asking anybody"
    with pytest.raises(NotFound):
        await finder.find()


async def test_a_token_goes_nowhere_where_others_could_read_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for host, address in (("10.0.0.5", "10.0.0.5:71"), ("2001:db8::1", r"\[2001:db8::1\]:71")):
        async with served() as inside, http_server(inside.commands, address=AgentsAddress(host, 71)) as url:
            with pytest.raises(NotFound, match=f"agents at {address} without TLS") as raised:
                await ByUrl(url, token).find()
            assert raised.value.slow
    with pytest.raises(NotFound, match=r"without TLS.*; write https://build\.example:7070$") as raised:
        await ByUrl("http://build.example:7070", token).find()
    assert raised.value.slow
    with pytest.raises(NotFound, match=r"agents at 10\.0\.0\.5:71 without TLS"):
        await folder(tmp_path, grpc="10.0.0.5:71").find()
    assert (await folder(tmp_path, grpc="10.0.0.5:71", http="https://x:1").find()).tls


async def test_a_wrong_token_and_files_that_are_missing_have_to_be_mended(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("wrong-and-secret")
    async with served() as inside, http_server(inside.commands, address=AgentsAddress(None, 71)) as url:
        with pytest.raises(NotFound, match="the token is invalid") as raised:
            await ByUrl(url, token).find()
        assert raised.value.slow
        assert "wrong-and-secret" not in str(raised.value)
        with pytest.raises(NotFound, match="cannot be read: No such file") as raised:
            await ByUrl(url, tmp_path / "none").find()
        assert raised.value.slow
    with pytest.raises(NotFound, match="no server answers") as raised:
        await ByUrl(url, token).find()
    assert not raised.value.slow
