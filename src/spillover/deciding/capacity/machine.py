"""One node as placement sees it: what is free on it, and which jobs may run there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import (
    ANY,
    CLOSED,
    CPU,
    GPU,
    MEMORY,
    TASKS,
    Layout,
    Vector,
    Wants,
    count,
    fits,
    times,
)
from spillover.deciding.capacity.inside import Left, Structure
from spillover.deciding.capacity.windows import Window
from spillover.model.admission import REPELLING, matches, may_run, offered, repelled_by
from spillover.model.cluster import ClusterSpec, Taint
from spillover.model.ids import NodeName
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Topology
from spillover.model.where import Rules

if TYPE_CHECKING:
    from spillover.deciding.capacity.levels import Vertex

Before: TypeAlias = tuple[Vector, int, Left]
"""What was free before a trial placement, how many more leases the machine could prefetch, and what was free inside."""
NOTHING_INSIDE: Final[Left] = (0, 0, ())
"""What is free inside of a machine that reported no inside."""
NO_RULES: Final = Rules()
UNKNOWN: Final = 0
"""The kind of a machine that was not read yet, or dropped."""
MOST_RULES: Final = 256
"""Rules for which a machine caches its answer."""


class FreeAmounts:
    """The free amounts of a machine, as a place policy sees them. See `MachineView`."""

    __slots__ = ()

    free: Sequence[int]
    layout: Layout

    @property
    def cpu(self) -> int:
        """Free CPU in thousandths."""
        return self.free[CPU]

    @property
    def memory(self) -> int:
        """Free memory in bytes."""
        return self.free[MEMORY]

    @property
    def gpu(self) -> int:
        """Free GPUs."""
        return self.free[GPU]

    @property
    def tasks(self) -> int:
        """The number of tasks that it can still take."""
        return self.free[TASKS]

    def amount(self, name: str) -> int:
        """Return the free amount of a named resource."""
        position = self.layout.position(name)
        return 0 if position is None else self.free[position]


class Machine(FreeAmounts):
    """One node with what is free on it, including trial placements of the cycle. Policies see it as a `MachineView`."""

    __slots__ = (
        "_known",
        "ahead",
        "foreign",
        "free",
        "idle",
        "index",
        "inside",
        "kind",
        "labels",
        "layout",
        "left",
        "limit",
        "memories",
        "name",
        "number",
        "offers",
        "outdated",
        "pace",
        "plain",
        "ready",
        "repels",
        "slots",
        "spec",
        "taints",
        "total",
        "turn",
        "vertices",
        "windows",
    )

    def __init__(self, name: NodeName, number: int, index: int, spec: ClusterSpec, layout: Layout) -> None:
        self.name = name
        self.spec = spec
        """The spec of its cluster."""
        self.layout = layout
        self.number = number
        """The number of its node: another node of the same name has a different one."""
        self.index = index
        self.free: Vector = nothing(layout)
        """What is free, by position; CPU is `CLOSED` if nothing may start."""
        self.idle: Vector = []
        """What is free when nothing runs there. Positions added since are missing; there is none of those."""
        self.foreign: Resources | None = None
        """What tasks of others use of it; None for an agent."""
        self.plain: tuple[int, ...] | None = None
        """The same if every job that asks for nothing special may run there, else None; machines alike share it."""
        self.kind = UNKNOWN
        """A number that it shares with machines of the same capacity and inside, if they are ready and repel jobs as it does."""
        self.vertices: tuple[Vertex | None, ...] = ()
        """Its vertex at each level of the cluster; None where it has none. Empty in a flat cluster."""
        self.windows: tuple[Window, ...] = ()
        """The spans in which advance reservations have it, soonest first; nearly always none."""
        self.inside: Structure | None = None
        """Its sockets and GPUs; None if it reported none."""
        self.left: Left = NOTHING_INSIDE
        """Its CPUs and GPUs that no task has for itself, and what is free of the memory of its NUMA nodes."""
        self.memories: tuple[int, ...] = ()
        """The positions of that memory; none on machines that do not report it for several NUMA nodes."""
        self.ahead = 0
        """How many more leases it prefetches."""
        self.limit = self.pace = self.turn = 0
        """Limit of prefetched leases, mean runtime of tasks in nanoseconds, and number of the last prefetched lease."""
        self.slots = 1
        self.offers: frozenset[str] = frozenset()
        self.ready = False
        self.total = Resources()
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.outdated = False
        """Whether its agent is of a release that cannot run gangs."""
        self.repels = False
        """Whether it may reject a job that asks for nothing special: for a taint, or because its agent is outdated."""
        self._known: dict[Rules | Topology | None, bool] = {}
        """By rules, whether the machine satisfies them; by topology, whether it is at the levels."""

    def copy(self, layout: Layout) -> "Machine":
        """Return a copy that uses another layout."""
        own = Machine(self.name, self.number, self.index, self.spec, layout)
        own.free, own.ahead = self.free.copy(), self.ahead
        own.limit, own.pace, own.turn, own.slots = self.limit, self.pace, self.turn, self.slots
        own.offers, own.ready, own.total = self.offers, self.ready, self.total
        own.labels, own.taints, own.repels = self.labels, self.taints, self.repels
        own.outdated, own.plain, own.foreign = self.outdated, self.plain, self.foreign
        own.kind, own.memories = self.kind, self.memories
        own.idle, own.windows, own.inside, own.left = self.idle, self.windows, self.inside, self.left
        return own

    # --- what fits

    @property
    def before(self) -> Before:
        """Everything that a trial placement changes, to undo it."""
        return self.free.copy(), self.ahead, self.left

    def fits(self, shape: Shape) -> bool:
        """Return whether a task of this shape can start there now."""
        wants = self.layout.wants(shape.resources)
        if not fits(wants, self.free) or not self.admits(shape):
            return False
        return shape.topology is None or self.holds(shape, wants, self.free)

    def holds(self, shape: Shape, wants: Wants, free: Sequence[int]) -> bool:
        """Return whether a task with a topology fits if this much is free there; its amounts fit, and it is admitted."""
        topology = shape.topology
        if topology is None:
            return True
        if topology.exclusive and not self.is_empty(free):
            return False
        return not topology.asks_inside or self._count_inside(shape, wants, free) > 0

    def _count_inside(self, shape: Shape, wants: Wants, free: Sequence[int]) -> int:
        """Return how many tasks that ask for the inside fit there."""
        topology, inside = shape.topology, self.inside
        if topology is None or inside is None or not inside.suits(topology):
            return 0
        many = count(inside.asks(topology, wants), free)
        return min(many, inside.count(topology, shape.resources, free, self.layout.localities))

    def tasks_of(self, shape: Shape, wants: Wants, free: Sequence[int]) -> int:
        """Return how many tasks of a gang fit if this much is free there; it must admit them."""
        many, topology = count(wants, free), shape.topology
        if topology is None or not many:
            return many
        if topology.exclusive and not self.is_empty(free):
            return 0
        if topology.asks_inside:
            many = self._count_inside(shape, wants, free)
        if topology.spread != NODE:
            return many
        return min(many, topology.most) if many >= topology.most or not topology.exact else 0

    def is_empty(self, free: Sequence[int]) -> bool:
        """Return whether nothing of ours runs there if this much is free."""
        vacant = self.vacant
        return bool(vacant) and all(have >= whole for have, whole in zip(free, vacant, strict=False))

    def observe_others(self, foreign: Resources, tasks: int) -> None:
        """Set what tasks of others use, and how many of ours there may be; -1 is no limit."""
        self.foreign = foreign
        if self.idle[TASKS] != (limit := tasks if tasks >= 0 else ANY):
            self.idle = [*self.idle[:TASKS], limit, *self.idle[TASKS + 1 :]]  # copies share the old list

    @property
    def vacant(self) -> Vector:
        """What is free when no job of ours runs there. Others may use some; positions added since are missing."""
        if self.foreign is None:
            return self.idle
        left = self.idle.copy()
        for at, amount in self.layout.held(self.foreign, 0):
            if at < len(left):
                left[at] -= amount
        return left

    @property
    def whole(self) -> Wants:
        """The request for all that it has and others do not use."""
        return tuple(
            [
                (at, max(0, amount))
                for at, amount in enumerate(self.vacant)
                if at != TASKS and (amount > 0 or at == CPU)
            ]
        )

    def could_fit(self, shape: Shape) -> bool:
        """Return whether a task of this shape would fit if the machine were empty, and its agent of this release."""
        if not shape.resources.fits(self.total) or not self.admits(shape, upgraded=True):
            return False
        if shape.topology is None or not shape.topology.asks_inside:
            return True
        return self._count_inside(shape, self.layout.wants(shape.resources), self.when_idle) > 0

    @property
    def when_idle(self) -> Vector:
        """What is free when nothing runs there, for all present positions."""
        missing = self.layout.size - len(self.idle)
        return [*self.idle, *[0] * missing] if missing else self.idle

    # --- what tasks get

    def asks(self, shape: Shape, wants: Wants) -> Wants:
        """Return what one task takes: its request, with whole cores if it has some for itself."""
        return wants if self.inside is None else self.inside.asks(shape.topology, wants)

    def takes(self, shape: Shape) -> Wants:
        """Return what one task takes of it: as `asks`, or all of it."""
        topology = shape.topology
        if topology is not None and topology.exclusive:
            return self.whole
        return self.asks(shape, self.layout.wants(shape.resources))

    def share(self, shape: Shape, wants: Wants, tasks: int, free: Sequence[int]) -> Wants:
        """Return what tasks hold together if they start when this much is free: their requests, or all of it."""
        topology = shape.topology
        if topology is not None and topology.exclusive:
            return self.whole
        inside = self.inside
        if inside is None or not (shape.resources.gpu or (topology is not None and topology.pin)):
            return times(wants, tasks)
        localities = inside.share(topology, shape.resources, tasks, free, self.layout.localities)
        return (*times(inside.asks(topology, wants), tasks), *localities)

    def held_now(self, shape: Shape, wants: Wants) -> Wants:
        """Return what a task holds that starts there now, with what it would be granted."""
        topology, inside = shape.topology, self.inside
        if topology is not None and topology.exclusive:
            return self.whole
        if inside is None or not self.grants(shape):
            return wants
        chosen = inside.choose(topology, shape.resources, self.left)
        own = inside.asks(topology, wants)
        if chosen is None:
            return own
        return (*own, *inside.taken(chosen, shape.resources.memory, self.layout.localities))

    def with_granted(self, held: Wants, granted: Iterable[tuple[Granted | None, int]]) -> Wants:
        """Return what tasks hold, with their share of what is inside; of each what it was granted, and its memory."""
        inside = self.inside
        if inside is None:
            return held
        localities = [
            each
            for one, memory in granted
            if one is not None
            for each in inside.held(one, memory, self.layout.localities)
        ]
        return (*held, *localities) if localities else held

    def grants(self, shape: Shape) -> bool:
        """Return whether tasks of a shape are granted cores or GPUs there by name."""
        inside = self.inside
        if inside is None:
            return False
        return bool(shape.resources.gpu and inside.gpus) or (
            shape.topology is not None and bool(shape.topology.pin)
        )

    def admits(self, shape: Shape, *, upgraded: bool = False) -> bool:
        """Return whether jobs of this shape may run there, whatever else runs on it; or once its agent is `upgraded`."""
        if self.outdated and shape.is_gang and not upgraded:
            return False
        if shape.needs and not self.offers.issuperset(shape.needs):
            return False
        if (shape.rules is not None or self.repels) and not self._satisfies(shape.rules):
            return False
        if shape.topology is not None and not (
            self._has_levels(shape.topology) and self._suits(shape.topology)
        ):
            return False
        if shape.reservation and all(window.name != shape.reservation for window in self.windows):
            return False
        return (shape.where is None and not shape.runs) or may_run(shape, self.spec)

    def vertex(self, level: str) -> "Vertex | None":
        """Return its vertex at a level; None if it has none."""
        for at, each in enumerate(self.spec.levels):
            if each.name == level:
                return self.vertices[at] if self.vertices else None
        return None

    def _suits(self, topology: Topology) -> bool:
        """Return whether it reported the parts that a job asks for."""
        return not topology.asks_inside or (self.inside is not None and self.inside.suits(topology))

    def _has_levels(self, topology: Topology) -> bool:
        """Return whether its labels name a vertex at each level that a job requires."""
        answer = self._known.get(topology)
        if answer is None:
            if len(self._known) >= MOST_RULES:
                self._known.clear()
            answer = all(self.vertex(level) is not None for level in topology.levels)
            self._known[topology] = answer
        return answer

    def _satisfies(self, rules: Rules | None) -> bool:
        """Return whether labels match the rules and the rules tolerate the taints."""
        answer = self._known.get(rules)
        if answer is None:
            if len(self._known) >= MOST_RULES:
                self._known.clear()
            asked = rules or NO_RULES
            repelled = self.repels and repelled_by(asked.tolerations, self.taints) is not None
            answer = self._known[rules] = not repelled and matches(asked, self.name, self.labels, self.offers)
        return answer

    def learn(self, node: Node) -> bool:
        """Read labels, taints, offered words and what its agent can run; return whether they changed.

        A job may ask for what is gone.
        """
        offers, outdated = offered(node.offers), not node.gangs
        same = (
            self.labels == node.labels
            and self.taints == node.taints
            and self.offers == offers
            and self.outdated is outdated
        )
        self.labels, self.taints, self.offers, self.outdated = node.labels, node.taints, offers, outdated
        if same:
            return False
        self.repels = outdated or any(taint.effect in REPELLING for taint in node.taints)
        self._known.clear()
        return True

    @property
    def load(self) -> int:
        """Prefetched work in nanoseconds."""
        return (self.limit - self.ahead) * self.pace // self.slots


def nothing(layout: Layout) -> Vector:
    """Return the vector of a machine on which nothing may start."""
    free = [0] * layout.size
    free[CPU] = CLOSED
    return free
