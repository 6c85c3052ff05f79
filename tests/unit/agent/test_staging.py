"""Files around a task: a folder of its own with its inputs, and what it made brought away before its end is told."""

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spillover.agent.connection.transfers import ServerAway, TransferRefused
from spillover.agent.files.cache import Files
from spillover.agent.files.staging import Actors, Staging, upload_time
from spillover.agent.files.state_folders import StateFolders
from spillover.agent.files.task_folders import remove_folder
from spillover.agent.leases.values import Exit, Task
from spillover.agent.runners.port import Sight
from spillover.agent.tasks.environments import Environments
from spillover.agent.tasks.process import ProcessEnded, Returned
from spillover.agent.tasks.secrets import TaskSecrets
from spillover.core.events import Lease
from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND

LEASE = Lease(JobId("abc"), 1, 7)


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not there():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.001)


class Shelf:
    """A server's blobs."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.breaks = 0

    def add(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.blobs[name] = data
        return name

    async def ready(self) -> None:
        await self.gate.wait()

    async def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        await self.gate.wait()
        if digest not in self.blobs:
            raise TransferRefused("there is no such blob")
        yield self.blobs[digest][offset:]

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        await self.gate.wait()
        if self.breaks:
            self.breaks -= 1
            raise ServerAway("broken")
        self.blobs[digest] = b"".join([piece async for piece in pieces])


class Safe:
    """A server with secrets."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def ready(self) -> None:
        pass

    async def secrets(self, lease: Lease) -> dict[str, bytes]:
        del lease
        if not self.values:
            raise TransferRefused("project vision has no secret db")
        return self.values


class House:
    """An agent that notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf()
        self.safe = Safe()
        self.folder = folder
        self.started: list[Path] = []
        self.signals: list[bool] = []
        self.ends: asyncio.Queue[Exit] = asyncio.Queue()
        self.moving: list[bool] = []
        self.trouble: str | Exception = ""
        """Why the runner of gangs cannot prepare a task."""
        self.prepared: asyncio.Queue[str] = asyncio.Queue()
        files = Files(folder / "files", self.shelf)
        files.open()
        actors = Actors(
            start=lambda _, task, __: self.started.append(Path(task.workdir)),
            signal=lambda _, __, kill: self.signals.append(kill),
            seen=self._seen,
            moving=lambda _, moving: self.moving.append(moving),
            prepare=self._prepare,
            prepared=lambda _, why: self.prepared.put_nowait(why),
        )
        self.staging = Staging(
            folder / "work",
            files,
            actors,
            StateFolders(folder / "state", files),
            Environments(folder, "", {}, 0),
            TaskSecrets(folder, self.safe, folder),
        )
        self.staging.open()

    async def _prepare(self, _: Task) -> str:
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return self.trouble

    def _seen(self, seen: Sequence[Sight]) -> None:
        for what in self.staging.hold_back_ends(seen):
            assert isinstance(what, ProcessEnded)
            self.ends.put_nowait(what.end)

    def task(self, outputs: Sequence[str] = (), limit: int = 0, **inputs: bytes) -> Task:
        files = tuple(
            File(path.replace("__", "/"), self.shelf.add(data), len(data), executable=path == "tool")
            for path, data in inputs.items()
        )
        return Task(Shell("true"), Resources(1000), inputs=files, outputs=tuple(outputs), outputs_limit=limit)

    async def run(self, task: Task) -> Path:
        """Start a task and return its folder."""
        self.staging.start(LEASE, task, -1)
        await until(lambda: bool(self.started))
        return self.started.pop()

    async def end(self, code: int = 0) -> Exit:
        """The process ended; what is told of that in the end."""
        self._seen([ProcessEnded(LEASE, Exit(1, code=code))])
        async with asyncio.timeout(5):
            return await self.ends.get()

    def listed(self, end: Exit) -> dict[str, bytes]:
        files = msgspec.json.decode(self.shelf.blobs[end.outputs], type=list[File])
        return {file.path: self.shelf.blobs[file.digest] for file in files}


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr("spillover.agent.files.cache.PAUSE", 0.0)
    house = House(tmp_path)
    yield house
    await house.staging.close()


def left(house: House) -> list[str]:
    work = house.folder / "work"
    return sorted(path.name for path in work.iterdir()) if work.exists() else []


async def no_folder_is_left(house: House) -> None:
    await until(lambda: not left(house))


async def test_a_task_without_files_is_started_at_once(house: House) -> None:
    house.staging.start(LEASE, Task(Shell("true"), Resources(1000), workdir="/srv"), -1)
    assert house.started == [Path("/srv")]
    assert house.moving == []


async def test_inputs_are_there_and_outputs_come_back(house: House) -> None:
    folder = await house.run(house.task(["out/*", "tool"], deep__data=b"data", tool=b"#!/bin/sh"))
    assert (folder / "deep/data").read_bytes() == b"data"
    assert (folder / "tool").stat().st_mode & 0o777 == 0o700
    assert (folder / "deep/data").stat().st_mode & 0o777 == 0o600
    (folder / "deep/data").write_bytes(b"changed by the task")
    (folder / "out").mkdir()
    (folder / "out/a").write_bytes(b"A")
    (folder / "out/b").write_bytes(b"B")
    (folder / "rest").write_bytes(b"not asked for")
    house.shelf.breaks = 2
    end = await house.end()
    assert house.listed(end) == {"out/a": b"A", "out/b": b"B", "tool": b"#!/bin/sh"}
    assert (end.code, end.unkept, end.message) == (0, False, "")
    assert house.moving == [True, False, True]
    await no_folder_is_left(house)
    again = await house.run(house.task(deep__data=b"data"))
    assert (again / "deep/data").read_bytes() == b"data", "a task changed what is kept for others"


async def test_a_task_that_came_back_may_start_again_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was queued behind another one comes back, and the agent starts it again under the same lease."""
    deleting = threading.Event()

    def slowly(folder: Path) -> None:
        deleting.wait(5)
        remove_folder(folder)

    monkeypatch.setattr("spillover.agent.files.staging.remove_folder", slowly)
    task = house.task(data=b"data")
    (await house.run(task) / "data").write_bytes(b"changed")
    assert house.staging.hold_back_ends([Returned(LEASE)]) == [Returned(LEASE)]
    folder = await house.run(task)
    deleting.set()
    await until(lambda: left(house) == [folder.name])
    assert (folder / "data").read_bytes() == b"data"
    assert (await house.end()).code == 0
    await no_folder_is_left(house)


