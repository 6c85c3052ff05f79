"""Reads information on processes from /proc."""

import contextlib
import os
from typing import NamedTuple


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used here."""

    parent: int
    group: int
    birth: int
    """Clock ticks since the machine started."""
    resident: int
    """Bytes."""


_PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = 10**9 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of a clock tick, the unit of process start times."""


def stat_of(pid: int) -> Stat | None:
    """Read the status of a process; return None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            words = stat.read().rpartition(b")")[2].split()
        return Stat(int(words[1]), int(words[2]), int(words[19]), int(words[21]) * _PAGE)
    except (OSError, IndexError):
        return None


def birth_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine started; 0 if there is none."""
    stat = stat_of(pid)
    return 0 if stat is None else stat.birth


def environ_of(pid: int) -> list[bytes]:
    """Return the environment with which a process was started; empty if it is gone or not readable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return environ.read().split(b"\0")
    except OSError:
        return []


def all_processes() -> list[int]:
    """Return the pids of all visible processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(leaders: dict[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Return the processes below each leader or in its group, by the leader's key, with resident bytes."""
    stats = {pid: stat for pid in all_processes() if (stat := stat_of(pid)) is not None}
    owners: dict[int, int | None] = dict(leaders)

    def owner(pid: int) -> int | None:
        path = []
        while pid not in owners:
            stat = stats.get(pid)
            if stat is None or pid <= 1:
                owners[pid] = None
                break
            if stat.group in leaders:
                owners[pid] = leaders[stat.group]
                break
            path.append(pid)
            pid = stat.parent
        found = owners[pid]
        for each in path:
            owners[each] = found
        return found

    out: dict[int, list[tuple[int, int]]] = {}
    for pid, stat in stats.items():
        key = owner(pid)
        if key is not None:
            out.setdefault(key, []).append((pid, stat.resident))
    return out


def proportional(pids: list[int]) -> int:
    """Return the bytes that processes hold (PSS), with shared memory split among its users."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
                    break
    return total
