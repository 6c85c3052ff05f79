"""Places labels beside the points of a plot, so that they hide neither points nor each other."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import cos, hypot, pi, sin
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_DIRECTIONS: Final = tuple(
    (cos(at * pi / 6), sin(at * pi / 6)) for at in (2, 4, 1, 5, 3, 10, 8, 11, 7, 9, 0, 6)
)
"""Directions from a point to its label, the best first: above and to one side is easiest to read."""
_DISTANCES: Final = (6.0, 11.0, 18.0)
"""Distances from a point to its label, in typographic points."""
_DOT: Final = 4.0
"""Half the size of a dot, in typographic points."""
_STEP: Final = 4.0
"""Pixels between the samples of a line, to find out whether it crosses a label."""
_BAD: Final = 100.0
"""Cost of covering a dot or a label, or of leaving the frame; each sample of a line costs 1."""


class Box(Struct, frozen=True):
    """A rectangle in pixels."""

    left: float
    low: float
    right: float
    high: float

    def holds(self, x: float, y: float, more: float = 0.0) -> bool:
        """Tell whether a place is inside, or at most `more` away."""
        return self.left - more <= x <= self.right + more and self.low - more <= y <= self.high + more

    def meets(self, other: "Box") -> bool:
        """Tell whether two rectangles overlap."""
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.high <= other.low or other.high <= self.low)


class Labels:
    """The labels of one plot, whose axes and size no longer change."""

    def __init__(self, axes: "Axes", lines: Iterable[Sequence[tuple[float, float]]]) -> None:
        """Take lines with a dot at each point; a line may have a single point."""
        figure: Any = axes.figure
        self._axes = axes
        self._renderer = figure.canvas.get_renderer()
        self._pixels = figure.dpi / 72
        """Pixels per typographic point."""
        frame = axes.get_window_extent(self._renderer)
        self._frame = Box(frame.x0, frame.y0, frame.x1, frame.y1)
        self.words: list[Box] = []
        """Boxes of the labels so far."""
        self._dots: list[tuple[float, float]] = []
        self._lines: list[tuple[float, float]] = []
        for line in lines:
            places = [self._place(*point) for point in line]
            self._dots += places
            for one, other in pairwise(places):
                self._lines += _between(one, other)

    def keep_free(self, text: "Text") -> None:
        """Keep labels off an existing text."""
        box = text.get_window_extent(self._renderer)
        self.words.append(Box(box.x0, box.y0, box.x1, box.y1))

    def add(self, word: str, at: Sequence[tuple[float, float]], *, must: bool, **style: Any) -> bool:
        """Place a label beside one of some points, preferably the first; without a good place only if it `must`."""
        text = self._axes.annotate(
            word, at[0], (0.0, 0.0), textcoords="offset points", ha="left", va="bottom", zorder=6, **style
        )
        text.set_in_layout(False)
        size = text.get_window_extent(self._renderer)
        best: tuple[float, tuple[float, float], Box] | None = None
        for order, point in enumerate(at):
            x, y = self._place(*point)
            for box, far in self._around(x, y, size.width, size.height):
                cost = self._cost(box) + far + order
                if best is None or cost < best[0]:
                    best = cost, point, box
        if best is None or (best[0] >= _BAD and not must):
            text.remove()
            return False
        _, text.xy, box = best
        x, y = self._place(*text.xy)
        text.set_position(((box.left - x) / self._pixels, (box.low - y) / self._pixels))
        self.words.append(box)
        return True

    def _place(self, x: float, y: float) -> tuple[float, float]:
        """Convert a point of the axes to pixels."""
        found = self._axes.transData.transform((x, y))
        return float(found[0]), float(found[1])

    def _around(self, x: float, y: float, wide: float, high: float) -> Iterable[tuple[Box, float]]:
        """Yield the possible boxes of a label, each with the cost of its distance."""
        for order, (right, up) in enumerate(_DIRECTIONS):
            for points in _DISTANCES:
                away = points * self._pixels
                left = x + right * (wide / 2 + away) - wide / 2
                low = y + up * (high / 2 + away) - high / 2
                yield Box(left, low, left + wide, low + high), points / 2 + order / 10

    def _cost(self, box: Box) -> float:
        """Return the cost of what a label would hide."""
        frame = self._frame
        inside = frame.holds(box.left, box.low) and frame.holds(box.right, box.high)
        cost = 0.0 if inside else _BAD
        cost += _BAD * sum(box.meets(other) for other in self.words)
        cost += _BAD * sum(box.holds(x, y, _DOT * self._pixels) for x, y in self._dots)
        return cost + sum(box.holds(x, y, 1.0) for x, y in self._lines)


def _between(one: tuple[float, float], other: tuple[float, float]) -> Iterable[tuple[float, float]]:
    """Return samples along a line."""
    wide, high = other[0] - one[0], other[1] - one[1]
    count = int(hypot(wide, high) / _STEP)
    return [(one[0] + wide * at / count, one[1] + high * at / count) for at in range(1, count)]
