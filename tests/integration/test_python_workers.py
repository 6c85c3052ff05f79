"""The runner of Python calls and its real worker processes, in a house where a test says when the end of a process is told."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path

import pytest

from spillover.agent.files.cache import Files
from spillover.agent.leases.values import Exit, Task
from spillover.agent.nursery.clock import boottime
from spillover.agent.runners.port import RunnerContext, Sight
from spillover.agent.runners.python import PythonCalls
from spillover.agent.tasks.process import ProcessEnded, Returned, Seen
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Argv, PythonCall
from spillover.model.resources import Resources
from tests.support.waiting import turn, until

SECONDS = 20.0
MODULE = """
import os, signal, time

def begin(name):
    with open("begun", "a") as file:
        file.write(name + "\\n")

def quick(name):
    begin(name)

def gated(name):
    begin(name)
    while not os.path.exists(name + ".go"):
        time.sleep(0.001)

def polite(name):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    begin(name)
    while not told:
        time.sleep(0.001)

def traced(name):
    begin(name + "=" + os.environ.get("TRACEPARENT", "none"))

def spoiled(name):
    traced(name)
    os.environ["TRACEPARENT"] = "its own"

def leave(name):
    begin(name)
    os._exit(7)
"""


class NoServer:
    """No call here needs a file."""

    async def ready(self) -> None:
        raise AssertionError

    def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        raise AssertionError(digest, offset)

    async def put(self, digest: str, pieces: AsyncIterable[bytes]) -> None:
        raise AssertionError(digest, pieces)


class Process:
    """A process that was launched, whose end is told when a test says so."""

    def __init__(self, lease: Lease, task: Task, tell: Callable[[Seen], None]) -> None:
        assert isinstance(task.work, Argv)
        self.lease = lease
        self._tell = tell
        self.popen = subprocess.Popen(
            task.work.command,
            cwd=task.workdir,
            env=task.env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def end(self) -> None:
        """Wait until it is gone, and tell so."""
        await asyncio.to_thread(self.popen.wait, SECONDS)
        self.told()

    def told(self) -> None:
        """Tell that it is gone, once it is: nobody else has a turn meanwhile."""
        code = self.popen.wait(SECONDS)
        end = Exit(boottime(), code=max(0, code), signal=-code if code < 0 else None)
        self._tell(ProcessEnded(self.lease, end))


class Shop:
    """A runner, what it launched, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        (self.work / "mine.py").write_text(MODULE)
        self.processes: list[Process] = []
        self.sights: list[Sight] = []
        self._seq = 0
        self._works: dict[tuple[str, str], PythonCall] = {}
        self.runner = PythonCalls(
            RunnerContext(
                folder=folder / "agent",
                cluster="lab",
                capacity=Resources(2000),
                seen=self.sights.extend,
                launch=self._launch,
                signal=self._signal,
                name_output=self._name_output,
                files=Files(folder / "files", NoServer()),
            )
        )

    def _launch(self, lease: Lease, task: Task, seen: Callable[[Seen], None] | None) -> None:
        assert seen is not None
        self.processes.append(Process(lease, task, seen))

    def _signal(self, lease: Lease, kill: bool) -> None:
        (process,) = [each for each in self.processes if each.lease == lease]
        process.popen.send_signal(9 if kill else 15)

    async def _name_output(self, lease: Lease) -> None:
        raise AssertionError(lease)

    def start(
        self,
        function: str,
        name: str,
        slot: int = 1,
        outputs: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Lease:
        self._seq += 1
        lease = Lease(JobId(name), 1, self._seq)
        work = self._works.setdefault((function, name), PythonCall(f"mine:{function}", (name,)))
        task = Task(work, Resources(1000), env or {}, workdir=str(self.work), outputs=outputs)
        self.runner.start(lease, task, slot)
        return lease

    def begun(self) -> list[str]:
        """The calls that were made, in their order."""
        path = self.work / "begun"
        return path.read_text().split() if path.exists() else []

    async def begins(self, name: str) -> None:
        await until(lambda: name in self.begun(), f"the call {name}")

    def let(self, name: str) -> None:
        """Have a call return that waits."""
        (self.work / f"{name}.go").touch()

    def ended(self) -> list[tuple[str, int | None]]:
        """The calls whose end was told, with their exit codes."""
        return [(what.lease.job, what.end.code) for what in self.sights if isinstance(what, ProcessEnded)]

    def returned(self) -> list[str]:
        """The calls that were handed back."""
        return [what.lease.job for what in self.sights if isinstance(what, Returned)]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path)
    await shop.runner.open()
    yield shop
    await shop.runner.close()
    for process in shop.processes:
        process.popen.kill()
        process.popen.wait()


async def made_elsewhere(shop: Shop, *names: str) -> None:
    """Calls that were handed back are made by another worker."""
    await until(lambda: shop.returned() == list(names), f"{names} come back")
    for name in names:
        shop.start("quick", name, slot=2)
    made = [(name, 0) for name in names]
    await until(lambda: shop.ended()[-len(names) :] == made, f"{names} are made")
    assert len(shop.processes) == 2


