"""Agents on the server's own machine: separate processes, adopted if they live, started if they do not.

They speak the same protocol as remote ones and outlive the server if they are to.
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
"""Seconds between two looks at whether they live."""
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries to start one that does not live, at most."""
PATIENCE: Final = 4.0
"""Seconds that agents get to stop."""
MOST_LOG: Final = 16 << 20
"""Bytes of an agent's own log before it begins anew."""


class LocalSpec(Struct, frozen=True):
    """One agent to run here."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    queue: int | None = None
    """None lets the agent choose."""
    offers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    options: tuple[str, ...] = ()
    """What else is said on its command line."""


def is_time(looks: int) -> bool:
    """Whether to start an agent that was found dead so often in a row: at once, then ever more rarely, up to a bound."""
    bound = round(LONGEST_PAUSE / LOOK)
    return looks & (looks - 1) == 0 if looks < bound else looks % bound == 0


class LocalAgents:
    """Keeps the local agents alive."""

    def __init__(
        self, data: Path, specs: tuple[LocalSpec, ...], umask: int = -1, files: int | None = None
    ) -> None:
        self._data = data
        self._umask = umask
        self._files = files
        """How many files agents and their tasks may open, as before the server had its limit raised; None leaves it."""
        """For files that tasks make; -1 is that of the server."""
        self._specs = specs
        self._children: dict[NodeName, asyncio.subprocess.Process] = {}

    async def run(self) -> None:
        """Start those that do not live, again and again, until cancelled."""
        failures: dict[NodeName, int] = {}
        while True:
            for spec in self._specs:
                if not self._lives(spec):
                    count = failures[spec.name] = failures.get(spec.name, 0) + 1
                    if is_time(count):
                        try:
                            await self._start(spec)
                        except OSError as error:  # a full disk, or no more processes
                            log.error("cannot start an agent", agent=spec.name, error=str(error))  # noqa: TRY400 - one line
                else:
                    failures.pop(spec.name, None)
            await asyncio.sleep(LOOK)

    async def stop(self, successor: object = None) -> None:
        """Stop all of them, tasks included, but for those that a successor runs as they are."""
        kept = successor._specs if isinstance(successor, LocalAgents) else ()  # noqa: SLF001 - of the same class
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
            log.warning("an agent does not stop; it is killed", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in [self._children[spec.name] for spec in going if spec.name in self._children]:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await child.wait()

    def _folder(self, spec: LocalSpec) -> Path:
        return self._data / "agents" / spec.name

    def _lives(self, spec: LocalSpec) -> bool:
        """Whether somebody holds the agent's lock, or is on the way to."""
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
        """The process of an agent that lives."""
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
        return pid if 1 < pid < 2**31 else None  # others mean many processes, or none

    async def _start(self, spec: LocalSpec) -> None:
        """Start one, in a session of its own."""
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
            with contextlib.suppress(OSError):  # it may have ended
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.prlimit(child, resource.RLIMIT_NOFILE, (self._files, most))
        log.info("agent started", agent=f"{spec.cluster}/{spec.name}", pid=child)
