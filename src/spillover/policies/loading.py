"""Loads policies by name: built-in ones, and those of installed packages by their entry points."""

from collections.abc import Callable, Mapping
from importlib import import_module, invalidate_caches
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spillover.deciding.guard import (
    CAUGHT,
    FixedBackfill,
    GuardedOrder,
    GuardedPlace,
    GuardedRoute,
    GuardedSize,
    GuardedWait,
    PolicyGuard,
    line_of,
    words_of,
)
from spillover.deciding.protocols import Policies
from spillover.model.policy import AXES, FALLBACK, Choice, PolicySet, choice_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Maker: TypeAlias = Callable[..., Any]
"""Creates a policy from its options; usually its class."""
GROUP: Final = "spillover.policies"
BUILT_IN: Final = {
    "order.fifo": "order:Fifo",
    "order.lifo": "order:Lifo",
    "order.priority": "order:Priority",
    "order.sjf": "order:ShortestFirst",
    "order.ljf": "order:LongestFirst",
    "order.edf": "order:EarliestDeadline",
    "order.slack": "order:LeastSlack",
    "order.fair_share": "order:FairShare",
    "backfill.strict": "backfill:Strict",
    "backfill.out_of_order": "backfill:OutOfOrder",
    "backfill.easy": "backfill:Easy",
    "backfill.conservative": "backfill:Conservative",
    "backfill.hybrid": "backfill:Hybrid",
    "wait.zero": "wait:Zero",
    "wait.never": "wait:NeverRent",
    "wait.constant": "wait:Constant",
    "wait.resource": "wait:Resource",
    "wait.runtime": "wait:Runtime",
    "wait.star": "wait:Star",
    "wait.budget": "wait:BudgetWait",
    "wait.break_even": "break_even:BreakEven",
    "wait.compute": "wait:Compute",
    "place.first_fit": "place:FirstFit",
    "place.best_fit": "place:BestFit",
    "place.worst_fit": "place:WorstFit",
    "place.spread": "place:SpreadOut",
    "place.pack": "place:Pack",
    "place.first": "place:FirstFit",
    "place.locality": "place:Locality",
    "place.low": "place:Low",
    "place.high": "place:High",
    "route.least_loaded": "route:LeastLoaded",
    "route.round_robin": "route:RoundRobin",
    "route.power_of_two": "route:PowerOfTwo",
    "route.biased": "route:Biased",
    "size.largest": "size:Largest",
    "size.smallest": "size:Smallest",
    "size.share": "size:Share",
}
"""Module of this package and class; listed here, because reading entry points takes longer than a short simulation."""
COMMON_WAIT_OPTIONS: Final = ("min_wait", "max_wait", "max_queue", "rent_cpu_only", "short_job_threshold")
"""Options that combine with every wait policy."""


class UnknownPolicy(ValueError):
    """There is no policy of that name, or it does not accept these options. The message says what to use."""

    def __init__(self, axis: str, message: str) -> None:
        super().__init__(message)
        self.axis = axis


def known(axis: str) -> list[str]:
    """Return the names of the policies of an axis."""
    names = {*BUILT_IN, *(point.name for point in _points())}
    return sorted(name.partition(".")[2] for name in names if name.startswith(f"{axis}."))


def load(chosen: PolicySet, more: Mapping[str, Maker] | None = None) -> Policies:
    """Create the chosen policies; raise UnknownPolicy for the first one that fails.

    `more` has policies under test that are not installed, such as `{"wait.half": Half}`.
    """
    return _together(chosen, {axis: _make(axis, choice_of(chosen, axis), more or {}) for axis in AXES}, {})


def load_surely(chosen: PolicySet, more: Mapping[str, Maker] | None = None) -> Policies:
    """Create the chosen policies, with the fallback for those that fail: a journal may name removed policies."""
    made: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for axis in AXES:
        try:
            made[axis] = _make(axis, choice_of(chosen, axis), more or {})
        except UnknownPolicy as error:
            missing[axis] = str(error)
            made[axis] = _make(axis, choice_of(FALLBACK, axis), {})
    return _together(chosen, made, missing)


