"""Compares two policies at equal cost, and at equal waiting time.

The coefficient of a policy gives a curve of cost against waiting. Between two simulated points, the curve is
interpolated linearly, from cost to the logarithm of the wait.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from spillover.sim.reports.statistics import Statistics

LEAST = 1e-9
"""A wait that has a logarithm, seconds."""


class Gain(NamedTuple):
    """The gain of a curve over a point, as shares; None where the curve does not reach."""

    wait: float | None
    """Less waiting at equal cost."""
    cost: float | None
    """Less cost at equal waiting, which is equal completion time."""


def gain(point: Statistics, curve: Sequence[Statistics]) -> Gain:
    """Return the gain of a curve over a point."""
    wait = wait_at(curve, point.rented_cost)
    cost = cost_at(curve, point.mean_wait_s)
    return Gain(
        None if wait is None or not point.mean_wait_s else 1 - wait / point.mean_wait_s,
        None if cost is None or not point.rented_cost else 1 - cost / point.rented_cost,
    )


def wait_at(curve: Sequence[Statistics], cost: float) -> float | None:
    """Return the mean wait in seconds where a curve has this cost."""
    points = sorted((one.rented_cost, log(one.mean_wait_s + LEAST)) for one in curve)
    found = _between(points, cost)
    return None if found is None else exp(found)


def cost_at(curve: Sequence[Statistics], wait: float) -> float | None:
    """Return the cost where jobs wait this many seconds on average."""
    points = sorted((log(one.mean_wait_s + LEAST), one.rented_cost) for one in curve)
    return _between(points, log(wait + LEAST))


def _between(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Interpolate between the two points around an abscissa; None outside."""
    for (left, low), (right, high) in pairwise(points):
        if left <= at <= right:
            share = (at - left) / (right - left) if right > left else 0.0
            return low + share * (high - low)
    return None
