"""Measures what a server uses, by its own metrics: memory, files, threads, tasks, objects, and pauses of its loop."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Final

import httpx
import msgspec
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import wait_until

MEASURED: Final = {
    "process_resident_memory_bytes": "memory",
    "process_open_fds": "files",
    "spill_threads": "threads",
    "spill_asyncio_tasks": "tasks",
    "spill_loop_longest_pause_seconds": "pause",
    "spill_jobs_queued": "queued",
    "spill_jobs_running": "running",
    "spill_jobs_known": "known",
}


class Sample(Struct, frozen=True):
    """One reading of `/metrics`."""

    memory: float
    """Resident memory in bytes."""
    files: float
    threads: float
    tasks: float
    pause: float
    """Longest pause of the last minute, in seconds."""
    queued: float
    running: float
    known: float
    """Jobs outside the archive."""


class Rest(Struct, frozen=True):
    """What an idle server uses."""

    sample: Sample
    objects: Counter[str]
    """By type."""

    @property
    def count(self) -> int:
        """Number of all objects."""
        return sum(self.objects.values())


class Gauge:
    """Measures one server."""

    def __init__(self, url: str, token: str, pid: int, counts: Path) -> None:
        self._url = f"{url}/metrics"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pid = pid
        self._counts = counts
        self.longest = 0.0
        """Longest pause seen, in seconds; counting objects also causes one, of some hundredths."""

    def look(self) -> Sample:
        """Take one sample."""
        answer = httpx.get(self._url, headers=self._headers, timeout=60)
        answer.raise_for_status()
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                if sample.name in MEASURED:
                    values[MEASURED[sample.name]] = sample.value
        found = Sample(**values)
        self.longest = max(self.longest, found.pause)
        return found

    def at_rest(self, patience: float) -> Rest:
        """Measure when nothing changes any more, or after `patience` seconds."""
        until = time.monotonic() + patience
        last, same = self.look(), 0
        while time.monotonic() < until and same < 3:
            time.sleep(1)
            now = self.look()
            calm = (now.files, now.tasks, now.known) == (last.files, last.tasks, last.known)
            same, last = (same + 1 if calm and not now.known else 0), now
        return Rest(last, self._count())

    def _count(self) -> Counter[str]:
        """Count all objects of the server by type.

        Counts twice: the first collection may leave generators for the event loop to close, which the second one
        collects.
        """
        for _ in range(2):
            self._counts.unlink(missing_ok=True)
            os.kill(self._pid, signal.SIGUSR1)
            wait_until(self._counts.exists, "counting the objects of the server", 60, 0.1)
            time.sleep(0.5)
        return Counter(msgspec.json.decode(self._counts.read_bytes(), type=dict[str, int]))
