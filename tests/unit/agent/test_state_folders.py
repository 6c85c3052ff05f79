"""Folders of tasks that outlive attempts: on one agent, and from one to the next."""

import asyncio
import os
import tarfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.agent.connection.transfers import ServerTransfers
from spillover.agent.files.cache import Files
from spillover.agent.files.staging import Actors, Staging
from spillover.agent.files.state_folders import KEPT, STATE, StateFolders, pack, unpack
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
from tests.unit.agent.test_staging import Shelf, until

JOB = JobId("abc")
TASK = Task(Shell("true"), Resources(1000), workdir="/srv", keep_state=True)


def lease(attempt: int, seq: int, rank: int = 0) -> Lease:
    return Lease(JOB, attempt, seq, rank)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Agent:
    """An agent that runs tasks with such folders."""

    def __init__(self, folder: Path, shelf: Shelf) -> None:
        self.folder = folder
        self.started: list[Task] = []
        self.ends: asyncio.Queue[Exit] = asyncio.Queue()
        files = Files(folder / "files", shelf)
        files.open()
        actors = Actors(
            start=lambda _, task, __: self.started.append(task),
            signal=lambda _, __, ___: None,
            seen=self._seen,
            moving=lambda _, __: None,
        )
        self.states = StateFolders(folder / "state", files)
        self.staging = Staging(
            folder / "work",
            files,
            actors,
            self.states,
            Environments(folder, "", {}, 0),
            TaskSecrets(folder, ServerTransfers(), folder),
        )
        self.staging.open()

    def _seen(self, seen: Sequence[Sight]) -> None:
        for what in self.staging.hold_back_ends(seen):
            if isinstance(what, ProcessEnded):
                self.ends.put_nowait(what.end)

    async def start(self, lease: Lease, task: Task = TASK) -> Path:
        """Start a task and return its folder that outlives attempts."""
        self.staging.start(lease, task, -1)
        await until(lambda: bool(self.started))
        return Path(self.started.pop().env[STATE])

    async def end(self, lease: Lease, code: int = 1) -> Exit:
        self._seen([ProcessEnded(lease, Exit(1, code=code))])
        async with asyncio.timeout(5):
            return await self.ends.get()

    def left(self) -> list[str]:
        folder = self.folder / "state"
        return names_in(folder) if folder.exists() else []


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[tuple[Agent, Agent]]:
    shelf = Shelf()
    two = Agent(tmp_path / "n1", shelf), Agent(tmp_path / "n2", shelf)
    yield two
    for agent in two:
        await agent.staging.close()


async def test_what_a_failed_attempt_left_is_there_for_the_next_on_any_agent(
    agents: tuple[Agent, Agent],
) -> None:
    first, second = agents
    state = await first.start(lease(1, 1))
    (state / "deep").mkdir()
    (state / "deep" / "step").write_text("17")
    (state / "run").touch(mode=0o700)
    (state / "last").symlink_to("deep/step")
    os.mkfifo(state / "pipe")
    end = await first.end(lease(1, 1))
    assert (end.code, end.message) == (1, "")
    assert first.left() == []
    for agent in (second, first):
        state = await agent.start(lease(2, 3), replace(TASK, saved=end.saved))
        assert names_in(state) == ["deep", "last", "run"]
        assert (state / "last").read_text() == "17"
        assert os.access(state / "run", os.X_OK)
        await agent.end(lease(2, 3), code=0)
        assert agent.left() == []


async def test_a_task_that_was_stopped_saves_even_if_it_exits_with_0(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    (await agent.start(lease(1, 1)) / "step").write_text("1")
    agent.staging.signal(lease(1, 1), TASK, kill=False)
    assert (await agent.end(lease(1, 1), code=0)).saved


async def test_a_task_with_files_has_both_folders(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    agent.staging.start(lease(1, 1), replace(TASK, outputs=("x",)), -1)
    await until(lambda: bool(agent.started))
    assert agent.started[0].workdir.startswith(str(agent.folder / "work"))
    assert agent.started[0].env[STATE] == str(agent.folder / "state" / "abc.0" / "data")


async def test_what_a_lost_attempt_left_is_used_if_its_agent_gets_the_next_one(tmp_path: Path) -> None:
    shelf = Shelf()
    died = Agent(tmp_path, shelf)
    (await died.start(lease(1, 1)) / "step").write_text("17")
    again = Agent(tmp_path, shelf)
    assert (await again.start(lease(2, 3)) / "step").read_text() == "17"


async def test_what_a_lost_attempt_left_is_old_once_another_agent_had_the_task(tmp_path: Path) -> None:
    shelf = Shelf()
    died, other = Agent(tmp_path / "n1", shelf), Agent(tmp_path / "n2", shelf)
    (await died.start(lease(1, 1)) / "step").write_text("17")
    (await other.start(lease(2, 3)) / "step").write_text("30")
    saved = (await other.end(lease(2, 3))).saved
    again = Agent(tmp_path / "n1", shelf)
    assert (await again.start(lease(3, 5), replace(TASK, saved=saved)) / "step").read_text() == "30"


async def test_tasks_of_a_gang_have_a_folder_each(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    assert await agent.start(lease(1, 1, 0)) != await agent.start(lease(1, 1, 1))


async def test_a_task_that_did_not_begin_leaves_the_folder_as_it_was(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    await agent.start(lease(1, 1))
    agent._seen([Returned(lease(1, 1))])
    state = await agent.start(lease(1, 1))
    (state / "step").write_text("1")
    assert (await agent.end(lease(1, 1))).saved


async def test_a_folder_that_is_too_large_is_not_saved_and_the_end_says_so(
    agents: tuple[Agent, Agent],
) -> None:
    agent, _ = agents
    task = replace(TASK, state_limit=1000)
    (await agent.start(lease(1, 1), task) / "big").write_bytes(b"x" * 2000)
    end = await agent.end(lease(1, 1))
    assert not end.saved
    assert end.message.startswith("its state was not saved: it has more than 1000")
    assert agent.left() == ["abc.0"], "the next attempt may still get it here"


async def test_a_state_that_is_gone_keeps_the_task_from_starting(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    agent.staging.start(lease(2, 3), replace(TASK, saved="0" * 64), -1)
    async with asyncio.timeout(5):
        end = await agent.ends.get()
    assert (end.spawned, end.message) == (False, "cannot bring its state: there is no such blob")


async def test_old_folders_of_nobody_are_deleted(agents: tuple[Agent, Agent]) -> None:
    agent, _ = agents
    used = await agent.start(lease(1, 1))
    old = agent.folder / "state" / "old.0"
    (old / "data").mkdir(parents=True)
    for path in (used, used.parent, *used.parent.iterdir(), old / "data", old):
        os.utime(path, (0, time.time() - KEPT - 60))
    agent.states.sweep()
    assert agent.left() == ["abc.0"]


def test_links_that_lead_out_of_the_folder_are_left_behind(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / "a").write_text("1")
    (tmp_path / "from" / "passwd").symlink_to("/etc/passwd")
    pack(tmp_path / "from", tmp_path / "packed", 100)
    with tarfile.open(tmp_path / "packed") as archive:
        assert archive.getnames() == ["a", "passwd"]
    unpack(tmp_path / "packed", tmp_path / "to")
    assert names_in(tmp_path / "to") == ["a"]


def test_inputs_alone_need_no_such_folder() -> None:
    assert not replace(TASK, keep_state=False).has_files
    assert replace(TASK, inputs=(File("x", "0" * 64, 1),)).has_files
