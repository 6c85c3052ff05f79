"""What tasks wrote: its last line, all that is read of it, and whoever follows it."""

import asyncio
from pathlib import Path

import pytest

from spillover.agent.files.output import LAST_WORDS, Key, Outputs, last_line
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.wire import agents_pb2 as pb


@pytest.mark.parametrize(
    ("written", "last"),
    [
        (b"", ""),
        (b"one", "one"),
        (b"one\ntwo\n\n", "two"),
        (b"caf\xe9\n", "caf\ufffd"),
        (b"x" * 5_000 + b"\n", "x" * (LAST_WORDS - 1)),
    ],
)
def test_the_last_line_is_found(tmp_path: Path, written: bytes, last: str) -> None:
    path = tmp_path / "job.err"
    path.write_bytes(written)
    assert last_line(path) == last


def test_no_file_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "job.err") == ""


def test_a_file_that_no_memory_could_hold_has_a_last_line(tmp_path: Path) -> None:
    path = tmp_path / "job.err"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # all but its end is a hole
        file.seek(0, 2)
        file.write(b"\nno space left\n")
    assert last_line(path) == "no space left"


async def test_a_task_is_followed_from_one_lease_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.files.output.POLL", 60.0)
    first, second = Lease(JobId("job"), 1, 7), Lease(JobId("job"), 1, 8)
    lease: Lease | None = first
    looks: asyncio.Queue[Lease | None] = asyncio.Queue()
    chunks: asyncio.Queue[pb.OutputChunk] = asyncio.Queue()

    def held(_: Key) -> Lease | None:
        assert looks.qsize() < 5, "it looks again without waiting"
        looks.put_nowait(lease)
        return lease

    async def named(_: Lease) -> None:
        pass

    path = tmp_path / "jo" / "job.1.0.out"
    path.parent.mkdir()
    path.write_bytes(b"one")
    outputs = Outputs(tmp_path, held, named)
    outputs.request(pb.OutputRead(id=1, job="job", attempt=1, follow=True), chunks.put)
    async with asyncio.timeout(5):
        assert (await chunks.get()).data == b"one"
        assert await looks.get() == first
        lease = second
        outputs.ended(first)
        assert await looks.get() == second
        path.write_bytes(b"onetwo")
        lease = None
        outputs.ended(second)
        assert await looks.get() is None
        assert (await chunks.get()).data == b"two"
        assert (await chunks.get()).end
    await outputs.reset()
