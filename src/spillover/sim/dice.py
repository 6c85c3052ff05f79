"""Makes random generators for simulations, one for each purpose, so that draws for one do not change another."""

from random import Random


def dice_of(seed: int, purpose: str) -> Random:
    """Return a generator that gives the same numbers for the same seed and purpose."""
    return Random(f"{seed} {purpose}")  # noqa: S311 - a study must be repeatable, not secret
