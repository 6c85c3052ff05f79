"""Calls Python functions on the cluster: once, and for each of many items. Run it in the folder of `spill up`."""

import random

from spillover import Client


def inside(points: int) -> int:
    """Return how many of some random points of a square are inside its circle."""
    dice = random.Random()  # noqa: S311 - nothing here is secret
    return sum(dice.random() ** 2 + dice.random() ** 2 <= 1 for _ in range(points))


with Client() as spill:
    call = spill.call(sum, [1, 2, 3])
    print("1 + 2 + 3 =", call.result(timeout=60))

    points, tasks = 20_000, 20
    counts = spill.map(inside, [points] * tasks, options={"name": "pi", "walltime": "1m"})
    print(f"pi is about {4 * sum(counts) / (points * tasks):.2f}")

    failing = spill.call(int, "three").exception(timeout=60)
    print("and this was raised there:", repr(failing))
