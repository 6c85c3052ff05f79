"""Dice of simulations: each purpose has its own, so that what is drawn for one does not change another."""

from random import Random


def dice_of(seed: int, purpose: str) -> Random:
    """Dice that fall the same way for the same seed and purpose."""
    return Random(f"{seed} {purpose}")  # noqa: S311 - a study has to be repeatable, not secret
