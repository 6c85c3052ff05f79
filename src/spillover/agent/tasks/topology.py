"""Reads the inside of this machine: sockets, NUMA nodes and cores from the kernel, GPUs and their links from nvidia-smi."""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spillover.agent.tasks.gpus import PATIENCE
from spillover.model.inside import Domain, Inside, Link, cpu_list, cpu_mask, cpu_numbers, wrong_inside

SYSTEM: Final = Path("/sys/devices/system")
_GPU: Final = re.compile(r"^GPU(\d+)$")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_KINDS: Final = (("nvlink", re.compile(r"^NV\d+$")), ("pcie", re.compile(r"^(PIX|PXB)$")))
"""Kinds of links with how `nvidia-smi topo -m` writes them, the fastest first."""


class _Core(NamedTuple):
    """One core that tasks may use."""

    numa: int
    socket: int
    cpus: tuple[int, ...]


class _NearGpu(NamedTuple):
    """Where a GPU is."""

    numa: int | None
    """The number of its NUMA node; None if unknown."""
    cpus: int
    """The CPUs near it, as bits."""


def find(cpu: int, gpus: tuple[str, ...], root: Path = SYSTEM) -> Inside | None:
    """Return the inside of this machine, for so many thousandths of a CPU and these GPUs; None if nothing is known.

    An agent that is to use more CPUs than there are has no cores to give away, and reports none.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    cores = _chosen(_cores(root, allowed), -(-cpu // 1000))
    near, links = _nvidia(gpus) if gpus else ({}, ())
    domains = _domains(cores, gpus, near, root)
    inside = Inside(domains, gpus, links)
    if not (inside.domains or inside.gpus) or wrong_inside(inside) is not None:
        return None
    return inside


def memory_nodes(cpus: str, root: Path = SYSTEM) -> str:
    """Return the NUMA nodes of some CPUs as the kernel numbers them, such as `0` or `0-1`; empty if it does not say."""
    wanted, found = cpu_mask(cpus), 0
    for folder in root.glob("node/node[0-9]*"):
        if any(wanted >> cpu & 1 for cpu in _list(folder / "cpulist")):
            found |= 1 << int(folder.name[4:])
    return cpu_list(found)


def divided(cpu: int, gpus: tuple[str, ...], sockets: int, link: str) -> Inside:
    """Return an inside as configured: CPUs and GPUs in equal parts, and a link between all GPUs of a part."""
    count, domains, links = -(-cpu // 1000), list[Domain](), list[Link]()
    for socket in range(sockets):
        first, last = socket * count // sockets, (socket + 1) * count // sockets
        near = gpus[socket * len(gpus) // sockets : (socket + 1) * len(gpus) // sockets]
        cpus = (cpu_list(((1 << (last - first)) - 1) << first),) if last > first else ()
        domains.append(Domain(socket, cpus, near))
        if link and len(near) > 1:
            links.append(Link(link, near))
    return Inside(tuple(domains), gpus, tuple(links))


# --- cores


def _cores(root: Path, allowed: Collection[int]) -> list[_Core]:
    """Return the cores of which this process may use any CPU, by NUMA node."""
    numa_of: dict[int, int] = {}
    for folder in root.glob("node/node[0-9]*"):
        for cpu in _list(folder / "cpulist"):
            numa_of[cpu] = int(folder.name[4:])
    cores: dict[tuple[int, ...], _Core] = {}
    for cpu in sorted(allowed):
        topology = root / "cpu" / f"cpu{cpu}" / "topology"
        package = _text(topology / "physical_package_id")
        siblings = _list(topology / "core_cpus_list") or _list(topology / "thread_siblings_list") or [cpu]
        cpus = tuple([each for each in siblings if each in allowed])
        socket = int(package) if package.isdigit() else 0
        cores.setdefault(cpus, _Core(numa_of.get(cpu, 0), socket, cpus))
    return sorted(cores.values())


def _chosen(cores: Sequence[_Core], count: int) -> list[_Core]:
    """Return the first cores with so many CPUs together; none if there are fewer.

    If cores have different numbers of threads, or one would be cut, each CPU counts as a core.
    """
    cpus = sum([len(core.cpus) for core in cores])
    if not 0 < count <= cpus:
        return []
    if len({len(core.cpus) for core in cores}) > 1 or count % len(cores[0].cpus):
        cores = [_Core(core.numa, core.socket, (cpu,)) for core in cores for cpu in core.cpus]
    return list(cores[: count // len(cores[0].cpus)])


def _domains(
    cores: Sequence[_Core], gpus: Iterable[str], near: dict[str, _NearGpu], root: Path
) -> tuple[Domain, ...]:
    """Return the NUMA nodes with cores, each with its GPUs.

    A NUMA node over two sockets is one for each; how much of its memory is whose is unknown then.
    """
    found: list[Domain] = []
    taken: set[str] = set()
    places = sorted({(core.numa, core.socket) for core in cores}, key=lambda pair: pair[::-1])
    for numa, socket in places:
        own = [core.cpus for core in cores if (core.numa, core.socket) == (numa, socket)]
        lanes = [sum([1 << cpu for cpu in lane]) for lane in zip(*own, strict=True)]
        # Lanes list CPUs in ascending order, which must be the order of cores in each.
        if [cpu_numbers(lane) for lane in lanes] != [list(lane) for lane in zip(*own, strict=True)]:
            own = [(cpu,) for cpus in own for cpu in cpus]
            lanes = [sum([1 << cpu for cpus in own for cpu in cpus])]
        there = [gpu for gpu in gpus if gpu not in taken and _is_near(near.get(gpu), numa, sum(lanes))]
        taken.update(there)
        alone = sum(other == numa for other, _ in places) == 1
        memory = _memory(root / "node" / f"node{numa}" / "meminfo") if alone else 0
        found.append(Domain(socket, tuple(map(cpu_list, lanes)), tuple(there), memory))
    return tuple(found)


def _is_near(gpu: _NearGpu | None, numa: int, cpus: int) -> bool:
    if gpu is None:
        return False
    return gpu.numa == numa if gpu.numa is not None else bool(gpu.cpus & cpus)


def _memory(path: Path) -> int:
    """Return the bytes of a NUMA node; 0 if unknown."""
    found = re.search(r"MemTotal:\s+(\d+) kB", _text(path))
    return int(found[1]) * 1024 if found else 0


def _list(path: Path) -> list[int]:
    """Return the CPUs of a list that the kernel shows; none if it shows none."""
    try:
        return cpu_numbers(cpu_mask(_text(path)))
    except ValueError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# --- GPUs


def _nvidia(gpus: Sequence[str]) -> tuple[dict[str, _NearGpu], tuple[Link, ...]]:
    """Return where GPUs are, and which of them are linked, as nvidia-smi tells; nothing if it does not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}, ()
    try:
        done = subprocess.run(
            [program, "topo", "-m"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}, ()  # a driver that hangs must not block the agent
    return read_topo(done.stdout, gpus) if done.returncode == 0 else ({}, ())


def read_topo(text: str, gpus: Sequence[str]) -> tuple[dict[str, _NearGpu], tuple[Link, ...]]:
    """Read the matrix of `nvidia-smi topo -m`: where GPUs are, and groups of GPUs that are all linked."""
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    head = next((at for at, line in enumerate(lines) if re.match(r"\s+GPU\d", line)), None)
    if head is None:
        return {}, ()
    names = [name.strip() for name in re.split(r"\t+|\s{2,}", lines[head].strip())]
    near: dict[str, _NearGpu] = {}
    cells: dict[tuple[str, str], str] = {}
    for line in lines[head + 1 :]:
        words = line.split()
        if not words or (row := _GPU.match(words[0])) is None or row[1] not in gpus:
            continue
        for name, cell in zip(names, words[1:], strict=False):
            if (column := _GPU.match(name)) is not None and column[1] in gpus:
                cells[row[1], column[1]] = cell
        rest = dict(zip(names, words[1:], strict=False))
        near[row[1]] = _NearGpu(_numa(rest.get("NUMA Affinity", "")), _mask(rest.get("CPU Affinity", "")))
    links: list[Link] = []
    for kind, written in _KINDS:
        links += [Link(kind, group) for group in _groups(gpus, cells, written)]
    return near, tuple(links)


def _numa(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _mask(text: str) -> int:
    try:
        return cpu_mask(text)
    except ValueError:
        return 0


def _groups(
    gpus: Sequence[str], cells: dict[tuple[str, str], str], written: "re.Pattern[str]"
) -> list[tuple[str, ...]]:
    """Return groups of GPUs that are all linked with each other. Each GPU is in the first group that takes it."""
    groups: list[list[str]] = []
    for gpu in gpus:
        for group in groups:
            if all(written.match(cells.get((gpu, other), "")) for other in group):
                group.append(gpu)
                break
        else:
            groups.append([gpu])
    return [tuple(group) for group in groups if len(group) > 1]
