"""The inside of a machine: sockets, NUMA nodes, cores, GPUs and links between GPUs, and what a task is granted of it."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from spillover.model.resources import Resources

MOST_CPU_ID: Final = 8191
"""The highest number of a CPU that a kernel is built for."""
MOST_DOMAINS: Final = 256
MOST_LINKS: Final = 256
PINS: Final = ("core", "numa", "socket")
"""What the cores of one task may have to be in: anything, one NUMA node, one socket."""
ANY_LINK: Final = "any"


class Domain(Struct, frozen=True, array_like=True, gc=False):
    """One NUMA node of a machine."""

    socket: int
    """The number of its socket."""
    cpus: tuple[str, ...] = ()
    """Its CPUs as lists such as `0-15`, one for each thread of a core: the first of each list make the first core."""
    gpus: tuple[str, ...] = ()
    """Ids of the GPUs that are near it."""
    memory: int = 0
    """Bytes; 0 if unknown."""


class Link(Struct, frozen=True, array_like=True, gc=False):
    """GPUs all of which are linked with each other."""

    kind: str
    """Such as `nvlink`."""
    gpus: tuple[str, ...]
    """Their ids. A GPU is in one group of a kind."""


class Inside(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a machine has inside. Empty parts are unknown."""

    domains: tuple[Domain, ...] = ()
    gpus: tuple[str, ...] = ()
    """Ids of all GPUs."""
    links: tuple[Link, ...] = ()

    @property
    def threads(self) -> int:
        """CPUs of one core."""
        return max([len(domain.cpus) for domain in self.domains], default=1)


class Granted(Struct, frozen=True, array_like=True, gc=False):
    """What a task has for itself on its machine."""

    cpus: str = ""
    """Its CPUs as a list such as `0-7,16`; empty if it shares those that no task has for itself."""
    gpus: tuple[str, ...] = ()
    """Ids of its GPUs."""

    def __bool__(self) -> bool:
        return bool(self.cpus or self.gpus)

    def __str__(self) -> str:
        parts = [f"CPUs {self.cpus}"] if self.cpus else []
        if self.gpus:
            parts.append(f"GPU{'s' if len(self.gpus) > 1 else ''} {', '.join(self.gpus)}")
        return ", ".join(parts)


def held_with(asked: Resources, granted: Granted | None) -> Resources:
    """Return what a task holds: as many CPUs as it has for itself, because it gets whole cores."""
    if granted is None or not granted.cpus:
        return asked
    cpu = cpu_mask(granted.cpus).bit_count() * 1000
    return asked if cpu <= asked.cpu else Resources(cpu, asked.memory, asked.gpu, asked.other)


@lru_cache(maxsize=65536)
def cpu_mask(text: str) -> int:
    """Return the CPUs of a list such as `0-7,16` as bits; raise ValueError if it is none."""
    mask = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part[:20]!r} is not a CPU or a range of CPUs")
        low, high = int(first), int(last or first)
        if not low <= high <= MOST_CPU_ID:
            raise ValueError(f"{part[:20]!r} is not a range of CPUs up to {MOST_CPU_ID}")
        mask |= ((1 << (high - low + 1)) - 1) << low
    return mask


@lru_cache(maxsize=65536)
def cpu_list(mask: int) -> str:
    """Return CPUs, given as bits, as a list such as `0-7,16`."""
    parts = []
    while mask:
        low = (mask & -mask).bit_length() - 1
        run = ((mask >> low) + 1 & ~(mask >> low)).bit_length() - 1
        parts.append(str(low) if run == 1 else f"{low}-{low + run - 1}")
        mask &= ~(((1 << run) - 1) << low)
    return ",".join(parts)


def cpu_numbers(mask: int) -> list[int]:
    """Return the numbers of CPUs that are given as bits."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def wrong_inside(inside: Inside) -> str | None:  # noqa: PLR0911 - one check for each part
    """Return what is wrong with the reported inside of a machine; None if nothing is."""
    if len(inside.domains) > MOST_DOMAINS or len(inside.links) > MOST_LINKS:
        return f"has more than {MOST_DOMAINS} NUMA nodes or {MOST_LINKS} links"
    seen, threads = 0, inside.threads
    for domain in inside.domains:
        if domain.socket < 0 or domain.memory < 0:
            return "has a negative number of a socket or negative memory"
        try:
            lanes = [cpu_mask(each) for each in domain.cpus]
        except ValueError as error:
            return str(error)
        if lanes and (len(lanes) != threads or len({lane.bit_count() for lane in lanes}) > 1):
            return "has cores with different numbers of threads"
        for lane in lanes:
            if lane & seen:
                return f"has CPU {cpu_list(lane & seen)} twice"
            seen |= lane
    if (again := _twice(inside.gpus)) is not None:
        return f"has GPU {again} twice"
    near = [gpu for domain in inside.domains for gpu in domain.gpus]
    if (again := _twice(near)) is not None:
        return f"has GPU {again} near two NUMA nodes"
    for kind in dict.fromkeys(link.kind for link in inside.links):
        linked = [gpu for link in inside.links if link.kind == kind for gpu in link.gpus]
        if (again := _twice(linked)) is not None:
            return f"has GPU {again} in two groups of {kind}"
        near += linked
    unknown = [gpu for gpu in near if gpu not in inside.gpus]
    return f"names GPU {unknown[0]}, which is not among its GPUs" if unknown else None


def _twice(ids: Iterable[str]) -> str | None:
    """Return an id that is there twice; None if there is none."""
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            return each
        seen.add(each)
    return None
