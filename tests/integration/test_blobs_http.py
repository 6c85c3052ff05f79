"""Blobs over real HTTP: both faces of the client, what is refused, and what breaks off."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from spillover.api.http import build_app, serving
from spillover.client import AsyncClient, Client, Refused, Unavailable
from spillover.ports.blobs import BlobBounds
from spillover.stores.blobs import FileBlobs
from tests.support.http import TOKEN, listen
from tests.support.served import served
from tests.support.waiting import until

NONE = "0" * 64


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs", BlobBounds(file=8 << 20, total=9 << 20))


@pytest.fixture
async def url(blobs: FileBlobs) -> AsyncIterator[str]:
    sock = listen()
    where = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with (
        served() as inside,
        serving(build_app(inside.commands, TOKEN, None, blobs=blobs), sock),
    ):
        yield where


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
        yield client


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def test_a_blob_is_put_once_and_read_from_any_byte(http: httpx.AsyncClient) -> None:
    data = bytes(range(256)) * 10_000
    path = f"/v1/blobs/{digest(data)}"
    assert (await http.post("/v1/blobs/missing", json={"digests": [digest(data)]})).json() == {
        "digests": [digest(data)]
    }
    answers = [await http.put(path, content=data) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert [answer.json()["fresh"] for answer in answers] == [True, False]
    answer = await http.get(path)
    assert answer.content == data
    assert answer.headers["content-length"] == str(len(data))
    assert (await http.get(path, params={"offset": 2_000_001})).content == data[2_000_001:]
    asked = {"digests": [NONE, digest(data)]}
    assert (await http.post("/v1/blobs/missing", json=asked)).json() == {"digests": [NONE]}


async def test_what_is_wrong_is_refused_with_one_line(http: httpx.AsyncClient) -> None:
    refusals = {
        ("GET", NONE, b""): (404, "unknown", NONE),
        ("GET", "abc", b""): (400, "invalid", "64 hexadecimal digits"),
        ("PUT", NONE, b"other"): (400, "invalid", digest(b"other")),
        ("PUT", digest(b"x").upper(), b"x"): (400, "invalid", "lower case"),
        ("PUT", NONE, b"x" * ((8 << 20) + 1)): (413, "too_large", "blobs.max_file"),
        ("POST", NONE, b""): (405, "method_not_allowed", "GET, PUT"),
    }
    for (method, name, body), (status, kind, said) in refusals.items():
        answer = await http.request(method, f"/v1/blobs/{name}", content=body)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (status, f"urn:spillover:problem:{kind}")
        assert said in problem["detail"]
    assert (await http.post("/v1/blobs/missing", json={"digests": ["abc"]})).status_code == 400


async def test_nobody_puts_or_reads_without_the_token(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as stranger:
        assert (await stranger.put(f"/v1/blobs/{digest(b'x')}", content=b"x")).status_code == 401
        assert (await stranger.get(f"/v1/blobs/{digest(b'x')}")).status_code == 401
        assert (await stranger.post("/v1/blobs/missing", json={"digests": []})).status_code == 401


async def test_an_upload_that_breaks_off_leaves_nothing(url: str, blobs: FileBlobs, tmp_path: Path) -> None:
    data = b"b" * (4 << 20)
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"PUT /v1/blobs/{digest(data)} HTTP/1.1\r\nhost: localhost\r\n"
        f"authorization: Bearer {TOKEN}\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + data[: 3 << 20])
    await writer.drain()
    await until(lambda: names(tmp_path / "blobs" / "new"), "the begin of a file")
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.close()
    await until(lambda: not names(tmp_path / "blobs" / "new"), "the end of what was begun")
    assert await blobs.used() == (0, 0)
    assert await reader.read() == b""


async def test_a_full_store_is_told_as_unavailable(url: str) -> None:
    async with AsyncClient(url, TOKEN) as client:
        await client.put_blob(b"a" * (8 << 20))
        with pytest.raises(Unavailable, match="max_total"):
            await client.put_blob(b"b" * (2 << 20))


async def test_both_faces_bring_files_there_and_back(url: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(251)) * 9_000)
    told: list[int] = []
    async with AsyncClient(url, TOKEN) as client:
        name = await client.put_blob(source, told.append)
        assert sum(told) == source.stat().st_size
        told.clear()
        assert await client.put_blob(source, told.append) == name == digest(source.read_bytes())
        assert told == []
        assert await client.missing([NONE, name, NONE]) == [NONE]
        await client.save_blob(name, tmp_path / "back", told.append)
        assert sum(told) == source.stat().st_size
        assert await client.put_blob(b"") == digest(b"")
        assert [piece async for piece in client.get_blob(digest(b""))] == []

    def blocking() -> None:
        with Client(url, TOKEN) as client:
            assert client.put_blob(b"some bytes") == digest(b"some bytes")
            assert b"".join(client.get_blob(digest(b"some bytes"))) == b"some bytes"
            assert client.missing([NONE, name]) == [NONE]
            client.save_blob(name, tmp_path / "again")
            client.put_blob(tmp_path / "again")
            with pytest.raises(Refused, match=NONE):
                client.save_blob(NONE, tmp_path / "none")

    await asyncio.to_thread(blocking)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "again").read_bytes() == source.read_bytes()
    assert names(tmp_path) == ["again", "back", "blobs", "source"]


async def test_other_bytes_than_were_asked_for_are_not_believed(
    url: str, blobs: FileBlobs, tmp_path: Path
) -> None:
    async with AsyncClient(url, TOKEN) as client:
        name = await client.put_blob(b"right")
        blobs.path(name).write_bytes(b"wrong")
        with pytest.raises(Unavailable, match="do not match the digest"):
            await client.save_blob(name, tmp_path / "back")
    assert not (tmp_path / "back").exists()
