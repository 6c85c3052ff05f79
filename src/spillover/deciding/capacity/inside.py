"""The inside of a machine as placement sees it: how many tasks fit into its sockets, and which cores and GPUs they get.

The vector of a machine has a position for each *locality*: the free CPUs of a socket or NUMA node, the free GPUs of one or
of a link. A locality that is the whole machine needs none. So whether a task fits inside is read from a vector, and is
answered alike for now, for later, and for an empty machine. Which cores and GPUs a task gets is decided when it is
placed.

Only tasks that ask for cores of their own, and tasks with GPUs, take something from a locality. All others share the CPUs
that nobody has for himself. The CPU of the machine counts both, so together they never exceed it.

The memory of each NUMA node has a position too, behind the localities, on machines that report it for several. A task
whose cores are all of one NUMA node takes its memory there. If that need not be so, as with `pin: core`, its memory need
not fit there, and what is left may be negative.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from spillover.deciding.capacity.amounts import ANY, CPU, Vector, Wants
from spillover.model.inside import ANY_LINK, Granted, Inside, cpu_list, cpu_mask
from spillover.model.resources import Resources
from spillover.model.topology import Topology

Chosen: TypeAlias = tuple[int, int]
"""CPUs and GPUs, each as bits."""
Left: TypeAlias = tuple[int, int, tuple[int, ...]]
"""Free CPUs and free GPUs of a machine, each as bits, and the free bytes of each NUMA node whose memory is counted."""
_WHOLE: Final = -1
"""The locality that is the whole machine."""
_LEVELS: Final = {
    "": ("numa", "socket", "core"),
    "core": ("numa", "socket", "core"),
    "socket": ("numa", "socket"),
    "numa": ("numa",),
}
"""By `pin`, where to look for room, the nearest together first; `core` is the whole machine."""


class _Area(NamedTuple):
    """A part of a machine that may have to hold a whole task."""

    cpus: int
    gpus: int
    memory: int = _WHOLE
    """The number of the NUMA node that it is, of those whose memory is counted; _WHOLE if it is none, or several."""


class _Way(NamedTuple):
    """An area that can hold tasks, by localities."""

    cpus: int
    """The locality of its CPUs."""
    gpus: tuple[int, ...]
    """The localities of its GPUs; one of them must hold all GPUs of a task."""
    memory: int = _WHOLE
    """As in `_Area`."""


class Structure:
    """The inside of machines that are alike inside."""

    __slots__ = (
        "_areas",
        "_bits",
        "_cells",
        "_cores",
        "_gpus",
        "_groups",
        "_memories",
        "_ways",
        "cpus",
        "gpus",
        "localities",
        "threads",
    )

    def __init__(self, inside: Inside) -> None:
        self._gpus = inside.gpus
        self._bits = {gpu: 1 << at for at, gpu in enumerate(inside.gpus)}
        self.threads = inside.threads
        """CPUs of one core; a task that has cores for itself gets whole ones."""
        self.gpus = (1 << len(inside.gpus)) - 1
        """All GPUs, as bits."""
        self._cores: list[int] = []
        """The CPUs of each core, as bits."""
        self._memories: list[tuple[int, int]] = []
        """The CPUs of each NUMA node whose memory is counted, as bits, and its bytes."""
        counted = [domain for domain in inside.domains if domain.cpus and domain.memory]
        numas: list[_Area] = []
        sockets: dict[int, _Area] = {}
        for domain in inside.domains:
            lanes = [cpu_mask(each) for each in domain.cpus]
            self._cores += _cores_of(lanes)
            memory = _WHOLE
            if len(counted) > 1 and domain.cpus and domain.memory:
                memory = len(self._memories)
                self._memories.append((sum(lanes), domain.memory))
            area = _Area(sum(lanes), self._mask(domain.gpus), memory)
            numas.append(area)
            before = sockets.get(domain.socket)
            sockets[domain.socket] = (
                area if before is None else _Area(before.cpus | area.cpus, before.gpus | area.gpus)
            )
        self.cpus = sum([area.cpus for area in numas])
        """All CPUs, as bits."""
        whole = (_Area(self.cpus, self.gpus),)
        self._areas = {"numa": tuple(numas), "socket": tuple(sockets.values()), "core": whole}
        self._groups: dict[str, tuple[int, ...]] = {}
        """GPUs that are linked with each other, as bits, by the kind of link; the first kind is also `any`."""
        for link in inside.links:
            self._groups[link.kind] = (*self._groups.get(link.kind, ()), self._mask(link.gpus))
        if self._groups:
            self._groups[ANY_LINK] = next(iter(self._groups.values()))
        self.localities: list[tuple[bool, int]] = []
        """Whether a locality is one of GPUs, and its CPUs or GPUs as bits."""
        self._cells: tuple[list[int], list[int]] = ([], [])
        """Localities that do not overlap, of CPUs and of GPUs. Every other locality consists of some of them."""
        self._find_pools((*numas, *sockets.values()))
        self._ways: dict[tuple[str, str, bool], tuple[_Way, ...]] = {}

    @property
    def size(self) -> int:
        """The number of positions that a machine has for what is inside."""
        return len(self.localities) + len(self._memories)

    @property
    def memories(self) -> int:
        """The number of NUMA nodes whose memory is counted; their positions are the last."""
        return len(self._memories)

    @property
    def full(self) -> Left:
        """What is free when nothing runs there."""
        return self.cpus, self.gpus, tuple([memory for _, memory in self._memories])

    def _memory_of(self, cpus: int) -> int:
        """Return the NUMA node from which a task with these CPUs takes its memory; _WHOLE if it is no single one."""
        for number, (own, _) in enumerate(self._memories):
            if cpus and not cpus & ~own:
                return number
        return _WHOLE

    def binds(self, topology: Topology | None, granted: Granted) -> bool:
        """Return whether the memory of a task is bound to the NUMA node of its cores: it is counted there, and must fit."""
        if topology is None or topology.pin not in {"numa", "socket"} or not granted.cpus:
            return False
        number = self._memory_of(cpu_mask(granted.cpus))
        areas = self._areas[topology.pin]
        return number != _WHOLE and any(area.memory == number for area in areas)

    def _mask(self, gpus: Iterable[str]) -> int:
        return sum([self._bits[gpu] for gpu in dict.fromkeys(gpus) if gpu in self._bits])

    def _find_pools(self, areas: Iterable[_Area]) -> None:
        """List the localities, and the cells that they consist of."""
        parts: tuple[dict[int, None], dict[int, None]] = ({}, {})
        groups = [group for kind in self._groups.values() for group in kind]
        for area in areas:
            parts[0][area.cpus] = None
            parts[1].update(dict.fromkeys([area.gpus, *[area.gpus & group for group in groups]]))
        parts[1].update(dict.fromkeys(groups))
        for of_gpus, everything in enumerate((self.cpus, self.gpus)):
            some = [mask for mask in parts[of_gpus] if mask not in {0, everything}]
            cells = _split(everything, some)
            for mask in dict.fromkeys((*some, *cells)):
                if mask != everything:
                    self.localities.append((bool(of_gpus), mask))
            self._cells[of_gpus].extend(cells)

    def _locality(self, of_gpus: bool, mask: int) -> int:
        """Return the number of a locality."""
        if mask == (self.gpus if of_gpus else self.cpus):
            return _WHOLE
        return self.localities.index((of_gpus, mask))

    # --- what fits

    def suits(self, topology: Topology) -> bool:
        """Return whether it has the parts that a job names, however large they are."""
        if topology.pin and not self.cpus:
            return False
        return not topology.link or topology.link in self._groups

    @property
    def links(self) -> tuple[str, ...]:
        """The kinds of links that it has."""
        return tuple([kind for kind in self._groups if kind != ANY_LINK])

    def rounded(self, topology: Topology, cpu: int) -> int:
        """Return the CPU that a task takes, in thousandths: that of whole cores, if it has some for itself."""
        if not topology.pin:
            return cpu
        step = 1000 * self.threads
        return -(-cpu // step) * step

    def asks(self, topology: Topology | None, wants: Wants) -> Wants:
        """Return the request of a task, with whole cores."""
        if topology is None or not topology.pin:
            return wants
        return tuple([(at, self.rounded(topology, amount) if at == CPU else amount) for at, amount in wants])

    def ways(self, topology: Topology, *, with_gpus: bool) -> tuple[_Way, ...]:
        """Return the areas that can hold tasks, which do not overlap."""
        key = topology.pin, topology.link, with_gpus
        ways = self._ways.get(key)
        if ways is None:
            found: list[_Way] = []
            for area in self._areas[_LEVELS[topology.pin][-1]]:
                if topology.pin and not area.cpus:
                    continue
                gpus = [area.gpus & group for group in self._groups.get(topology.link, (self.gpus,))]
                localities = tuple([self._locality(True, mask) for mask in gpus if mask]) if with_gpus else ()
                if localities or not with_gpus:
                    found.append(_Way(self._locality(False, area.cpus), localities, area.memory))
            ways = self._ways[key] = tuple(found)
        return ways

    def count(self, topology: Topology, asked: Resources, free: Sequence[int], at: Sequence[int]) -> int:
        """Return how many tasks fit into the areas, each into one; `at` are the positions of localities in `free`."""
        if not topology.pin and not (topology.link and asked.gpu):
            return ANY
        cpus = self.rounded(topology, asked.cpu) // 1000
        gpus = asked.gpu if self._gpus else 0
        total = 0
        for way in self.ways(topology, with_gpus=gpus > 0):
            many = ANY
            if topology.pin and way.cpus != _WHOLE and cpus:
                many = max(0, free[at[way.cpus]]) // cpus
            if topology.pin and way.memory != _WHOLE and asked.memory:
                many = min(many, max(0, free[at[len(self.localities) + way.memory]]) // asked.memory)
            if gpus and _WHOLE not in way.gpus:
                many = min(many, sum([max(0, free[at[locality]]) // gpus for locality in way.gpus]))
            total += many
        return min(total, ANY)

    def parts(self, topology: Topology, left: Left | None = None) -> list[tuple[int, int]]:
        """Return the CPUs and GPUs of each part that could hold a task, or those of them that are left."""
        if not self.suits(topology):
            return []
        cpus, gpus, _ = left or self.full
        groups = self._groups.get(topology.link, (self.gpus,))
        return [
            ((area.cpus & cpus).bit_count(), (area.gpus & group & gpus).bit_count())
            for area in self._areas[_LEVELS[topology.pin][-1]]
            for group in groups
        ]

    def most_memory(self, topology: Topology, asked: Resources, left: Left | None = None) -> int | None:
        """Return the most memory of one part that could hold a task but for its memory, or of what is left of it.

        None if memory is not what is missing: no part could hold the task, or one does.
        """
        cpus, gpus, memories = left or self.full
        needed = self.rounded(topology, asked.cpu) // 1000
        groups = self._groups.get(topology.link, (self.gpus,)) if asked.gpu else (0,)
        found: int | None = None
        for area in self._areas[_LEVELS[topology.pin][-1]]:
            if (area.cpus & cpus).bit_count() < needed:
                continue
            if all((area.gpus & group & gpus).bit_count() < asked.gpu for group in groups):
                continue
            if area.memory == _WHOLE:
                return None
            found = memories[area.memory] if found is None else max(found, memories[area.memory])
        return found if found is not None and found < asked.memory else None

    # --- which

    def choose(self, topology: Topology | None, asked: Resources, left: Left) -> Chosen | None:
        """Choose the CPUs and GPUs of one task: the fullest area that holds it, near each other; None if none does."""
        topology = topology or _LOOSE
        cpus = self.rounded(topology, asked.cpu) // 1000 if topology.pin else 0
        gpus = asked.gpu if self._gpus else 0
        groups = self._groups.get(topology.link, (self.gpus,)) if gpus else (0,)
        for level in _LEVELS[topology.pin]:
            best: tuple[int, int, int, int] | None = None
            for area in self._areas[level]:
                near = area.cpus & left[0]
                if cpus and near.bit_count() < cpus:
                    continue
                if cpus and area.memory != _WHOLE and left[2][area.memory] < asked.memory:
                    continue
                for group in groups:
                    some = area.gpus & group & left[1]
                    if some.bit_count() < gpus:
                        continue
                    found = (some.bit_count() if gpus else 0, near.bit_count() if cpus else 0, near, some)
                    if best is None or found[:2] < best[:2]:
                        best = found
            if best is not None:
                return self._lowest_cores(best[2], cpus), _lowest(best[3], gpus)
        return None

    def _lowest_cores(self, free: int, cpus: int) -> int:
        """Return the first whole cores of some CPUs, until there are so many."""
        if self.threads == 1:
            return _lowest(free, cpus)
        mask = 0
        for core in self._cores:
            if mask.bit_count() >= cpus:
                break
            if core & free == core:
                mask |= core
        return mask

    def granted(self, mask: Chosen) -> Granted:
        """Return what these bits are, by name."""
        cpus, gpus = mask
        return Granted(cpu_list(cpus), tuple([gpu for gpu, bit in self._bits.items() if bit & gpus]))

    def left(self, granted: Iterable[tuple[Granted, int]]) -> Left:
        """Return which CPUs and GPUs are free, and how much memory; of each task what it was granted, and its memory."""
        cpus, gpus, memories = self.full
        for each, memory in granted:
            if each.cpus:
                own = cpu_mask(each.cpus)
                cpus &= ~own
                memories = self._without(memories, own, memory)
            if each.gpus:
                gpus &= ~self._mask(each.gpus)
        return cpus, gpus, memories

    def after(self, left: Left, chosen: Chosen, memory: int) -> Left:
        """Return what is left after a task took these CPUs and GPUs, and its memory."""
        return left[0] & ~chosen[0], left[1] & ~chosen[1], self._without(left[2], chosen[0], memory)

    def _without(self, memories: tuple[int, ...], cpus: int, memory: int) -> tuple[int, ...]:
        if not memories or not memory or (number := self._memory_of(cpus)) == _WHOLE:
            return memories
        return (*memories[:number], memories[number] - memory, *memories[number + 1 :])

    # --- localities

    def amounts(self, left: Left) -> list[int]:
        """Return what is free in each locality, and the free memory of NUMA nodes."""
        free = [(mask & (left[1] if of_gpus else left[0])).bit_count() for of_gpus, mask in self.localities]
        return [*free, *left[2]]

    def held(self, granted: Granted, memory: int, at: Sequence[int]) -> list[tuple[int, int]]:
        """Return what a task with so much memory takes from each locality, by position."""
        taken = cpu_mask(granted.cpus), self._mask(granted.gpus)
        return self.taken(taken, memory, at)

    def taken(self, chosen: Chosen, memory: int, at: Sequence[int]) -> list[tuple[int, int]]:
        """Return what a task with these CPUs and GPUs, and so much memory, takes from each locality, by position."""
        amounts = zip(at, self.amounts((*chosen, ())), strict=False)
        found = [(position, amount) for position, amount in amounts if amount]
        if memory and self._memories and (number := self._memory_of(chosen[0])) != _WHOLE:
            found.append((at[len(self.localities) + number], memory))
        return found

    def share(
        self,
        topology: Topology | None,
        asked: Resources,
        tasks: int,
        free: Sequence[int],
        at: Sequence[int],
    ) -> list[tuple[int, int]]:
        """Return what tasks would take from each locality if so much is free: as `choose`, but by amounts."""
        topology = topology or _LOOSE
        cpus = self.rounded(topology, asked.cpu) // 1000 if topology.pin else 0
        gpus = asked.gpu if self._gpus else 0
        if not self.localities or not (cpus or gpus):
            return []
        now = [max(0, free[at[number]]) for number in range(self.size)]
        before, memory = now.copy(), asked.memory if cpus else 0
        for _ in range(tasks):
            way = self._roomiest(topology, (cpus, gpus, memory), now)
            if memory and way.memory != _WHOLE:
                now[len(self.localities) + way.memory] -= memory
            for amount, locality, kind in (
                (cpus, way.cpus, 0),
                (gpus, way.gpus[0] if way.gpus else _WHOLE, 1),
            ):
                if amount:
                    self._take(now, kind, locality, amount)
        return [
            (at[locality], before[locality] - each)
            for locality, each in enumerate(now)
            if before[locality] != each
        ]

    def _roomiest(self, topology: Topology, asked: tuple[int, int, int], now: Vector) -> _Way:
        """Return the fullest area that holds a task, with the locality of its GPUs; the first area if none does.

        It asks for so many CPUs and GPUs, and for so much memory.
        """
        cpus, gpus, memory = asked
        ways = self.ways(topology, with_gpus=gpus > 0)
        best: tuple[tuple[int, int], _Way] | None = None
        for way in ways:
            near = ANY if way.cpus == _WHOLE else now[way.cpus]
            if way.memory != _WHOLE and now[len(self.localities) + way.memory] < memory:
                continue
            for locality in way.gpus or (_WHOLE,):
                some = ANY if locality == _WHOLE else now[locality]
                if near >= cpus and some >= gpus and (best is None or (some, near) < best[0]):
                    best = (some, near), _Way(way.cpus, (locality,), way.memory)
        return best[1] if best is not None else ways[0] if ways else _Way(_WHOLE, ())

    def _take(self, now: Vector, kind: int, locality: int, amount: int) -> None:
        """Take an amount from the cells of a locality, the fullest first, and from all localities that they are in."""
        everything = self.gpus if kind else self.cpus
        whole = everything if locality == _WHOLE else self.localities[locality][1]
        cells = [cell for cell in self._cells[kind] if cell & whole and cell != everything]
        numbers = sorted(
            [self._locality(bool(kind), cell) for cell in cells], key=lambda each: (now[each], each)
        )
        fitting = [each for each in numbers if now[each] >= amount]
        for number in fitting[:1] or numbers:
            some = min(amount, now[number])
            mask = self.localities[number][1]
            for each, (of_gpus, other) in enumerate(self.localities):
                if of_gpus == bool(kind) and other & mask:
                    now[each] -= some
            amount -= some


_LOOSE: Final = Topology()


@lru_cache(maxsize=4096)
def structure_of(inside: Inside, *, memory: bool = True) -> Structure:
    """Return the structure that all machines with this inside share; without `memory`, that of NUMA nodes does not count."""
    if memory:
        return Structure(inside)
    return Structure(replace(inside, domains=tuple([replace(each, memory=0) for each in inside.domains])))


def _cores_of(lanes: Sequence[int]) -> list[int]:
    """Return the CPUs of each core, as bits; each lane has one CPU of every core."""
    cores: list[int] = []
    lanes = list(lanes)
    while lanes and all(lanes):
        cores.append(sum([lane & -lane for lane in lanes]))
        lanes = [lane & (lane - 1) for lane in lanes]
    return cores


def _lowest(mask: int, count: int) -> int:
    """Return the lowest bits."""
    found = 0
    for _ in range(count):
        low = mask & -mask
        found |= low
        mask ^= low
    return found


def _split(everything: int, parts: Iterable[int]) -> list[int]:
    """Return the smallest parts that all parts consist of."""
    cells = [everything] if everything else []
    for part in parts:
        cells = [piece for cell in cells for piece in (cell & part, cell & ~part) if piece]
    return cells
