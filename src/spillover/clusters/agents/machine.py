"""Finds the CPUs and memory of this machine or container, for agents without configured capacity."""

import math
import os
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")


def cpus(root: Path = ROOT) -> int:
    """Return the CPUs that this process may use, rounded up."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = _v2_cpu(root) or _v1_cpu(root) or (0, 1)
    return min(there, max(1, math.ceil(quota / period))) if quota > 0 else there


def memory(root: Path = ROOT) -> int:
    """Return the bytes of memory that this machine or container has."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = _number(root / name)
        if limit is not None and 0 < limit < there:
            return limit
    return there


def _v2_cpu(root: Path) -> tuple[int, int] | None:
    """Return quota and period under cgroup v2; None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return (int(quota), int(period)) if quota != "max" else None
    except (OSError, ValueError):
        return None


def _v1_cpu(root: Path) -> tuple[int, int] | None:
    """Return quota and period under cgroup v1; None without a limit."""
    quota, period = (_number(root / "cpu" / f"cpu.cfs_{what}_us") for what in ("quota", "period"))
    return (quota, period) if quota is not None and period else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
