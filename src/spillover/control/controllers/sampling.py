"""Samples what clusters have and use, what waits and what rent costs, so that a page can show the last hours as lines.

The samples say nothing that a decision rests on. They are in memory, with a copy in the data folder, which a restart reads
again. While no server runs there are none.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from spillover.control.live.loop import Loop
from spillover.control.views.jobs import money
from spillover.control.views.overview import rent_an_hour
from spillover.core.state import State
from spillover.model.units import HOUR, SECOND, format_time
from spillover.ports.commands import CommandError
from spillover.wire.api import Series, SeriesCluster

log = structlog.get_logger()

STEPS: Final = ((10, 360), (60, 1_440), (900, 1_344))
"""Seconds between the samples of each line, and how many are kept: an hour, a day and two weeks."""
SAVE: Final = 30
"""Samples between two copies on disk."""


class _Use(Struct, frozen=True, array_like=True):
    """One cluster in one sample. CPUs are in thousandths."""

    role: str
    cpus: int
    used_cpus: int
    gpus: int
    used_gpus: int


class Sample(Struct, frozen=True, array_like=True):
    """What was the case at one time."""

    at: int
    """Nanoseconds UTC."""
    queued: int
    running: int
    cost: int
    """Millionths an hour of all that is rented."""
    clusters: dict[str, _Use]


class Sampling:
    """Takes samples, and returns them as lines."""

    def __init__(self, loop: Loop, file: Path | None = None) -> None:
        self._loop = loop
        self._file = file
        """Where the copy is; None for none."""
        self._lines = tuple(deque[Sample](maxlen=most) for _, most in STEPS)
        self._unsaved = 0

    async def run(self) -> None:
        """Take a sample every few seconds, until cancelled."""
        await self._read()
        try:
            while True:
                with contextlib.suppress(CommandError):  # the state cannot be shown now
                    self.take((await self._loop.read()).state)
                if self._unsaved >= SAVE:
                    await asyncio.to_thread(self._write, self._encoded())
                await asyncio.sleep(STEPS[0][0])
        finally:
            if self._unsaved:
                self.save()

    def take(self, state: State) -> None:
        """Take a sample of a state; coarser lines get those that are due."""
        sample = _sample(state, self._loop.now())
        for (step, _), line in zip(STEPS, self._lines, strict=True):
            if not line or sample.at - line[-1].at >= step * SECOND - SECOND:
                line.append(sample)
        self._unsaved += 1

    def series(self, since: int, *, costs: bool) -> Series:
        """Return the samples since a time, from the finest line that reaches back so far."""
        for (step, _), line in zip(STEPS, self._lines, strict=True):
            if line and line[0].at <= since:
                return _series([each for each in line if each.at >= since], step, costs=costs)
        # None reaches back so far: the server is young, or was away. The longest line is the best answer.
        (step, _), line = max(
            zip(STEPS, self._lines, strict=True),
            key=lambda each: (-(each[1][0].at if each[1] else 0), -each[0][0]),
        )
        return _series([each for each in line if each.at >= since], step, costs=costs)

    # --- the copy on disk

    def save(self) -> None:
        """Write the copy now."""
        self._write(self._encoded())

    def _encoded(self) -> bytes:
        self._unsaved = 0
        return msgspec.msgpack.encode([list(line) for line in self._lines])

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            new = self._file.with_suffix(".new")
            new.write_bytes(data)
            os.replace(new, self._file)  # noqa: PTH105 - as everywhere where a file is replaced at once
        except OSError as error:
            log.warning("cannot write the samples of the last hours", file=str(self._file), error=str(error))

    async def _read(self) -> None:
        if self._file is None:
            return
        try:
            data = await asyncio.to_thread(self._file.read_bytes)
            lines = msgspec.msgpack.decode(data, type=list[list[Sample]])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            log.warning("cannot read the samples of the last hours", file=str(self._file), error=str(error))
            return
        now = self._loop.now()
        for line, samples in zip(self._lines, lines, strict=False):
            line.extend(each for each in samples if each.at < now)


def _sample(state: State, now: int) -> Sample:
    clusters = {spec.name: [0, 0, 0, 0] for spec in state.facts.clusters}
    for node in state.nodes.values():
        if node.status == "ready" and (sums := clusters.get(node.cluster)) is not None:
            sums[0] += node.capacity.cpu
            sums[1] += node.used.cpu
            sums[2] += node.capacity.gpu
            sums[3] += node.used.gpu
    roles = {spec.name: str(spec.role) for spec in state.facts.clusters}
    uses = {str(name): _Use(roles[name], *sums) for name, sums in clusters.items()}
    cost = rent_an_hour(state)
    return Sample(now, state.queued, state.running, cost, uses)


def _series(samples: list[Sample], step: int, *, costs: bool) -> Series:
    roles = {name: use.role for each in samples for name, use in each.clusters.items()}
    clusters = []
    for name, role in roles.items():
        uses = [each.clusters.get(name) for each in samples]
        clusters.append(
            SeriesCluster(
                name,
                role,
                [None if use is None else use.cpus / 1000 for use in uses],
                [None if use is None else use.used_cpus / 1000 for use in uses],
                [None if use is None else use.gpus for use in uses],
                [None if use is None else use.used_gpus for use in uses],
            )
        )
    return Series(
        step_s=step,
        at=[format_time(each.at) for each in samples],
        queued=[each.queued for each in samples],
        running=[each.running for each in samples],
        clusters=clusters,
        cost_an_hour=[money(each.cost) for each in samples] if costs else None,
        spent=[money(each) for each in _spent(samples, step)] if costs else None,
    )


def _spent(samples: Iterable[Sample], step: int) -> Iterable[int]:
    """Yield what was spent up to each sample: the cost of the one before, for the time between, but not over a gap."""
    total, before = 0, None
    for each in samples:
        if before is not None and each.at - before.at <= 3 * step * SECOND:
            total += before.cost * (each.at - before.at) // HOUR
        yield total
        before = each
