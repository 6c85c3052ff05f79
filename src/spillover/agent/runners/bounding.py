"""Limits the output of Python calls that run for more than a moment, while it grows."""

import contextlib
import os
from pathlib import Path

from spillover.agent.nursery.frames import STREAMS
from spillover.agent.nursery.holes import BoundedFile
from spillover.agent.runners.workers import WorkerCall, WorkerProcess


class Bounding:
    """The streams of running calls. A worker has one spool file for each stream, until it gets the name of a call."""

    def __init__(self, output: Path, limit: int) -> None:
        self._output = output
        self._limit = limit
        self._streams: dict[WorkerCall, list[tuple[int, BoundedFile]]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, worker: WorkerProcess, call: WorkerCall) -> None:
        """Watch the output of a call that runs."""
        files = []
        for stream in STREAMS:
            spools = list((self._output / "spool").glob(f"py{worker.number}-*.{stream}"))
            with contextlib.suppress(OSError):
                file = os.open(spools[0] if spools else f"{call.stem}.{stream}", os.O_RDWR | os.O_APPEND)
                files.append((file, BoundedFile(file, self._limit)))
        self._streams[call] = files

    def look(self) -> int:
        """Limit what has grown; return the largest growth of a stream, in bytes."""
        grown = 0
        for call, files in list(self._streams.items()):
            if call.worker is None or call.key not in call.worker.calls:
                self._end(call)
                continue
            for _, stream in files:
                with contextlib.suppress(OSError):
                    grown = max(grown, stream.trim())
        return grown

    def clear(self) -> None:
        """Stop watching all calls."""
        for call in list(self._streams):
            self._end(call)

    def _end(self, call: WorkerCall) -> None:
        for file, _ in self._streams.pop(call):
            os.close(file)