def _together(chosen: PolicySet, made: dict[str, Any], missing: dict[str, str]) -> Policies:
    """Combine one policy for each axis with the limits of waits."""
    common: dict[str, Any] = {
        name: value
        for name, value in chosen.wait.options.items()
        if name in COMMON_WAIT_OPTIONS and "wait" not in missing
    }
    if hasattr(made["order"], "unknown_runtime"):
        made["order"].unknown_runtime = chosen.unknown_runtime
    guards = tuple(policy for policy in made.values() if isinstance(policy, PolicyGuard))
    return Policies(chosen, **made, **common, guards=guards, missing=missing)


def _make(axis: str, choice: Choice, more: Mapping[str, Maker]) -> Any:
    """Create one policy with its options; guard it if it is not built in."""
    name = f"{axis}.{choice.name}"
    own = {
        option: value
        for option, value in choice.options.items()
        if axis != "wait" or option not in COMMON_WAIT_OPTIONS
    }
    if name in BUILT_IN:
        module, _, made = BUILT_IN[name].partition(":")
        try:
            return getattr(import_module(f"spillover.policies.{module}"), made)(**own)
        except (TypeError, ValueError) as error:
            raise UnknownPolicy(
                axis, f"policy {axis}: {choice.name} does not take these options: {error}"
            ) from error
    return _guarded(axis, choice.name, own, more.get(name))


def _guarded(axis: str, name: str, options: dict[str, Any], maker: Maker | None) -> Any:
    """Create and guard a policy of `maker`, or of an installed package."""
    policy = f"policy {axis}: {name}"
    try:
        maker = maker or _installed(f"{axis}.{name}")
    except CAUGHT as error:
        raise UnknownPolicy(axis, f"{policy} cannot be loaded: {line_of(error)}") from error
    if maker is None:
        there = ", ".join(known(axis))
        raise UnknownPolicy(axis, f"there is no {axis} policy {name!r}; known: {there}")
    if problem := _options_problem(maker, options):
        raise UnknownPolicy(axis, f"{policy} {problem}")
    try:
        made = maker(**options)
    except CAUGHT as error:
        raise UnknownPolicy(axis, f"{policy}: {words_of(error)}") from error
    try:
        if not all(callable(getattr(made, method)) for method in _METHODS[axis]):
            raise TypeError(f"{_METHODS[axis][0]} is not a method")
        return FixedBackfill(made) if axis == "backfill" else _GUARDS[axis](name, made)
    except CAUGHT as error:
        raise UnknownPolicy(axis, f"{policy} cannot be created: {line_of(error)}") from error


def _options_problem(maker: Maker, options: dict[str, Any]) -> str:
    """Return what is wrong with the names of options, by the signature of `maker`; empty if nothing, or if unknown."""
    import difflib  # noqa: PLC0415 - slow to import, and only for policies of packages
    import inspect  # noqa: PLC0415 - slow to import, and only for policies of packages

    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return ""
    takes = [one.name for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
    strange = [name for name in options if name not in takes]
    if strange and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        close = difflib.get_close_matches(strange[0], takes, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return (
            f"does not take these options: {', '.join(strange)}; it takes {', '.join(takes) or 'none'}{hint}"
        )
    needs = [
        one.name
        for one in parameters
        if one.name in takes and one.default is one.empty and one.name not in options
    ]
    return f"needs these options: {', '.join(needs)}" if needs else ""


def _installed(name: str) -> Maker | None:
    """Import the policy of an installed package; None if there is none. Raise what its import raises."""
    point = next((point for point in _points() if point.name == name), None)
    if point is None:
        return None
    invalidate_caches()  # it may have been installed while the server runs
    maker: Maker = point.load()
    return maker


_METHODS: Final[dict[str, tuple[str, ...]]] = {
    "order": ("key",),
    "backfill": (),
    "wait": ("wait",),
    "place": ("score",),
    "route": ("pick",),
    "size": ("most",),
}
"""Methods that a policy of each axis must have."""
_GUARDS: Final[dict[str, type[GuardedOrder | GuardedWait | GuardedPlace | GuardedRoute | GuardedSize]]] = {
    "order": GuardedOrder,
    "wait": GuardedWait,
    "place": GuardedPlace,
    "route": GuardedRoute,
    "size": GuardedSize,
}


def _points() -> "tuple[EntryPoint, ...]":
    """Return the entry points of installed packages."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and seldom needed

    return tuple(entry_points(group=GROUP))
