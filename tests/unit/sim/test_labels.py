"""Words in a picture hide neither points nor each other."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from spillover.sim.reports.labels import Labels

CURVES = [[(at + number / 9, 10 / (1 + at) + number / 20) for at in range(8)] for number in range(5)]


def labels_of(curves: list[list[tuple[float, float]]]) -> Labels:
    figure = Figure(figsize=(8.4, 5.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve in curves:
        axes.plot(*zip(*curve, strict=True))
    figure.draw_without_rendering()
    return Labels(axes, curves)


def test_the_ends_of_five_curves_that_lie_side_by_side_do_not_overlap() -> None:
    labels = labels_of(CURVES)
    put = [labels.add(f"{point[0]:.2f}h", [point], must=False) for curve in CURVES for point in curve[::7]]
    assert sum(put) == len(labels.words) >= 6
    assert not any(one.meets(other) for one, other in combinations(labels.words, 2))


def test_a_name_stands_where_there_is_room_and_a_word_without_room_is_left_out_unless_it_must_be_there() -> (
    None
):
    crowd = [(5 + at / 40, 5 + other / 40) for at in range(-40, 40) for other in range(-40, 40)]
    labels = labels_of([[point] for point in [*crowd, (0.0, 0.0), (10.0, 10.0)]])
    assert labels.add("name", [(5.0, 5.0), (0.0, 0.0)], must=True)
    (name,) = labels.words
    assert not labels.add("word", [(5.0, 5.0)], must=False)
    assert labels.add("word", [(5.0, 5.0)], must=True)
    _, word = labels.words
    assert name.right < word.left
