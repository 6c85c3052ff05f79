"""Plots a sweep: cost of rented capacity against completion time, with dominated points in grey."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from spillover.forms.problems import BadForm, FormProblem
from spillover.sim.reports.labels import Labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

FORMATS: Final = (".svg", ".png")
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours that colour-blind people can distinguish."""
_GREY: Final = "#b8b8b8"
_BEATEN: Final = "#8a8a8a"
"""A grey that is still readable."""
_INK: Final = "#404040"
_MOST_LETTERS: Final = 112
"""Letters of the title that fit on a line."""
MOST_NAMES: Final = 3
"""Largest number of curves with names beside them; more get a legend below."""


class Dot(Struct, frozen=True):
    """One point of the plot."""

    cost: float
    hours: float
    """Mean hours from submission to end."""
    label: str
    """Its value on the curve, such as `1h`."""
    beaten: bool
    """Whether another point is better in both dimensions."""
    known: str = ""
    """What its policy knew of runtimes, if points differ in that; only points that knew the same are compared."""


class Curve(Struct, frozen=True):
    """The points of one sweep, in order."""

    name: str
    dots: Sequence[Dot]


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be written, before hours of simulation."""
    if path.suffix.lower() not in FORMATS:
        raise BadForm([FormProblem("--plot", None, "", f"{path.name} is neither .svg nor .png")])
    if not path.absolute().parent.is_dir():
        raise BadForm([FormProblem("--plot", None, "", f"folder {path.parent} does not exist")])
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 - heavy and optional
    except ImportError:
        advice = "--plot needs matplotlib; install it with: pip install 'spillover[plot]'"
        raise BadForm([FormProblem("--plot", None, "", advice)]) from None


class Origin(NamedTuple):
    """What all points are compared with, in words."""

    label: str = "no waiting"
    than: str = "without waiting"


def draw(
    path: Path,
    curves: Sequence[Curve],
    zero: Dot,
    title: str,
    currency: str = "USD",
    origin: Origin = Origin(),  # noqa: B008 - it never changes
) -> None:
    """Write the plot; `currency` is that of the costs, empty if unknown, and `zero` what all points are compared with."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy and optional
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - likewise
    from matplotlib.figure import Figure  # noqa: PLC0415 - likewise
    from matplotlib.lines import Line2D  # noqa: PLC0415 - likewise

    settings: Any = {
        "font.size": 9,
        "svg.hashsalt": "spillover",  # makes equal plots equal files
        "svg.fonttype": "none",
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "text.color": _INK,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8.4, 5.2), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        dots = [zero, *(dot for curve in curves for dot in curve.dots)]
        _frontier(axes, dots)
        for number, curve in enumerate(curves):
            _curve(axes, curve, _colour(number))
        _zero(axes, zero)
        remark = _frame(axes, zero, title, currency, origin.than)
        if len(curves) > MOST_NAMES:
            handles = [
                Line2D(
                    [], [], color=_colour(number), marker="o", markersize=5, linewidth=0.9, label=curve.name
                )
                for number, curve in enumerate(curves)
            ]
            figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
        figure.draw_without_rendering()  # the layout is known only then
        lines = [[(dot.cost, dot.hours) for dot in curve.dots] for curve in curves]
        labels = Labels(axes, [*lines, [(zero.cost, zero.hours)]])
        labels.keep_free(remark)
        _words(labels, curves, zero, origin.label, names=len(curves) <= MOST_NAMES)
        kind = path.suffix.lower()
        metadata: dict[str, Any] = {"Date": None} if kind == ".svg" else {"Software": None}
        figure.savefig(path, format=kind[1:], metadata=metadata)


def _frontier(axes: "Axes", dots: Sequence[Dot]) -> None:
    """Draw the best achievable trade-offs as a wide pale line behind all points."""
    for known in dict.fromkeys(dot.known for dot in dots[1:] or dots):
        best = sorted(
            {
                (dot.cost, dot.hours)
                for dot in (dots[0], *dots)
                if not dot.beaten and dot.known in {known, dots[0].known}
            }
        )
        if len(best) > 1:
            axes.plot(
                *zip(*best, strict=True), color="#e9e2b8", linewidth=7, zorder=1, solid_capstyle="round"
            )


