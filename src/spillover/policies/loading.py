"""Policies by name: built-in ones and those of installed packages, found by entry point."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from spillover.deciding.protocols import Policies
from spillover.model.policy import Choice, PolicySet

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "spillover.policies"
BUILT_IN: Final = {
    "order.fifo": "order_fifo:Fifo",
    "order.priority": "order_priority:Priority",
    "backfill.strict": "backfill_strict:Strict",
    "backfill.out_of_order": "backfill_out_of_order:OutOfOrder",
    "wait.zero": "wait_zero:Zero",
    "wait.never": "wait_never:Never",
    "wait.constant": "wait_constant:Constant",
    "wait.star": "wait_star:Star",
    "wait.compute": "wait_compute:Compute",
    "place.first_fit": "place_first_fit:FirstFit",
    "place.best_fit": "place_best_fit:BestFit",
}
"""Module of this package and class; known without asking what is installed, which takes longer than a short simulation."""
COMMON_WAIT_OPTIONS: Final = ("min_wait", "max_wait", "max_queue", "rent_cpu_only", "short_job_threshold")
"""Options that combine with every wait policy."""


class UnknownPolicy(ValueError):
    """There is no policy of that name, or it does not take these options; the message says what there is."""


def known(axis: str) -> list[str]:
    """Names of the policies of an axis."""
    names = {*BUILT_IN, *(point.name for point in _points())}
    return sorted(name.partition(".")[2] for name in names if name.startswith(f"{axis}."))


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
    """One policy with its options."""
    made = _class_of(f"{axis}.{choice.name}")
    if made is None:
        raise UnknownPolicy(f"there is no {axis} policy {choice.name!r}; known: {', '.join(known(axis))}")
    try:
        return made(**choice.options)
    except TypeError as error:
        raise UnknownPolicy(f"policy {axis}: {choice.name} does not take these options: {error}") from error


def _class_of(name: str) -> Any:
    """The class of a policy; None if there is none."""
    if name in BUILT_IN:
        module, _, made = BUILT_IN[name].partition(":")
        return getattr(import_module(f"spillover.policies.{module}"), made)
    return next((point.load() for point in _points() if point.name == name), None)


def _points() -> "tuple[EntryPoint, ...]":
    """What installed packages bring."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and seldom needed

    return tuple(entry_points(group=GROUP))
