"""One node, as far as placing looks at it: what is free on it, and which jobs may run there."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from spillover.deciding.capacity.amounts import CLOSED, CPU, GPU, MEMORY, TASKS, Layout, Vector, fits
from spillover.model.admission import REPELLING, matches, may_run, repelled_by
from spillover.model.cluster import ClusterSpec, Taint
from spillover.model.ids import NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.where import Rules

Before: TypeAlias = tuple[Vector, int]
"""What was free on a machine before a trial placement, and how many more leases it prefetched."""
NO_RULES: Final = Rules()
MOST_RULES: Final = 256
"""Rules of which a machine remembers whether it obeys them."""


class FreeAmounts:
    """What a place policy sees of a machine, by what is free on it. See `MachineView`."""

    __slots__ = ()

    free: Sequence[int]
    layout: Layout

    @property
    def cpu(self) -> int:
        """Thousandths of a CPU that are free."""
        return self.free[CPU]

    @property
    def memory(self) -> int:
        """Bytes that are free."""
        return self.free[MEMORY]

    @property
    def gpu(self) -> int:
        """GPUs that are free."""
        return self.free[GPU]

    @property
    def tasks(self) -> int:
        """How many more tasks it takes."""
        return self.free[TASKS]

    def amount(self, name: str) -> int:
        """How much of a named resource is free."""
        position = self.layout.position(name)
        return 0 if position is None else self.free[position]


class Machine(FreeAmounts):
    """One node: what is free on it, trial placements of the cycle included. Place policies see it as a `MachineView`."""

    __slots__ = (
        "_known",
        "ahead",
        "free",
        "index",
        "labels",
        "layout",
        "limit",
        "name",
        "number",
        "offers",
        "pace",
        "ready",
        "repels",
        "slots",
        "spec",
        "taints",
        "total",
        "turn",
    )

    def __init__(self, name: NodeName, number: int, index: int, spec: ClusterSpec, layout: Layout) -> None:
        self.name = name
        self.spec = spec
        """Of its cluster."""
        self.layout = layout
        self.number = number
        """Of its node: another one of this name has another."""
        self.index = index
        self.free: Vector = nothing(layout)
        """What is free, by position; `CLOSED` CPU if nothing may start."""
        self.ahead = 0
        """How many more leases it prefetches."""
        self.limit = self.pace = self.turn = 0
        """How many it takes in all, the mean nanoseconds of its tasks, and when it was given the last one."""
        self.slots = 1
        self.offers: frozenset[str] = frozenset()
        self.ready = False
        self.total = Resources()
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.repels = False
        """Whether a taint keeps tasks off that do not tolerate it."""
        self._known: dict[Rules | None, bool] = {}
        """Which rules it was found to obey, and which not."""

    def copy(self, layout: Layout) -> "Machine":
        """The same, of its own, with what its layout has become."""
        own = Machine(self.name, self.number, self.index, self.spec, layout)
        own.free, own.ahead = self.free.copy(), self.ahead
        own.limit, own.pace, own.turn, own.slots = self.limit, self.pace, self.turn, self.slots
        own.offers, own.ready, own.total = self.offers, self.ready, self.total
        own.labels, own.taints, own.repels = self.labels, self.taints, self.repels
        return own

    # --- what fits

    @property
    def before(self) -> Before:
        """All that a trial placement changes, to be undone."""
        return self.free.copy(), self.ahead

    def fits(self, shape: Shape) -> bool:
        """Whether a task of this shape can start there now."""
        return fits(self.layout.wants(shape.resources), self.free) and self.admits(shape)

    def could_fit(self, shape: Shape) -> bool:
        """Whether a task of this shape could start there if nothing else ran."""
        return shape.resources.fits(self.total) and self.admits(shape)

    def admits(self, shape: Shape) -> bool:
        """Whether jobs of this shape may run there, whatever else runs on it."""
        if shape.needs and not self.offers.issuperset(shape.needs):
            return False
        if (shape.rules is not None or self.repels) and not self._obeys(shape.rules):
            return False
        return (shape.where is None and not shape.runs) or may_run(shape, self.spec)

    def _obeys(self, rules: Rules | None) -> bool:
        """Whether its labels are those that are asked for, and its taints tolerated."""
        answer = self._known.get(rules)
        if answer is None:
            if len(self._known) >= MOST_RULES:
                self._known.clear()
            asked = rules or NO_RULES
            repelled = self.repels and repelled_by(asked.tolerations, self.taints) is not None
            answer = self._known[rules] = not repelled and matches(asked, self.name, self.labels)
        return answer

    def learn(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Take in by what jobs may ask for it; True if that is not what it was."""
        same = self.labels == labels and self.taints == taints
        self.labels, self.taints = labels, taints
        if same:
            return False
        self.repels = any(taint.effect in REPELLING for taint in taints)
        self._known.clear()
        return True

    @property
    def load(self) -> int:
        """Nanoseconds of prefetched work."""
        return (self.limit - self.ahead) * self.pace // self.slots


def nothing(layout: Layout) -> Vector:
    """What is free where nothing may start."""
    free = [0] * len(layout)
    free[CPU] = CLOSED
    return free