async def test_an_input_that_cannot_be_had_keeps_the_task_from_starting(house: House) -> None:
    task = house.task(data=b"data", other=b"other")
    del house.shelf.blobs[task.inputs[0].digest]
    house.staging.start(LEASE, task, -1)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert (end.spawned, end.message) == (False, "input data: there is no such blob")
    assert house.started == []
    await no_folder_is_left(house)


async def test_a_fault_while_inputs_come_ends_the_task_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("spillover.agent.files.staging.copy_file", broken)
    house.staging.start(LEASE, house.task(data=b"data"), -1)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert not end.spawned
    assert "cannot fetch its inputs" in end.message
    assert "can't start new thread" in end.message
    await no_folder_is_left(house)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
async def test_a_server_cannot_write_outside_of_the_folder(house: House, path: str) -> None:
    task = msgspec.structs.replace(house.task(), inputs=(File(path, house.shelf.add(b"x"), 1),))
    house.staging.start(LEASE, task, -1)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert not end.spawned
    assert "input" in end.message
    assert not (house.folder / "x").exists()


@pytest.mark.parametrize("kill", [False, True])
async def test_a_task_that_is_stopped_while_its_inputs_come_never_starts(house: House, kill: bool) -> None:
    house.shelf.gate.clear()
    house.staging.start(LEASE, house.task(data=b"data"), -1)
    await asyncio.sleep(0.01)
    house.staging.signal(LEASE, house.task(), kill=kill)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert (end.spawned, end.message) == (False, "stopped before it started")
    assert (house.started, house.signals) == ([], [])
    await no_folder_is_left(house)