async def test_those_behind_a_call_that_returns_when_it_is_stopped_are_made_elsewhere(shop: Shop) -> None:
    stopped = shop.start("polite", "a")
    shop.start("quick", "b")
    shop.start("quick", "c")
    await shop.begins("a")
    shop.runner.signal(stopped, kill=False)
    await shop.processes[0].end()
    assert shop.ended() == [("a", 0)]
    await made_elsewhere(shop, "b", "c")
    assert shop.begun() == ["a", "b", "c"]


async def test_those_behind_a_call_that_ended_before_it_could_be_stopped_are_made_elsewhere(
    shop: Shop,
) -> None:
    stopped, after = shop.start("gated", "a"), shop.start("gated", "b")
    shop.start("quick", "c")
    shop.start("quick", "d")
    await shop.begins("a")
    shop.runner.signal(stopped, kill=False)
    # The order goes out when others have their turn, and by then the next call runs.
    shop.let("a")
    late = time.monotonic() + SECONDS
    while "b" not in shop.begun():
        assert time.monotonic() < late
    await shop.runner.name_output(after)  # an order after that one, so that one was read as well
    shop.let("b")
    await shop.processes[0].end()
    assert shop.ended() == [("a", 0), ("b", 0)]
    await made_elsewhere(shop, "c", "d")
    assert shop.begun() == ["a", "b", "c", "d"]


async def is_made(shop: Shop, name: str) -> None:
    await until(lambda: shop.ended()[-1:] == [(name, 0)], f"{name} is made")


@pytest.mark.parametrize("slot", [1, -1])
async def test_calls_of_several_traces_share_a_worker_and_each_sees_its_own(shop: Shop, slot: int) -> None:
    for name, trace in (("a", "one"), ("b", "two"), ("c", None), ("d", "three")):
        env = {"A": "1"} if trace is None else {"A": "1", "TRACEPARENT": trace}
        shop.start("spoiled" if name == "b" else "traced", name, slot, env=env)
        await is_made(shop, name)
    assert shop.begun() == ["a=one", "b=two", "c=none", "d=three"]
    assert len(shop.processes) == 1
    shop.start("traced", "e", slot, env={"A": "2", "TRACEPARENT": "three"})
    await is_made(shop, "e")
    assert len(shop.processes) == 2, "other variables need another process"


async def test_the_end_of_a_worker_after_the_runner_closed_is_nothing_to_it(shop: Shop) -> None:
    shop.start("gated", "a")
    shop.start("quick", "b")
    await shop.begins("a")
    await shop.runner.close()
    shop.sights.clear()
    await shop.processes[0].end()
    await turn()
    assert shop.sights == []


async def test_what_is_asked_for_a_call_after_the_runner_closed_is_nothing_to_it(shop: Shop) -> None:
    running = shop.start("gated", "a")
    await shop.begins("a")
    await shop.runner.close()
    shop.runner.signal(running, kill=False)
    shop.runner.recall(running)
    await shop.runner.name_output(running)
    await shop.processes[0].end()


async def test_a_result_that_was_sent_counts_though_the_end_of_its_worker_is_heard_of_first(
    shop: Shop,
) -> None:
    stopped = shop.start("polite", "a")
    shop.start("quick", "b")
    await shop.begins("a")
    shop.runner.signal(stopped, kill=False)
    await turn()  # in which the order goes out, and nothing is read
    shop.processes[0].told()
    await made_elsewhere(shop, "b")
    assert shop.ended() == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_call_whose_result_was_sent_is_not_made_again_though_its_worker_died_unread(
    shop: Shop, turns: int
) -> None:
    """Or where that it died was seen by writing to it, now or a turn ago."""
    shop.start("quick", "c")
    await until(lambda: shop.ended() == [("c", 0)], "the call c")
    shop.start("gated", "a")
    await shop.begins("a")
    shop.start("leave", "b")
    for _ in range(2):
        await turn()  # it is sent by itself, so the result of the one before does not wait for it
    shop.let("a")
    shop.processes[0].popen.wait(SECONDS)
    shop.start("quick", "c")
    for _ in range(turns):
        await turn()
    shop.processes[0].told()
    await made_elsewhere(shop, "c")
    assert shop.ended() == [("c", 0), ("a", 0), ("b", 7), ("c", 0)]
    assert shop.begun() == ["c", "a", "b", "c"]


async def test_a_call_with_files_gets_no_worker_of_a_deleted_folder_with_the_same_path(shop: Shop) -> None:
    """Such as after it came back and starts again."""
    shop.start("quick", "a", outputs=("made",))
    await until(lambda: shop.ended() == [("a", 0)], "the call a")
    shop.work.rename(shop.work.with_name("deleted"))
    shop.work.mkdir()
    (shop.work / "mine.py").write_text(MODULE)
    shop.start("quick", "b", outputs=("made",))
    await until(lambda: len(shop.ended()) == 2, "the call b")
    assert shop.ended() == [("a", 0), ("b", 0)]
    assert shop.begun() == ["b"]
