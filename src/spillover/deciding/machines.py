"""One node, as far as placing looks at it: what is free on it, and which jobs it is a node for."""

from collections.abc import Mapping
from typing import Final

from spillover.model.admission import REPELLING, matches, may_run, repelled_by
from spillover.model.cluster import ClusterSpec, Taint
from spillover.model.ids import NodeName
from spillover.model.job import Shape
from spillover.model.resources import Others, Resources, covers
from spillover.model.units import FOREVER
from spillover.model.where import Rules

Free = tuple[int, int, int, int, int, Others]
"""CPU, memory and GPUs that are free on a machine, how many more leases it takes ahead of room, how many more tasks, and what else is free."""

ANY: Final = FOREVER
"""How many tasks a machine takes that takes any number."""
NO_RULES: Final = Rules()
MOST_RULES: Final = 256
"""Rules of which a machine remembers whether it is a node for them."""


class Machine:
    """One node: what is free on it, trial placements of the cycle included."""

    __slots__ = (
        "_known",
        "ahead",
        "cpu",
        "gpu",
        "index",
        "labels",
        "limit",
        "memory",
        "name",
        "number",
        "offers",
        "other",
        "pace",
        "places",
        "ready",
        "repels",
        "slots",
        "spec",
        "taints",
        "total",
        "turn",
    )

    def __init__(self, name: NodeName, number: int, index: int, spec: ClusterSpec) -> None:
        self.name = name
        self.spec = spec
        """Of its cluster."""
        self.number = number
        """Of its node: another one of this name has another."""
        self.index = index
        self.cpu = -1
        """Thousandths; -1 when nothing fits: it is not ready, takes no more tasks, or those ahead of room come first."""
        self.memory = self.gpu = 0
        self.ahead = 0
        """How many more leases it takes ahead of room."""
        self.limit = self.pace = self.turn = 0
        """How many it takes in all, the mean nanoseconds of its tasks, and when it was given the last one."""
        self.slots = 1
        self.places = ANY
        """How many more tasks it takes."""
        self.offers: frozenset[str] = frozenset()
        self.ready = False
        self.total = Resources()
        self.other: Others = ()
        """What else is free, by name."""
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.repels = False
        """Whether a taint keeps tasks off that do not tolerate it."""
        self._known: dict[Rules | None, bool] = {}
        """Which rules it was found to be a node for, and which not."""

    def fits(self, shape: Shape) -> bool:
        """Whether a task of this shape can start there now."""
        asked = shape.resources
        return (
            asked.cpu <= self.cpu
            and asked.memory <= self.memory
            and asked.gpu <= self.gpu
            and (not asked.other or covers(self.other, asked.other))
            and self.admits(shape)
        )

    def could_fit(self, shape: Shape) -> bool:
        """Whether a task of this shape could start there if nothing else ran."""
        return shape.resources.fits(self.total) and self.admits(shape)

    def admits(self, shape: Shape) -> bool:
        """Whether it is a machine that jobs of this shape ask for, whatever runs on it."""
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
        """Nanoseconds of work that it holds ahead of room."""
        return (self.limit - self.ahead) * self.pace // self.slots

    @property
    def free(self) -> Free:
        """All that trial placements change."""
        return self.cpu, self.memory, self.gpu, self.ahead, self.places, self.other
