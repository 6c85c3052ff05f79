"""Output of tasks on external clusters is saved within bounds, as far as it can be had."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from spillover.control.driving.saved_output import LEAST, OutputArchive
from spillover.core.events import Lease
from spillover.model.files import File, is_kept_stream, kept_stream
from spillover.model.ids import JobId
from spillover.ports.cluster import OutputGone
from spillover.stores.blobs import MemoryBlobs

LEASE = Lease(JobId("gang"), 1, 1)


class Pods:
    """What each pod wrote; None if its log is gone."""

    def __init__(self, *written: bytes | None) -> None:
        self._written = written

    async def output(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        del lease, offset, follow
        written = self._written[task]
        if written is None:
            raise OutputGone("its pod was deleted")
        yield written


async def kept(limit: int, *written: bytes | None) -> dict[str, bytes]:
    """What is saved, by path."""
    blobs = MemoryBlobs()
    pods: Any = Pods(*written)
    listed = await OutputArchive(blobs, limit).keep(pods, LEASE, len(written))

    async def read(digest: str) -> bytes:
        return b"".join([piece async for piece in blobs.get(digest, 0)])

    files = msgspec.json.decode(await read(listed), type=list[File])
    return {file.path: await read(file.digest) for file in files if file.path.endswith("stdout")}


async def test_the_output_of_every_task_is_saved() -> None:
    assert await kept(2**20, b"one", b"two", b"three") == {
        ".spillover/stdout": b"one",
        ".spillover/1/stdout": b"two",
        ".spillover/2/stdout": b"three",
    }


async def test_a_task_whose_log_is_gone_does_not_spoil_that_of_others() -> None:
    assert await kept(2**20, None, b"two", None) == {".spillover/1/stdout": b"two"}


async def test_without_any_output_nothing_is_saved() -> None:
    with pytest.raises(OutputGone):
        await kept(2**20, None, None)


async def test_all_tasks_but_the_first_share_one_limit() -> None:
    limit = 16 * LEAST
    long = b"x" * limit
    saved = await kept(limit, *[long] * 5)
    sizes = [len(saved[kept_stream(task, stderr=False)]) for task in range(5)]
    assert sizes[0] == limit
    assert all(limit // 4 <= size < limit // 4 + 100 for size in sizes[1:])


def test_saved_streams_are_not_files_of_the_job() -> None:
    assert is_kept_stream(".spillover/stdout")
    assert is_kept_stream(kept_stream(12, stderr=True))
    assert not is_kept_stream("stdout")
    assert not is_kept_stream(".spillover/mine/stdout")
    assert not is_kept_stream("12/stdout")
