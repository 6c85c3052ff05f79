"""Deterministic draws: the same seed gives the same numbers on every machine."""

from typing import Final

_MASK: Final = (1 << 64) - 1


def mixed(seed: int, number: int = 0) -> int:
    """Return 64 pseudo-random bits for draw `number` of a seed (splitmix64)."""
    bits = (seed * 0xD1342543DE82EF95 + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def two_of(count: int, bits: int) -> tuple[int, int]:
    """Draw two different numbers below `count` from 64 bits; both are 0 if `count` is below 2."""
    if count < 2:
        return 0, 0
    first, second = (bits >> 32) % count, (bits & 0xFFFFFFFF) % (count - 1)
    return first, second + (second >= first)
