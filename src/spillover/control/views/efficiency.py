"""Says how much of what jobs asked for they used, and what to ask for next time."""

from math import ceil
from typing import Final

from spillover.control.controllers.archiving import finished_of
from spillover.control.live.loop import Loop
from spillover.control.requests.lookup import Found, id_of, is_array
from spillover.control.views.usage import usage_of
from spillover.core.events import JobState
from spillover.core.records.jobs import Job
from spillover.model.job import Shape
from spillover.model.units import (
    HOUR,
    MINUTE,
    SECOND,
    format_cpu,
    format_duration,
    format_memory,
    write_memory,
)
from spillover.ports.archive import Amounts, Archive, Finished, UsageQuery, spells
from spillover.wire.api import Efficiency

LEAST: Final = 60
"""Seconds that attempts must have run for a hint: short jobs say little about long ones."""
WASTED: Final = 0.5
"""Part of what was asked that must have been unused for a hint."""
IDLE: Final = 0.1
"""Part of the time for which the only GPU of a task must have been busy, or there is a hint."""
TOO_LONG: Final = 10
"""How many times longer than a job ran its walltime must have been for a hint."""
_LEAST_MEMORY: Final = 256 << 20
"""Bytes for each task below which nobody needs a hint."""
_MARGIN: Final = 1.25
"""How much more than the peak, or than the mean use of CPUs, a hint suggests."""
_GIB: Final = 1 << 30
_STEP: Final = 128 << 20


async def efficiency_of(loop: Loop, archive: Archive, found: Found) -> Efficiency | None:
    """Return what a job used of what it asked for; of an array, its ended members in sum. None if nothing is known."""
    row: Finished | None = None
    if isinstance(found, Job | Finished) and is_array(found):
        used = await usage_of(loop, archive, UsageQuery(array=id_of(found)))
        total = sum((each.amounts for each in used), Amounts())
        members, peak = sum(each.jobs for each in used), max((each.peak for each in used), default=0)
    else:
        row = found if isinstance(found, Finished) else finished_of(found) if isinstance(found, Job) else None
        last = next((spell for spell in spells(row) if spell.last), None) if row is not None else None
        if last is None:
            return None
        total, members, peak = last.amounts, 0, last.peak
    longer = [] if row is None else walltime_hint(row)
    shape = found.shape if isinstance(found, Job | Finished) else None
    if shape is None or not (total.cpu_measured or total.memory_measured or total.gpu_measured):
        return None
    return Efficiency(
        cpu=_part(total.cpu_measured, total.cpu_unused),
        memory=_part(total.memory_measured, total.memory_unused),
        cpu_asked_s=total.cpu_measured / 1000,
        cpu_used_s=(total.cpu_measured - total.cpu_unused) / 1000,
        memory_asked=shape.resources.memory or None,
        memory_used=peak or None,
        gpu_asked_s=total.gpu / 1000,
        members=members,
        hints=hints(shape, total, peak) + longer,
        gpu=_part(total.gpu_measured, total.gpu_unused),
        gpu_used_s=(total.gpu_measured - total.gpu_unused) / 1000,
        gpu_memory_used=(row.gpu[2] or None) if row is not None else None,
    )


def _part(asked: int, unused: int) -> float | None:
    """Return the part that was used; None if nothing was measured."""
    return (asked - unused) / asked if asked else None


def hints(shape: Shape, total: Amounts, peak: int) -> list[str]:
    """Return what to ask for next time, if much was wasted; for members and tasks alike, of the largest."""
    asked, found = shape.resources, list[str]()
    if shape.groups or shape.rest is not None or total.cpu < asked.cpu * shape.tasks * LEAST:
        return found
    if total.memory_measured and asked.memory - peak >= _LEAST_MEMORY and peak < asked.memory * WASTED:
        enough = _rounded(round(peak * _MARGIN))
        if enough < asked.memory:
            found.append(
                f"asked for {format_memory(asked.memory)}, used at most {format_memory(peak)}: "
                f"--memory {write_memory(enough)} would do"
            )
    if total.cpu_measured and asked.cpu > 1000 and total.cpu_unused > total.cpu_measured * WASTED:
        mean = asked.cpu * (total.cpu_measured - total.cpu_unused) // total.cpu_measured
        enough = max(1000, -(-round(mean * _MARGIN) // 1000) * 1000)
        if enough < asked.cpu:
            found.append(
                f"asked for {format_cpu(asked.cpu)} CPU, used {mean / 1000:.1f} on average: "
                f"--cpu {enough // 1000} would do"
            )
    if total.gpu_measured and total.gpu_unused > total.gpu_measured * WASTED:
        found += _gpu_hint(asked.gpu, (total.gpu_measured - total.gpu_unused) / total.gpu_measured)
    return found


def _gpu_hint(asked: int, part: float) -> list[str]:
    """Return what to do about GPUs that were busy for a small part of the time."""
    mean = f"{asked * part:.1f}"
    enough = max(1, ceil(asked * part * _MARGIN))
    if enough < asked:
        return [f"asked for {asked} GPUs, kept {mean} busy on average: --gpu {enough} would do"]
    if part < IDLE:
        return [f"its GPU was busy {part:.0%} of the time: check that the program uses it, or ask for none"]
    return []


def walltime_hint(row: Finished) -> list[str]:
    """Return which walltime to ask for next time, if a job that succeeded ran for a small part of its own."""
    ran, walltime = row.usage[0], row.terms.walltime
    if (
        row.state != JobState.SUCCEEDED
        or walltime is None
        or ran < LEAST * SECOND
        or walltime <= ran * TOO_LONG
    ):
        return []
    step = HOUR if ran > HOUR else 5 * MINUTE
    enough = -(-2 * ran // step) * step
    asked = format_duration(walltime)
    return [
        f"asked for a walltime of {asked}, ran {format_duration(ran)}: --walltime {format_duration(enough)} would do"
    ]


def _rounded(size: int) -> int:
    """Round up to whole GiB, or below that to 128 MiB."""
    step = _GIB if size > _GIB else _STEP
    return -(-max(1, size) // step) * step
