"""Reports installed policies that failed; the simulation continues without them, so its numbers are not valid."""

from collections.abc import Iterable

from msgspec import Struct

from spillover.deciding.protocols import Guarded


class JobFailure(Struct, frozen=True):
    """A policy that raised an error or returned an invalid answer."""

    axis: str
    name: str
    count: int
    """Number of failures."""
    error: str
    """The last error, in one line."""


def failures_of(guards: Iterable[Guarded]) -> tuple[JobFailure, ...]:
    """Sum up failures; a policy that was loaded several times counts as one."""
    found: dict[tuple[str, str], JobFailure] = {}
    for guard in guards:
        if guard.failures:
            before = found.get((guard.axis, guard.name))
            count = guard.failures + (before.count if before else 0)
            found[guard.axis, guard.name] = JobFailure(guard.axis, guard.name, count, guard.error)
    return tuple(found.values())


def told_of(failures: Iterable[JobFailure]) -> str:
    """Describe failures in one line."""
    return ", ".join(
        f"{one.axis}={one.name} failed {'once' if one.count == 1 else f'{one.count:,} times'} ({one.error})"
        for one in failures
    )
