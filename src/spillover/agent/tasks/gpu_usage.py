"""Measures how busy the GPUs of tasks are, where nvidia-smi tells.

One nvidia-smi for all tasks runs every ten seconds, and only while tasks with GPUs run. What it says counts for the time
since it ran before. Where it fails or hangs, it runs less and less often.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.agent.nursery.clock import boottime
from spillover.core.events import Lease, Usage

FIRST: Final = 2.0
"""Seconds until the first sample, so that short tasks have one."""
EVERY: Final = 10.0
"""Seconds between samples."""
RARELY: Final = 600.0
"""Most seconds between samples while there are none."""
PATIENCE: Final = 20.0
"""Seconds that nvidia-smi may take."""
QUERY: Final = ("--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")

log = logging.getLogger("spillover.agent")


class _Held(Struct):
    """The GPUs of one task."""

    gpus: tuple[str, ...]
    sampled: int
    """When they were sampled last, or the task began; monotonic nanoseconds."""
    busy: int = 0
    """Busy time of its GPUs in the time that samples count for."""
    covered: int = 0
    """That time, of all GPUs."""
    memory: int = 0


class GpuMeter:
    """Measures the use of the GPUs of an agent's tasks."""

    def __init__(
        self, clock: Callable[[], int] = boottime, *, first: float = FIRST, every: float = EVERY
    ) -> None:
        self._clock = clock
        self._first = first
        self._every = every
        self._held: dict[Lease, _Held] = {}
        self._sampling: asyncio.Task[None] | None = None

    def begin(self, lease: Lease, gpus: Sequence[str]) -> None:
        """Measure for a task that starts with these GPUs."""
        program = shutil.which("nvidia-smi") if gpus else None
        if program is None:
            return
        now = self._clock()
        self._held[lease] = _Held(tuple(gpus), now)
        if self._sampling is None:
            self._sampling = asyncio.create_task(self._sample(program))

    def end(self, lease: Lease, used: Usage) -> Usage:
        """Return what a task used that ended, with the use of its GPUs if it was measured."""
        held = self._held.pop(lease, None)
        if held is None or not held.covered:
            return used
        whole = used.ran * len(held.gpus)
        return replace(
            used,
            gpu=whole * held.busy // held.covered,
            gpu_measured=whole,
            gpu_memory=held.memory,
        )

    def close(self) -> None:
        """Stop measuring."""
        self._held.clear()
        if self._sampling is not None:
            self._sampling.cancel()

    async def _sample(self, program: str) -> None:
        """Take samples while tasks have GPUs."""
        pause = self._first
        try:
            while self._held:
                await asyncio.sleep(pause)
                if not self._held:
                    return
                found = sampled(await _said_by(program))
                pause = self._every if found else min(RARELY, max(self._every, pause * 2))
                self._count(found)
        finally:
            self._sampling = None

    def _count(self, found: dict[str, tuple[int, int]]) -> None:
        """Let a sample count for each task that has GPUs in it."""
        now = self._clock()
        for held in self._held.values():
            known = [found[gpu] for gpu in held.gpus if gpu in found]
            since, held.sampled = now - held.sampled, now
            held.covered += since * len(known)
            held.busy += since * sum(percent for percent, _ in known) // 100
            held.memory = max([held.memory, *(memory for _, memory in known)])


def sampled(text: str) -> dict[str, tuple[int, int]]:
    """Read what nvidia-smi says: per cent of use and bytes of memory in use, by GPU. Some tell no use, such as those in slices."""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        index, *said = (part.strip() for part in line.split(","))
        if len(said) == 2 and said[0].isdecimal():
            memory = int(said[1]) << 20 if said[1].isdecimal() else 0
            found[index] = min(100, int(said[0])), memory
    return found


async def _said_by(program: str) -> str:
    """Return what nvidia-smi says; nothing if it fails, or takes too long, as with a driver that hangs."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        asked = await asyncio.create_subprocess_exec(program, *QUERY, stdin=null, stdout=pipe, stderr=null)
    except OSError as error:
        log.debug("cannot run %s: %s", program, error)
        return ""
    try:
        async with asyncio.timeout(PATIENCE):
            said, _ = await asked.communicate()
    except TimeoutError:
        return ""
    finally:
        if asked.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                asked.kill()
            await (
                asked.wait()
            )  # with a driver that hangs, for as long as it does: there is never a second one
    return said.decode(errors="replace") if asked.returncode == 0 else ""
