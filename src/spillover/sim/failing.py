"""Policies of installed packages that failed in a simulation: it goes on without their answers, so its numbers are not theirs."""

from collections.abc import Iterable

from msgspec import Struct

from spillover.deciding.protocols import Guarded


class JobFailure(Struct, frozen=True):
    """A policy that raised, or gave what is no answer."""

    axis: str
    name: str
    count: int
    """How often it did."""
    error: str
    """What it raised last, in one line."""


def failures_of(guards: Iterable[Guarded]) -> tuple[JobFailure, ...]:
    """Those that failed; one that was made more than once counts as one."""
    found: dict[tuple[str, str], JobFailure] = {}
    for guard in guards:
        if guard.failures:
            before = found.get((guard.axis, guard.name))
            count = guard.failures + (before.count if before else 0)
            found[guard.axis, guard.name] = JobFailure(guard.axis, guard.name, count, guard.error)
    return tuple(found.values())


def told_of(failures: Iterable[JobFailure]) -> str:
    """In a line for a person."""
    return ", ".join(
        f"{one.axis}={one.name} failed {'once' if one.count == 1 else f'{one.count:,} times'} ({one.error})"
        for one in failures
    )
