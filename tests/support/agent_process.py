"""Runs a real agent process for tests, and builds leases for it."""

import asyncio
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from spillover.model.units import MINUTE, SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.fork_server import AGENT, Forked, fork_server


class AgentProcess:
    """Runs `python -m spillover.agent` on a data folder; leaves nothing running."""

    def __init__(self, data: Path, *words: str, name: str = "n1", cpu: str = "2") -> None:
        self.folder = data / "agents" / name
        self._words = ["--data", str(data), "--name", name, "--cluster", "lab", "--cpu", cpu, *words]
        self._log = data / f"{name}.log"
        self.process: Forked | asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the agent, or start it again."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = fork_server(AGENT).start(
                self._words,
                folder=Path.cwd(),
                environment=os.environ,
                streams=(0, 1, log.fileno()),
                program="spillover.agent",
            )

    @property
    def pid(self) -> int:
        """Pid of the agent itself."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the agent."""
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kill the agent with SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.wait()

    async def wait(self, seconds: float = 20) -> int:
        """Wait for the agent to exit; return its exit code."""
        assert self.process is not None
        async with asyncio.timeout(seconds):
            return await ended(self.process)

    async def stop(self) -> int:
        """Stop the agent in order, if it still runs."""
        assert self.process is not None
        if self.process.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            return await self.wait()
        except TimeoutError:
            await self.kill()
            raise

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text()


async def ended(process: Forked | asyncio.subprocess.Process) -> int:
    """Wait for the end of a process; its exit code."""
    if isinstance(process, Forked) and process.returncode is None:
        loop, readable, number = asyncio.get_running_loop(), asyncio.Event(), process.fileno()
        loop.add_reader(number, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(number)
    code = process.wait()
    return code if isinstance(code, int) else await code


def a_grant(
    job: str,
    run: str | None = None,
    *,
    argv: tuple[str, ...] = (),
    seq: int = 1,
    cpu: int = 1000,
    memory: int = 0,
    gpu: int = 0,
    workdir: str = "/",
    walltime: int = 0,
    grace: int = SECOND,
    lost_after: int = 5 * MINUTE,
    env: dict[str, str] | None = None,
) -> pb.Grant:
    """Return a lease for the first attempt of a job, with a shell command or an argv."""
    task = pb.Task(
        env=env or {},
        workdir=workdir,
        resources=pb.Resources(cpu=cpu, memory=memory, gpu=gpu),
        walltime=walltime,
        grace=grace,
        lost_after=lost_after,
    )
    if run is not None:
        task.shell = run
    else:
        task.argv.words.extend(argv)
    return pb.Grant(lease=pb.Lease(job=job, attempt=1, seq=seq), task=task)