@pytest.mark.parametrize("kill", [False, True])
async def test_a_task_that_is_stopped_as_soon_as_it_is_to_start_ends(house: House, kill: bool) -> None:
    house.staging.start(LEASE, house.task(data=b"data"), -1)
    house.staging.signal(LEASE, house.task(), kill=kill)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert (end.spawned, end.message) == (False, "stopped before it started")
    assert (house.started, house.signals) == ([], [])
    await no_folder_is_left(house)


async def test_a_task_that_is_to_start_when_all_is_closed_ends(house: House) -> None:
    house.staging.start(LEASE, house.task(data=b"data"), -1)
    await house.staging.close()
    assert house.ends.get_nowait().message == "stopped before it started"


@pytest.mark.parametrize(
    ("outputs", "ended", "told"),
    [
        (
            ["*"],
            Exit(1, code=0),
            Exit(1, code=0, message="there was no time to upload them", unkept=True),
        ),
        (["*"], Exit(1, signal=9), Exit(1, signal=9, message="there was no time to upload them")),
        (["*"], Exit(1, lost=True), Exit(1, lost=True)),
        ([], Exit(1, code=0), Exit(1, code=0)),
    ],
)
async def test_a_task_that_is_killed_as_it_ends_ends(
    house: House, outputs: list[str], ended: Exit, told: Exit
) -> None:
    await house.run(house.task(outputs, data=b"data"))
    house._seen([ProcessEnded(LEASE, ended)])
    house.staging.signal(LEASE, house.task(), kill=True)
    async with asyncio.timeout(5):
        assert await house.ends.get() == told
    assert house.signals == []
    await no_folder_is_left(house)


async def test_a_folder_that_is_made_slowly_is_removed_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def slowly(path: Path, *args: Any, **more: Any) -> None:
        time.sleep(0.05)
        make(path, *args, **more)

    monkeypatch.setattr(Path, "mkdir", slowly)
    house.staging.start(LEASE, house.task(data=b"data"), -1)
    await asyncio.sleep(0.01)
    house.staging.signal(LEASE, house.task(), kill=True)
    async with asyncio.timeout(5):
        await house.ends.get()
    await asyncio.sleep(0.1)
    await no_folder_is_left(house)


async def test_a_task_that_runs_is_signalled_and_one_that_uploads_goes_on_until_it_is_killed(
    house: House,
) -> None:
    folder = await house.run(house.task(["*"]))
    house.staging.signal(LEASE, house.task(), kill=False)
    assert house.signals == [False]
    (folder / "made").write_bytes(b"made")
    house.shelf.gate.clear()
    house._seen([ProcessEnded(LEASE, Exit(1, code=0))])
    await asyncio.sleep(0.01)
    house.staging.signal(LEASE, house.task(), kill=False)
    await asyncio.sleep(0.01)
    assert house.ends.empty()
    house.staging.signal(LEASE, house.task(), kill=True)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert (end.outputs, end.unkept) == ("", True)
    assert "no time to upload them" in end.message
    assert house.signals == [False]


async def test_what_is_too_large_is_named_and_the_rest_is_kept(house: House) -> None:
    folder = await house.run(house.task(["*"], limit=100))
    (folder / "a").write_bytes(b"a" * 60)
    (folder / "b").write_bytes(b"b" * 60)
    (folder / "c").write_bytes(b"c" * 40)
    end = await house.end()
    assert set(house.listed(end)) == {"a", "c"}
    assert end.unkept
    assert end.message.startswith("b has 60, which makes 120 in total; the maximum is 100")


async def test_a_task_that_failed_brings_back_what_fits_and_stays_a_failure(house: House) -> None:
    folder = await house.run(house.task(["*"], limit=10))
    (folder / "a").write_bytes(b"a")
    (folder / "b").write_bytes(b"b" * 60)
    end = await house.end(code=3)
    assert set(house.listed(end)) == {"a"}
    assert (end.code, end.unkept) == (3, False)


async def test_links_out_of_the_folder_and_what_is_no_file_stay_where_they_are(house: House) -> None:
    folder = await house.run(house.task(["*", "deep"]))
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "deep").mkdir()
    (folder / "deep/up").symlink_to("../..")
    (folder / "deep/real").write_bytes(b"real")
    (folder / "inside").symlink_to("deep/real")
    os.mkfifo(folder / "pipe")
    end = await house.end()
    assert house.listed(end) == {"deep/real": b"real", "inside": b"real"}
    assert end.unkept
    assert "'secret' is a symbolic link to outside the folder" in end.message


