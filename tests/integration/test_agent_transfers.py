"""An agent's way to the server over real gRPC: what a closed connection means, and what is final."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from spillover.agent.connection.transfers import Full, ServerAway, ServerTransfers, TransferRefused
from spillover.agent.files.cache import Files, Unfetched
from spillover.api.grpc.blobs import send_blob, take_blob
from spillover.ports.blobs import BlobBounds
from spillover.stores.blobs import FileBlobs
from spillover.wire import agents_pb2 as pb


class Server:
    """The two calls of the agents' service that move files, and a gate that holds them."""

    def __init__(self, folder: Path) -> None:
        self.blobs = FileBlobs(folder, BlobBounds(file=8 << 20, total=10 << 20))
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def get(self, request: pb.BlobRequest, context: Any) -> AsyncIterator[pb.BlobPiece]:
        self.asked.set()
        await self.gate.wait()
        async for piece in send_blob(self.blobs, request, context):
            yield piece

    async def put(self, pieces: AsyncIterator[pb.BlobPiece], context: Any) -> pb.BlobReply:
        self.asked.set()
        await self.gate.wait()
        return await take_blob(self.blobs, pieces, context)

    async def listen(self) -> tuple[grpc.aio.Server, str]:
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        methods = {
            "GetBlob": grpc.unary_stream_rpc_method_handler(
                self.get, pb.BlobRequest.FromString, pb.BlobPiece.SerializeToString
            ),
            "PutBlob": grpc.stream_unary_rpc_method_handler(
                self.put, pb.BlobPiece.FromString, pb.BlobReply.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("spillover.agents.v1.Agents", methods),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"


class Line:
    """A server, and a connection that can be cut and made anew."""

    def __init__(self, server: Server, address: str) -> None:
        self.server = server
        self.transfers = ServerTransfers()
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    def connect(self) -> None:
        self._channel = grpc.aio.insecure_channel(self._address)
        self.transfers.connected(self._channel, ())

    async def cut(self) -> None:
        self.transfers.disconnected()
        if self._channel is not None:
            await self._channel.close(None)


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    server = Server(tmp_path / "blobs")
    listening, address = await server.listen()
    line = Line(server, address)
    line.connect()
    yield line
    await line.cut()
    await listening.stop(0)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_files_go_there_and_back(line: Line, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    files = Files(tmp_path / "files", line.transfers)
    files.open()
    assert await files.upload(data) == digest(data)
    assert await files.upload(data) == digest(data)
    assert await files.read(digest(data)) == data


async def test_a_connection_that_is_closed_is_waited_for_and_cancels_nobody(
    line: Line, tmp_path: Path
) -> None:
    data = b"d" * (3 << 20)
    files = Files(tmp_path / "files", line.transfers)
    files.open()
    line.server.gate.clear()
    uploading = asyncio.create_task(files.upload(data))
    await line.server.asked.wait()
    await line.cut()
    await asyncio.sleep(0.3)
    assert not uploading.done()
    line.connect()
    line.server.gate.set()
    async with asyncio.timeout(10):
        assert await uploading == digest(data)
    line.server.gate.clear()
    line.server.asked.clear()
    reading = asyncio.create_task(files.read(digest(data)))
    await line.server.asked.wait()
    await line.cut()
    line.connect()
    line.server.gate.set()
    async with asyncio.timeout(10):
        assert await reading == data


async def test_whoever_is_cancelled_is_cancelled(line: Line) -> None:
    line.server.gate.clear()
    getting = asyncio.ensure_future(anext(aiter(line.transfers.get("0" * 64, 0))))
    await line.server.asked.wait()
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting


async def test_what_the_server_will_never_do_is_told_from_what_it_cannot_do_now(
    line: Line, tmp_path: Path
) -> None:
    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(data), 1 << 20):
            yield data[at : at + (1 << 20)]

    with pytest.raises(TransferRefused, match="there is no blob"):
        await anext(aiter(line.transfers.get("0" * 64, 0)))
    with pytest.raises(TransferRefused, match="SHA-256"):
        await line.transfers.put("0" * 64, pieces(b"other"))
    large = b"l" * (9 << 20)
    with pytest.raises(TransferRefused, match="max_file"):
        await line.transfers.put(digest(large), pieces(large))
    first, second = b"1" * (6 << 20), b"2" * (6 << 20)
    await line.transfers.put(digest(first), pieces(first))
    with pytest.raises(Full, match="max_total"):
        await line.transfers.put(digest(second), pieces(second))
    files = Files(tmp_path / "files", line.transfers)
    files.open()
    with pytest.raises(Unfetched, match="there is no blob"):
        await files.read("0" * 64)
    await line.cut()
    with pytest.raises(ServerAway):
        await line.transfers.put(digest(b""), pieces(b""))


async def test_a_file_that_cannot_be_read_is_not_tried_again_and_again(line: Line, tmp_path: Path) -> None:
    files = Files(tmp_path / "files", line.transfers)
    files.open()
    async with asyncio.timeout(10):
        with pytest.raises(Unfetched, match="it cannot be read: No such file or directory"):
            await files.upload(tmp_path / "gone", digest(b"gone"))
        with pytest.raises(Unfetched, match="it cannot be read: No such file or directory"):
            await files.upload(tmp_path / "gone")
