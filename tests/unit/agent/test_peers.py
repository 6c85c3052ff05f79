"""Files that come from another agent: nothing is left of one that did not come to its end."""

import asyncio
import threading
from pathlib import Path

import pytest

from spillover.agent.connection import peers
from spillover.agent.connection.transfers import ServerTransfers
from spillover.agent.files.cache import Files
from spillover.wire import agents_pb2 as pb


async def test_a_piece_that_is_written_late_makes_no_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()
    append = peers._append

    def slowly(path: Path, data: bytes) -> None:
        begun.set()
        go_on.wait(20)
        try:
            append(path, data)
        finally:
            over.set()

    monkeypatch.setattr(peers, "_append", slowly)
    files = Files(tmp_path, ServerTransfers())
    files.open()
    blobs = peers._Blobs(files)
    taking = asyncio.create_task(blobs.take(pb.BlobPiece(digest="0" * 64, data=b"data")))
    await asyncio.to_thread(begun.wait, 20)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await blobs.drop()
    go_on.set()
    await asyncio.to_thread(over.wait, 20)
    assert list((tmp_path / "half").iterdir()) == []