async def test_a_folder_that_a_task_closed_is_removed_all_the_same(house: House) -> None:
    folder = await house.run(house.task(data=b"x"))
    (folder / "closed/inner").mkdir(parents=True)
    (folder / "closed/inner/file").touch()
    (folder / "closed/inner").chmod(0)
    (folder / "closed").chmod(0)
    await house.end()
    await no_folder_is_left(house)


async def test_what_an_earlier_life_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "work/abc.1.0.1").mkdir(parents=True)
    (tmp_path / "work/abc.1.0.1/file").touch()
    house = House(tmp_path)
    assert left(house) == []


async def test_inputs_of_a_task_that_waits_are_fetched_ahead(house: House) -> None:
    task = house.task(data=b"data")
    house.staging.prefetch(task)
    await until(lambda: any((house.folder / "files").glob("??/*")))
    house.shelf.gate.clear()
    folder = await house.run(task)
    assert (folder / "data").read_bytes() == b"data"


async def test_folders_within_folders_without_end_end_a_task_all_the_same(house: House) -> None:
    folder = await house.run(house.task(["*", "**/none"]))
    (folder / "b").write_bytes(b"b")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(1100):  # deeper than Python calls itself, and longer than a path may be
        os.mkdir("deeper", dir_fd=at)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    end = await house.end()
    assert house.listed(end) == {"b": b"b"}
    await no_folder_is_left(house)


async def test_more_outputs_than_may_be_are_not_even_looked_at(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.files.task_folders.MOST_FILES", 3)
    folder = await house.run(house.task(["*"]))
    for name in "abcde":
        (folder / name).touch()
    end = await house.end()
    assert len(house.listed(end)) == 3
    assert end.unkept
    assert "more than 3 files" in end.message


async def test_an_output_that_cannot_be_looked_at_ends_the_task_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("odd")

    folder = await house.run(house.task(["*"]))
    (folder / "a").touch()
    monkeypatch.setattr("spillover.agent.files.staging.find_outputs", broken)
    end = await house.end()
    assert end.unkept
    assert "odd" in end.message


async def test_an_output_never_stands_for_what_the_task_wrote(house: House) -> None:
    folder = await house.run(house.task([".spillover/*", "a"]))
    (folder / ".spillover").mkdir()
    (folder / ".spillover/stdout").write_bytes(b"forged")
    (folder / "a").write_bytes(b"a")
    end = await house.end()
    assert house.listed(end) == {"a": b"a"}


async def test_an_upload_that_stalls_has_an_end_of_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.files.staging.upload_time", lambda size, lost_after: SECOND // 50)
    folder = await house.run(house.task(["result"]))
    (folder / "result").write_bytes(b"r")
    house.shelf.gate.clear()
    end = await house.end()
    assert end.unkept
    assert end.message == "the upload took longer than 20ms"
    await no_folder_is_left(house)


def test_the_time_for_an_upload_grows_with_its_size_and_outlasts_a_server_that_is_away() -> None:
    assert upload_time(0, 5 * MINUTE) == 15 * MINUTE
    assert upload_time(128 << 20, 5 * MINUTE) == 15 * MINUTE + 1024 * SECOND


# --- gangs


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize(
    ("trouble", "told"),
    [("", ""), ("no image", "no image"), (RuntimeError("a bug"), "cannot prepare it: a bug")],
)
async def test_a_task_of_a_gang_is_prepared_when_its_runner_is(
    house: House, files: bool, trouble: str | Exception, told: str
) -> None:
    house.trouble = trouble
    task = replace(house.task(data=b"1") if files else house.task(), workdir=str(house.folder))
    house.staging.prepare(LEASE, task)
    async with asyncio.timeout(5):
        assert await house.prepared.get() == told
    if told:
        await no_folder_is_left(house)
    else:
        house.staging.start(LEASE, task, -1)
        assert len(house.started) == 1
