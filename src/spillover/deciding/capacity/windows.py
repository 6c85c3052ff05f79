"""Windows: the spans of time in which advance reservations keep machines of a cluster from others.

A job of others may use such a machine before a window only if it ends before it, and after it. A cluster without
windows has none of this, and pays nothing for it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from spillover.model.ids import NodeName
from spillover.model.reservation import AdvanceReservation
from spillover.model.units import FOREVER

if TYPE_CHECKING:
    from spillover.deciding.capacity.machine import Machine

MOST_KNOWN: Final = 256
"""Sets of windows for which the machines are cached."""


class Window(Struct, frozen=True, gc=False):
    """The span of one advance reservation."""

    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    name: str
    project: str
    """The project whose jobs may run in it; empty if none may."""

    def bars(self, requester: "Requester", start: int, end: int) -> bool:
        """Return whether a job that runs over a span must not use machines of this window."""
        if requester.reservation == self.name:
            outside = start < self.start or (requester.limited and end > self.end) or start >= self.end
            return outside or self.project != requester.project  # another one, which got the same name later
        return (
            start < self.end and end > self.start and (not self.project or self.project != requester.project)
        )


class Requester(NamedTuple):
    """What decides which windows are open to a job."""

    project: str
    """Empty for somebody to whom no window is open."""
    reservation: str = ""
    """The reservation that it names, outside of which it does not run; empty if it names none."""
    limited: bool = False
    """Whether it has a walltime. With one, it must end within the reservation that it names."""


NO_ACCESS: Final = Requester("")
"""Somebody to whom no window is open."""


def closed_to(windows: Iterable[Window], requester: Requester) -> Iterator[tuple[int, int]]:
    """Yield the spans in which a job may not use a machine with these windows."""
    for window in windows:
        if window.name == requester.reservation:
            yield 0, window.start if window.project == requester.project else FOREVER
            if requester.limited:
                yield window.end, FOREVER
        elif not window.project or window.project != requester.project:
            yield window.start, window.end


class Windows:
    """The windows of one cluster."""

    __slots__ = ("_all", "_known", "_machines", "of")

    def __init__(
        self, reservations: Iterable[AdvanceReservation], machines: Mapping[NodeName, "Machine"]
    ) -> None:
        self._machines = machines
        """The machines of the cluster by name."""
        self._all: list[tuple[Window, tuple[NodeName, ...]]] = sorted(
            [(Window(each.start, each.end, each.name, each.project), each.nodes) for each in reservations],
            key=lambda one: (one[0].start, one[0].name),
        )
        self.of: dict[NodeName, tuple[Window, ...]] = {}
        """The windows of each node that has any, soonest first."""
        for window, nodes in self._all:
            for node in nodes:
                self.of[node] = (*self.of.get(node, ()), window)
        self._known: dict[tuple[str, ...], frozenset[int]] = {}
        """By the names of windows, the indexes of their machines."""

    def __iter__(self) -> Iterator[Window]:
        """Yield all windows, soonest first."""
        return (window for window, _ in self._all)

    def has(self, name: str) -> bool:
        """Return whether one of them has this name."""
        return any(window.name == name for window, _ in self._all)

    def copy(self, machines: Mapping[NodeName, "Machine"]) -> "Windows":
        """Return a copy for other machines of the same names."""
        own = Windows((), machines)
        own._all, own.of = self._all, self.of  # never changed
        return own

    def forget(self) -> None:
        """Look up machines again, because indexes changed."""
        self._known.clear()

    def barred(self, requester: Requester, start: int, end: int) -> Collection[int]:
        """Return the indexes of machines that a job must not use if it runs over a span."""
        names = tuple([window.name for window, _ in self._all if window.bars(requester, start, end)])
        if not names:
            return ()
        known = self._known.get(names)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            machines, barring = self._machines, frozenset(names)
            known = self._known[names] = frozenset(
                [
                    machines[node].index
                    for window, nodes in self._all
                    if window.name in barring
                    for node in nodes
                    if node in machines
                ]
            )
        return known
