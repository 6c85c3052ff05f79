"""Policies by name: built-in ones and those of installed packages, found by entry point."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from spillover.deciding.protocols import Policies
from spillover.model.policy import Choice, PolicySet

GROUP = "spillover.policies"
COMMON_WAIT_OPTIONS = ("min_wait", "max_wait", "max_queue")
"""Options that combine with every wait policy."""


class UnknownPolicy(ValueError):
    """There is no policy of that name, or it does not take these options; the message says what there is."""


def known(axis: str) -> list[str]:
    """Names of the policies of an axis."""
    return sorted(point.name.partition(".")[2] for point in _points() if point.name.startswith(f"{axis}."))


def load(chosen: PolicySet) -> Policies:
    """Make the chosen policies."""
    common: dict[str, Any] = {
        name: value for name, value in chosen.wait.options.items() if name in COMMON_WAIT_OPTIONS
    }
    own = {name: value for name, value in chosen.wait.options.items() if name not in common}
    return Policies(
        chosen=chosen,
        order=_make("order", chosen.order),
        backfill=_make("backfill", chosen.backfill),
        wait=_make("wait", Choice(chosen.wait.name, own)),
        place=_make("place", chosen.place),
        **common,
    )


def _make(axis: str, choice: Choice) -> Any:
    for point in _points():
        if point.name == f"{axis}.{choice.name}":
            try:
                return point.load()(**choice.options)
            except TypeError as error:
                raise UnknownPolicy(
                    f"policy {axis}: {choice.name} does not take these options: {error}"
                ) from error
    raise UnknownPolicy(f"there is no {axis} policy {choice.name!r}; known: {', '.join(known(axis))}")


def _points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))