def _curve(axes: "Axes", curve: Curve, colour: str) -> None:
    """Draw a thin line through all points of a sweep."""
    costs, hours = [dot.cost for dot in curve.dots], [dot.hours for dot in curve.dots]
    axes.plot(costs, hours, color=colour, linewidth=0.9, alpha=0.55, zorder=2)
    for beaten, fill, order in ((True, _GREY, 3), (False, colour, 4)):
        some = [dot for dot in curve.dots if dot.beaten is beaten]
        axes.scatter(
            [dot.cost for dot in some],
            [dot.hours for dot in some],
            s=26 if beaten else 34,
            color=fill,
            edgecolor="white",
            linewidth=0.6,
            zorder=order,
        )


def _words(labels: Labels, curves: Sequence[Curve], zero: Dot, label: str, *, names: bool) -> None:
    """Label the curves if there are few, and the ends of each curve."""
    labels.add(label, [(zero.cost, zero.hours)], must=True, fontsize=8, fontweight="bold")
    for number, curve in enumerate(curves):
        if names:
            at = [(dot.cost, dot.hours) for dot in _from_middle(curve.dots)]
            labels.add(curve.name, at, must=True, fontsize=9, fontweight="bold", color=_colour(number))
    for number, curve in enumerate(curves):
        for dot in dict.fromkeys((curve.dots[0], curve.dots[-1])):
            if dot.label:
                colour = _BEATEN if dot.beaten else _colour(number)
                labels.add(dot.label, [(dot.cost, dot.hours)], must=False, fontsize=7, color=colour)


def _from_middle(dots: Sequence[Dot]) -> list[Dot]:
    """Return the dots ordered by their distance from the middle of the curve."""
    middle = len(dots) // 2
    return [dots[at] for at in sorted(range(len(dots)), key=lambda at: abs(at - middle))]


def _colour(number: int) -> str:
    """Return the colour of a curve."""
    return _COLOURS[number % len(_COLOURS)]


def _zero(axes: "Axes", zero: Dot) -> None:
    """Draw the point without waiting."""
    axes.scatter(
        [zero.cost], [zero.hours], marker="D", s=36, color=_INK, edgecolor="white", linewidth=0.6, zorder=5
    )


def _frame(axes: "Axes", zero: Dot, title: str, currency: str, than: str) -> "Text":
    """Draw axes with units, and opposite axes in percent relative to `zero`; return the remark in the corner."""
    axes.set_xlabel("cost of rented capacity" + (f", {currency}" if currency else ""))
    axes.set_ylabel("mean completion time, hours from submission to end")
    lines = [line for part in title.split("\n") for line in wrap(part, _MOST_LETTERS)]
    axes.set_title("\n".join(lines), loc="left", fontsize=9, pad=10)
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.margins(0.1, 0.14)
    remark = axes.text(
        0.01,
        0.02,
        "grey: another point costs less and completes sooner",
        transform=axes.transAxes,
        fontsize=7,
        color="#909090",
    )
    axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
    axes.grid(visible=True, color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if zero.cost > 0:
        top = axes.secondary_xaxis("top", functions=_percent(zero.cost, -1))
        top.set_xlabel("cost saved, %", fontsize=8)
        top.tick_params(labelsize=7)
    if zero.hours > 0:
        right = axes.secondary_yaxis("right", functions=_percent(zero.hours, 1))
        right.set_ylabel(f"longer than {than}, %", fontsize=8)
        right.tick_params(labelsize=7)
    return remark


def _percent(of: float, sign: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions that convert a value to percent above `of` (below it with sign -1), and back."""
    return lambda value: sign * 100 * (value / of - 1), lambda percent: (1 + sign * percent / 100) * of
