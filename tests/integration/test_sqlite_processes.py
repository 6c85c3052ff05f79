"""Several processes on one data folder: who leads, and who waits for whom."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from spillover.ports.election import Holder
from spillover.ports.journal import Unwritable
from spillover.stores.open import open_store
from spillover.stores.sqlite import files
from spillover.testing.stores import Watchface, a_batch, events_of, lead
from tests.support.waiting import turn

LEADER = """
import asyncio, sys
from pathlib import Path
from spillover.ports.journal import Fenced
from spillover.stores.open import open_store
from spillover.testing.stores import a_batch, lead

async def main():
    store = await open_store("sqlite", Path(sys.argv[1]))
    print(await lead(store, "child"), flush=True)
    sys.stdin.readline()
    try:
        await store.journal.append(0, a_batch(b"late"), 1)
    except Fenced:
        print("fenced", flush=True)
    print(await store.election.renew(1), flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(main())
"""
COMMITTER = """
import asyncio, sys
from pathlib import Path
from spillover.stores.open import open_store
from spillover.testing.stores import lead

async def main():
    store = await open_store("sqlite", Path(sys.argv[1]))
    await lead(store, "child")
    def stop(connection):
        connection.execute("BEGIN IMMEDIATE")
        print("committing", flush=True)
        sys.stdin.readline()
    await store.election._database.write(stop)

asyncio.run(main())
"""
CREATOR = """
import asyncio, sys
from pathlib import Path
from spillover.stores.open import open_store

async def main():
    sys.stdin.readline()
    store = await open_store("sqlite", Path(sys.argv[1]))
    answer = await store.election.campaign("one", "")
    print(isinstance(answer, int), flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(main())
"""


@contextmanager
def a_process(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_a_killed_leader_is_replaced_at_once(tmp_path: Path) -> None:
    with a_process(LEADER, tmp_path) as leader:
        assert hear(leader) == "1"
        store = await open_store("sqlite", tmp_path)
        assert await store.election.campaign("two", "") == Holder(name="child", url="http://child", epoch=1)
        leader.kill()
        leader.wait()
        assert await store.election.campaign("two", "") == 2
        await store.close()


async def test_a_stopped_leader_is_replaced_after_a_term_and_fenced_when_it_wakes(tmp_path: Path) -> None:
    clock = Watchface()
    with a_process(LEADER, tmp_path) as leader:
        assert hear(leader) == "1"
        os.kill(leader.pid, signal.SIGSTOP)
        store = await open_store("sqlite", tmp_path, 10, clock)
        assert isinstance(await store.election.campaign("two", ""), Holder)
        clock.now = 10
        assert await store.election.campaign("two", "") == 2
        assert await store.election.renew(2)
        assert await store.journal.append(0, a_batch(b"mine"), 2) == 1
        os.kill(leader.pid, signal.SIGCONT)
        tell(leader)
        assert hear(leader) == "fenced"
        assert hear(leader) == "False"
        assert await events_of(store.journal) == [(1, b"mine")]
        # The one that woke let the lock go, so the new leader has it from its next renewal on, and its own death is seen.
        assert await store.election.renew(2)
        await store.close()
        third = await open_store("sqlite", tmp_path)
        assert await lead(third) == 3
        await third.close()


async def test_a_leader_that_is_stopped_within_a_commit_is_killed_once_its_term_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "BUSY_MS", 50)
    clock = Watchface()
    with a_process(COMMITTER, tmp_path) as leader:
        assert hear(leader) == "committing"
        os.kill(leader.pid, signal.SIGSTOP)
        store = await open_store("sqlite", tmp_path, 10, clock)
        assert isinstance(await store.election.campaign("two", ""), Holder), "its term may last"
        assert leader.poll() is None
        clock.now = 10
        assert await store.election.campaign("two", "") == 2
        assert leader.wait() == -signal.SIGKILL
        assert f"killing process {leader.pid}, a server that stopped while writing" in caplog.text
        assert await store.journal.append(0, a_batch(b"mine"), 2) == 1
        await store.close()


@pytest.mark.parametrize("unsure", ["it is not stopped", "it is another process", "it is of another boot"])
async def test_a_process_that_is_not_surely_a_stopped_leader_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsure: str
) -> None:
    monkeypatch.setattr(files, "BUSY_MS", 50)
    clock = Watchface()
    with a_process(COMMITTER, tmp_path) as leader:
        assert hear(leader) == "committing"
        lock = tmp_path / "leader.lock"
        pid, birth, boot = lock.read_text().split()
        if unsure == "it is another process":
            lock.write_text(f"{pid} {int(birth) + 1} {boot}")
        elif unsure == "it is of another boot":
            lock.write_text(f"{pid} {birth} another")
        if unsure != "it is not stopped":
            os.kill(leader.pid, signal.SIGSTOP)
        store = await open_store("sqlite", tmp_path, 10, clock)
        assert isinstance(await store.election.campaign("two", ""), Holder)
        clock.now = 10
        who = "child" if unsure == "it is of another boot" else f"process {leader.pid}"
        with pytest.raises(Unwritable, match=rf"{who}, the leader .*kill -CONT"):
            await store.election.campaign("two", "")
        assert leader.poll() is None
        await store.close()


async def test_servers_that_start_together_on_an_empty_folder_agree_on_a_leader(tmp_path: Path) -> None:
    for round_ in range(3):
        folder = tmp_path / str(round_)
        with (
            a_process(CREATOR, folder) as one,
            a_process(CREATOR, folder) as two,
            a_process(CREATOR, folder) as three,
        ):
            processes = (one, two, three)
            for process in processes:
                tell(process)
            answers = sorted(hear(process) for process in processes)
            assert answers == ["False", "False", "True"]


async def test_a_lock_of_the_database_that_is_held_too_long_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUSY_MS", 20)
    store = await open_store("sqlite", tmp_path)
    epoch = await lead(store)
    other = apsw.Connection(str(tmp_path / "spill.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unwritable, match="another process holds its lock"):
        await store.journal.append(0, a_batch(b"a"), epoch)
    assert (await store.journal.load()).last == 0
    other.execute("ROLLBACK")
    other.close()
    assert await store.journal.append(0, a_batch(b"a"), epoch) == 1
    await store.close()


async def test_the_event_loop_goes_on_while_the_disk_is_waited_for(tmp_path: Path) -> None:
    store = await open_store("sqlite", tmp_path)
    epoch = await lead(store)
    other = apsw.Connection(str(tmp_path / "spill.db"))
    other.execute("BEGIN IMMEDIATE")
    appending = asyncio.create_task(store.journal.append(0, a_batch(b"a"), epoch))
    assert (await store.journal.load()).last == 0  # readers do not wait either
    assert not appending.done()
    other.execute("ROLLBACK")
    other.close()
    assert await appending == 1
    await store.close()


async def test_a_cancelled_append_may_be_asked_again(tmp_path: Path) -> None:
    store = await open_store("sqlite", tmp_path)
    epoch = await lead(store)
    appending = asyncio.create_task(store.journal.append(0, a_batch(b"a"), epoch))
    await turn()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert await store.journal.append(0, a_batch(b"a"), epoch) == 1
    assert await events_of(store.journal) == [(1, b"a")]
    await store.close()
    with pytest.raises(Unwritable, match="the store is closed"):
        await store.journal.append(1, a_batch(b"b"), epoch)
