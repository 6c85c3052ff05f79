"""Secrets on an agent: where their values are while a task runs, and that nothing is left of them."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.agent.connection.convert import InvalidMessage, grant_in
from spillover.agent.connection.transfers import ServerAway, TransferRefused
from spillover.agent.leases.values import Exit, Task
from spillover.agent.tasks import secrets
from spillover.agent.tasks.process import ProcessEnded, Returned
from spillover.agent.tasks.secrets import NoSecrets, TaskSecrets
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import SecretUse, Shell
from spillover.model.resources import Resources
from spillover.wire import agents_pb2 as pb
from tests.unit.agent.test_staging import LEASE, House, until

DB, LICENSE = SecretUse("db", "DB"), SecretUse("license", "LICENSE_FILE", file=True)
TASK = Task(Shell("true"), Resources(1000), secrets=(DB, LICENSE))


class Source:
    """A server that sends values, after some tries."""

    def __init__(self, **values: bytes) -> None:
        self.values = values
        self.away = 0
        self.asked: list[Lease] = []
        self.refusal = ""

    async def ready(self) -> None:
        pass

    async def secrets(self, lease: Lease) -> dict[str, bytes]:
        self.asked.append(lease)
        if self.away:
            self.away -= 1
            raise ServerAway("restarting")
        if self.refusal:
            raise TransferRefused(self.refusal)
        return self.values


@pytest.fixture
def source() -> Source:
    return Source(db=b"hunter2", license=b"\xff\x00\n")


@pytest.fixture
def kept(tmp_path: Path, source: Source) -> TaskSecrets:
    (tmp_path / "memory").mkdir()
    return TaskSecrets(tmp_path / "agent", source, tmp_path / "memory")


async def test_a_task_gets_variables_and_files_that_only_its_user_can_read(
    kept: TaskSecrets, tmp_path: Path
) -> None:
    variables = await kept.bring(LEASE, TASK)
    (folder,) = (tmp_path / "memory").glob("*/*")
    assert variables == {
        "DB": "hunter2",
        "LICENSE_FILE": f"{folder}/license",
        "SPILL_SECRETS": str(folder),
    }
    assert (folder / "license").read_bytes() == b"\xff\x00\n"
    assert list(folder.glob("*")) == [folder / "license"], "variables are in no file"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder / "license", folder, folder.parent)]
    assert modes == [0o600, 0o700, 0o700]
    kept.leave(LEASE)
    assert list((tmp_path / "memory").glob("*/*")) == []


async def test_values_are_fetched_for_each_start_and_replace_earlier_files(
    kept: TaskSecrets, source: Source
) -> None:
    await kept.bring(LEASE, TASK)
    source.values["license"] = b"new"
    variables = await kept.bring(LEASE, TASK)
    assert content(variables["LICENSE_FILE"]) == b"new"
    assert source.asked == [LEASE, LEASE]


async def test_a_variable_may_have_bytes_that_are_no_text_but_no_nul(
    kept: TaskSecrets, source: Source
) -> None:
    only = replace(TASK, secrets=(DB,))
    source.values["db"] = b"\xfe\n"
    assert os.fsencode((await kept.bring(LEASE, only))["DB"]) == b"\xfe\n"
    source.values["db"] = b"a\0b"
    with pytest.raises(NoSecrets, match="secret db has a NUL byte, so it can only be a file"):
        await kept.bring(LEASE, only)


async def test_a_task_without_secrets_asks_for_none(kept: TaskSecrets, source: Source) -> None:
    assert await kept.bring(LEASE, replace(TASK, secrets=())) == {}
    assert source.asked == []


async def test_an_agent_asks_until_the_server_answers(
    kept: TaskSecrets, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "PAUSE", 0.0)
    source.away = 2
    assert (await kept.bring(LEASE, TASK))["DB"] == "hunter2"
    source.refusal = "project vision has no secret db"
    with pytest.raises(NoSecrets, match=r"^cannot get its secrets: project vision has no secret db$"):
        await kept.bring(LEASE, TASK)
    source.refusal = ""
    del source.values["db"]
    with pytest.raises(NoSecrets, match="did not send secret db"):
        await kept.bring(LEASE, TASK)


async def test_the_next_run_of_an_agent_deletes_what_one_that_died_left(
    kept: TaskSecrets, source: Source, tmp_path: Path
) -> None:
    folder = Path((await kept.bring(LEASE, TASK))["SPILL_SECRETS"])
    other = TaskSecrets(tmp_path / "other", source, tmp_path / "memory")
    other.open()
    assert folder in (tmp_path / "memory").rglob("*"), "it is that of another agent"
    TaskSecrets(tmp_path / "agent", source, tmp_path / "memory").open()
    assert list((tmp_path / "memory").iterdir()) == []


async def test_without_a_memory_file_system_files_are_in_the_folder_of_the_agent(
    source: Source, tmp_path: Path
) -> None:
    kept = TaskSecrets(tmp_path / "agent", source, tmp_path / "none")
    folder = Path((await kept.bring(LEASE, TASK))["SPILL_SECRETS"])
    assert folder.parent == tmp_path / "agent" / "secrets"
    kept.close()
    assert not folder.parent.exists()


async def test_a_folder_or_link_of_somebody_else_is_not_used(
    kept: TaskSecrets, source: Source, tmp_path: Path
) -> None:
    mine = Path((await kept.bring(LEASE, TASK))["SPILL_SECRETS"]).parent
    kept.close()
    (tmp_path / "trap").mkdir(mode=0o777)
    for link in (True, False):
        if link:
            mine.symlink_to(tmp_path / "trap")
        else:
            mine.mkdir(0o755)
        again = TaskSecrets(tmp_path / "agent", source, tmp_path / "memory")
        again.open()
        folder = Path((await again.bring(LEASE, TASK))["SPILL_SECRETS"])
        assert folder.is_relative_to(tmp_path / "agent")
        again.close()
        mine.unlink() if link else mine.rmdir()
    assert list((tmp_path / "trap").iterdir()) == []


async def test_a_task_that_is_stopped_while_files_are_written_leaves_none(
    kept: TaskSecrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, put = asyncio.Event(), asyncio.Event(), secrets._put
    loop = asyncio.get_running_loop()

    def slow(folder: Path, files: dict[str, bytes]) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        put(folder, files)

    monkeypatch.setattr(secrets, "_put", slow)
    bringing = asyncio.create_task(kept.bring(LEASE, TASK))
    await begun.wait()
    bringing.cancel()
    kept.leave(LEASE)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await bringing
    assert [path for path in (tmp_path / "memory").rglob("*") if path.is_file()] == []


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def files_of(house: House) -> list[Path]:
    """The secret files that an agent has now."""
    return [path for path in house.folder.rglob("license") if path.is_file()]


async def test_a_stage_gives_a_task_its_secrets_and_deletes_them_when_its_process_ended(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)
    house.safe.values = {"db": b"hunter2", "license": b"x"}
    assert TASK.has_files
    assert not TASK.has_folder
    for back in (False, True):
        await house.run(TASK)
        assert len(files_of(house)) == 1
        if back:
            assert house.staging.hold_back_ends([Returned(LEASE)]) == [Returned(LEASE)]
        else:
            assert house.staging.hold_back_ends([ProcessEnded(LEASE, Exit(1, code=0))]) == []
        assert files_of(house) == []
        if not back:
            async with asyncio.timeout(5):
                await house.ends.get()
    await house.staging.close()


async def test_a_task_without_its_secrets_does_not_start(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.staging.start(LEASE, TASK, -1)
    async with asyncio.timeout(5):
        end = await house.ends.get()
    assert (end.spawned, end.message) == (False, "cannot get its secrets: project vision has no secret db")
    assert house.started == []


async def test_secrets_of_a_prepared_task_go_with_it_if_its_gang_does_not_start(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.safe.values = {"db": b"hunter2", "license": b"x"}
    house.staging.prepare(LEASE, replace(TASK, tasks=2))
    async with asyncio.timeout(5):
        assert await house.prepared.get() == ""
    assert len(files_of(house)) == 1
    house.staging.discard(LEASE)
    await until(lambda: not files_of(house))


def test_a_lease_names_secrets_only() -> None:
    uses = [pb.SecretUse(name="db", variable="DB"), pb.SecretUse(name="a", variable="B", file=True)]
    lease = pb.Lease(job="abc", attempt=1, seq=7)
    grant = grant_in(pb.Grant(lease=lease, task=pb.Task(shell="true", secrets=uses)))
    assert grant.lease == Lease(JobId("abc"), 1, 7)
    assert grant.task is not None
    assert grant.task.secrets == (DB, SecretUse("a", "B", file=True))
    wrong = pb.Task(shell="true", secrets=[pb.SecretUse(name="../x", variable="A")])
    with pytest.raises(InvalidMessage, match="which is not a name"):
        grant_in(pb.Grant(lease=lease, task=wrong))
