"""Real nurseries where the system allows no more threads, sockets or processes, or where they die."""

import asyncio
import errno
import gc
import marshal
import os
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from spillover.agent.leases.values import Task
from spillover.agent.nursery import frames
from spillover.agent.nursery.marks import Marks, make
from spillover.agent.nursery.serving import Nursery, Setup
from spillover.agent.tasks import nurseries
from spillover.agent.tasks.nurseries import Listener
from spillover.agent.tasks.process import ProcessEnded, Processes, Returned, Sight, Spawned
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import SecretUse, Shell
from spillover.model.resources import Resources
from tests.support.waiting import turn

TRUE = Task(Shell("true"), Resources(1000))


class House:
    """Processes of an agent of two slots, and what is seen of them."""

    def __init__(self, folder: Path) -> None:
        self.sights: list[Sight] = []
        self._news = asyncio.Event()
        self.memory = folder / "memory"
        """Where messages with secrets go that are too large."""
        self.memory.mkdir()
        self.processes = Processes(
            folder, "lab", self._seen, isolation="none", threads=2, memory=lambda: self.memory
        )

    def _seen(self, seen: list[Sight]) -> None:
        self.sights += seen
        self._news.set()

    def start(self, *jobs: str, slot: int = -1) -> None:
        for job in jobs:
            self.processes.start(a_lease(job), TRUE, slot)

    async def until(self, count: int) -> None:
        """Wait until so many tasks are over; of one that takes a moment its start is seen, too."""
        async with asyncio.timeout(20):
            while sum(not isinstance(each, Spawned) for each in self.sights) < count:
                self._news.clear()
                await self._news.wait()

    def ended(self) -> set[str]:
        return {
            each.lease.job for each in self.sights if isinstance(each, ProcessEnded) and each.end.code == 0
        }


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.processes.open()
    yield house
    await house.processes.close()


def a_lease(job: str) -> Lease:
    return Lease(JobId(job), 1, 1)


async def test_tasks_of_one_slot_and_others_all_end(house: House) -> None:
    house.start(*"abc", slot=1)
    house.start(*"de")
    await house.until(5)
    assert house.ended() == {*"abcde"}


async def test_variables_with_secrets_that_are_too_large_for_a_message_do_not_get_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, written = House(tmp_path), list[Path]()
    put_aside = house.processes._large.put

    def seen(key: int, data: bytes) -> bytes:
        said = put_aside(key, data)
        written.append(Path(str(marshal.loads(said))).parent)
        return said

    large = replace(TRUE, env={"V": "x" * frames.LARGEST})
    monkeypatch.setattr(house.processes._large, "put", seen)
    await house.processes.open()
    house.processes.start(a_lease("a"), replace(large, secrets=(SecretUse("v", "V"),)))
    house.processes.start(a_lease("b"), large)
    await house.until(2)
    await house.processes.close()
    assert house.ended() == {"a", "b"}
    assert written == [house.memory, house.memory.parent]
    assert list(house.memory.iterdir()) == []


async def test_what_was_given_to_a_thread_that_cannot_be_comes_back_and_may_begin_elsewhere(
    house: House,
) -> None:
    house.start("a", slot=1)
    _, thread = next(iter(house.processes._tasks.values()))
    house.processes._said(thread.nursery, (frames.REFUSED, thread.number))
    assert house.sights == [Returned(a_lease("a"))]
    house.start("a", "b", "c", "d")
    await house.until(5)
    assert house.ended() == {*"abcd"}


async def test_without_any_thread_a_task_ends_as_one_that_was_never_made(house: House) -> None:
    for nursery in house.processes._nurseries.values():
        house.processes._said(nursery, (frames.REFUSED, 0))
    house.start("a")
    await house.until(1)
    (sight,) = house.sights
    assert isinstance(sight, ProcessEnded)
    assert not sight.end.spawned
    assert "no more threads" in sight.end.message


async def test_without_more_sockets_tasks_wait_for_the_threads_that_are_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: Any) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", none_left)
    house.start(*"abcdef")
    await house.until(6)
    assert house.ended() == {*"abcdef"}


async def test_who_waits_for_the_output_of_a_task_goes_on_when_it_ends_also_if_its_nursery_never_answers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.start("a")
    _, thread = next(iter(house.processes._tasks.values()))
    monkeypatch.setattr(thread.nursery, "say", lambda _: None)
    naming = asyncio.create_task(house.processes.name_output(a_lease("a")))
    await house.until(1)
    async with asyncio.timeout(5):
        await naming
    assert house.ended() == {"a"}


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    yield lock
    os.close(lock)


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def a_listener() -> Listener:
    return Listener(lambda *_: None, lambda _: None, lambda _: None, lambda _, data: data)


async def test_a_nursery_that_cannot_be_started_leaves_nothing_open(
    lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none_left)
    before = open_files()
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            await nurseries.NurseryProcess.start({}, lock, a_listener())
    assert open_files() == before


async def test_a_nursery_that_nobody_wants_any_more_while_it_is_made_is_ended(
    lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    made: list[subprocess.Popen[bytes]] = []
    make_process = subprocess.Popen

    def slowly(command: list[str], *, pass_fds: tuple[int, ...], **more: Any) -> subprocess.Popen[bytes]:
        begun.set()
        go_on.wait(20)
        for file in pass_fds:
            os.fstat(file)  # or it was closed, and may be anything by now
        made.append(make_process(command, pass_fds=pass_fds, **more))
        return made[0]

    monkeypatch.setattr(subprocess, "Popen", slowly)
    before = open_files()
    starting = asyncio.create_task(nurseries.NurseryProcess.start({}, lock, a_listener()))
    await asyncio.to_thread(begun.wait, 20)
    starting.cancel()
    await turn()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [child.returncode for child in made] == [-signal.SIGKILL]
    assert open_files() == before


def test_a_nursery_says_when_it_cannot_have_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    told = {
        "output": f"{tmp_path}/output",
        "spool": f"{tmp_path}/spool",
        "scratch": f"{tmp_path}/scratch",
        "limit": 1 << 20,
        "isolation": ("none", {}),
        "env": {},
    }
    agent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    file = make()
    with agent, control, ours, theirs:
        nursery = Nursery(control, Marks(file), Setup(told))
        os.close(file)
        monkeypatch.setattr(threading.Thread, "start", none_left)
        nursery._grow(3, theirs)
        assert frames.unpack(agent.recv(frames.LARGEST)) == (frames.REFUSED, 3)
        assert ours.recv(1) == b"", "its socket is closed"
