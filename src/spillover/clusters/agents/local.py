"""Runs agents on the server's machine, as separate processes.

They use the same protocol as remote agents. They may outlive the server; the next server adopts those that run.
"""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import format_cpu

log = structlog.get_logger()

LOOK: Final = 0.5
"""Seconds between two checks of whether the agents run."""
LONGEST_PAUSE: Final = 30.0
"""Most seconds between two tries to start an agent."""
PATIENCE: Final = 4.0
"""Seconds that agents have to stop before they are killed."""
MOST_LOG: Final = 16 << 20
"""Bytes of an agent's log before a new file begins."""


class LocalSpec(Struct, frozen=True):
    """One local agent."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    queue: int | None = None
    """None lets the agent choose."""
    offers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    options: tuple[str, ...] = ()
    """Further words for its command line."""


def is_time(looks: int) -> bool:
    """Return whether to start an agent after this many failed checks in a row: with a growing, bounded pause."""
    # At checks 1, 2, 4, 8, ... up to the bound, then at its multiples.
    bound = round(LONGEST_PAUSE / LOOK)
    return looks & (looks - 1) == 0 if looks < bound else looks % bound == 0


class LocalAgents:
    """Starts local agents, and restarts those that ended."""

    def __init__(
        self, data: Path, specs: tuple[LocalSpec, ...], umask: int = -1, files: int | None = None
    ) -> None:
        self._data = data
        self._umask = umask
        """For files that tasks create; -1 for that of the server."""
        self._files = files
        """Open-file limit of agents and their tasks: that before the server raised its own; None to inherit."""
        self._specs = specs
        self._children: dict[NodeName, asyncio.subprocess.Process] = {}

    async def run(self) -> None:
        """Start agents that do not run, until cancelled."""
        failures: dict[NodeName, int] = {}
        while True:
            for spec in self._specs:
                if not self._lives(spec):
                    count = failures[spec.name] = failures.get(spec.name, 0) + 1
                    if is_time(count):
                        try:
                            await self._start(spec)
                        except OSError as error:  # such as a full disk, or too many processes
                            log.error("cannot start an agent", agent=spec.name, error=str(error))  # noqa: TRY400 - one line
                else:
                    failures.pop(spec.name, None)
            await asyncio.sleep(LOOK)

    async def stop(self, successor: object = None) -> None:
        """Stop all agents and their tasks, except those that a successor runs unchanged."""
        kept = successor._specs if isinstance(successor, LocalAgents) else ()  # noqa: SLF001 - same class
        going = [spec for spec in self._specs if spec not in kept]
        pids = {spec.name: pid for spec in going if (pid := self._pid(spec)) is not None}
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while pids and asyncio.get_running_loop().time() < deadline:
            pids = {
                spec.name: pids[spec.name] for spec in self._specs if spec.name in pids and self._lives(spec)
            }
            await asyncio.sleep(0.02)
        for pid in pids.values():
            log.warning("an agent does not stop; killing it", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in [self._children[spec.name] for spec in going if spec.name in self._children]:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await child.wait()

    def _folder(self, spec: LocalSpec) -> Path:
        return self._data / "agents" / spec.name

    def _lives(self, spec: LocalSpec) -> bool:
        """Return whether the agent holds its lock, or is a child of ours that still starts."""
        child = self._children.get(spec.name)
        if child is not None and child.returncode is None:
            return True
        try:
            with (self._folder(spec) / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _pid(self, spec: LocalSpec) -> int | None:
        """Return the process id of a running agent."""
        child = self._children.get(spec.name)
        if child is not None and child.returncode is None:
            return child.pid
        if not self._lives(spec):
            return None
        try:
            told = msgspec.json.decode((self._folder(spec) / "agent.json").read_bytes())
            pid = int(told["pid"])
        except (OSError, ValueError, KeyError, TypeError, msgspec.DecodeError, RecursionError):
            return None
        return pid if 1 < pid < 2**31 else None  # a signal to 0 or below would reach whole process groups

    async def _start(self, spec: LocalSpec) -> None:
        """Start an agent in a session of its own."""
        folder = self._folder(spec)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = [
            *("--data", str(self._data), "--name", spec.name, "--cluster", spec.cluster),
            *("--cpu", format_cpu(spec.capacity.cpu), "--memory", str(spec.capacity.memory)),
            *("--gpu", str(spec.capacity.gpu)),
        ]
        words += ["--queue", str(spec.queue)] if spec.queue is not None else []
        words += spec.options
        for word in spec.offers:
            words += ["--offer", word]
        for key, value in spec.labels.items():
            words += ["--label", f"{key}={value}"]
        path = folder / "agent.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MOST_LOG:
                path.replace(folder / "agent.log.old")
        with path.open("ab") as out:
            self._children[spec.name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "spillover.agent",
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                umask=self._umask,
            )
        child = self._children[spec.name].pid
        if self._files is not None:
            with contextlib.suppress(OSError):  # it may have ended already
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.prlimit(child, resource.RLIMIT_NOFILE, (self._files, most))
        log.info("agent started", agent=f"{spec.cluster}/{spec.name}", pid=child)
