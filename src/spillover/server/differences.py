"""Says how the clusters, budgets and queues of a configuration differ from those in use, with old and new values."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import structs

from spillover.model.budget import Budget
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price
from spillover.model.queues import QueueSpec
from spillover.model.units import MONEY, write_duration
from spillover.wire.api import ConfigChange

MOST_VALUE: Final = 60
"""Characters of the longest value that is shown; of a longer one, only the name is."""
_WRITTEN: Final = {"most": "limits", "most_jobs": "limits.jobs"}
"""Names in the configuration file of fields that have another name there."""
_DURATIONS: Final = frozenset({"billing.step", "billing.minimum", "startup"})


def cluster_differences(before: ClusterSpec, after: ClusterSpec) -> list[str]:
    """Return one text for each setting that differs, such as `price.cpu_hour: 0.04 -> 0.05`."""
    return [_difference(*each) for each in _changed(before, after)]


def _changed(
    before: ClusterSpec | Price | Billing, after: ClusterSpec | Price | Billing, prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old value and new value of each setting that differs."""
    for field in structs.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        name = prefix + _WRITTEN.get(field.name, field.name)
        if old == new:
            continue
        if isinstance(old, Price | Billing):
            yield from _changed(old, new, f"{name}.")
        else:
            yield name, old, new


def _difference(name: str, old: object, new: object) -> str:
    texts = _value(name, old), _value(name, new)
    return name if max(map(len, texts)) > MOST_VALUE else f"{name}: {' -> '.join(texts)}"


def _value(name: str, value: object) -> str:
    """Write a value as in the configuration file."""
    match value:
        case None | "" | ():
            return "all" if name == "runs" else "none"
        case bool():
            return str(value).lower()
        case int() if name in _DURATIONS:
            return write_duration(value)
        case int() if name.startswith("price."):
            return _amount(value)
        case NodeClass():
            return f"{value.name} at {_amount(value.hour)} an hour"
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items()) or "none"
        case tuple():
            return ", ".join(map(str, value))
    return str(value)


def budget_differences(before: Iterable[Budget], after: Iterable[Budget]) -> list[ConfigChange]:
    """Return a change for each budget that is new, gone or has another limit."""
    old, new = ({_whose(each): _amount(each.limit) for each in budgets} for budgets in (before, after))
    changes: list[ConfigChange] = []
    for whose, limit in new.items():
        if whose not in old:
            changes.append(ConfigChange("budgets", "added", f"{whose}: {limit}"))
        elif old[whose] != limit:
            changes.append(ConfigChange("budgets", "changed", f"{whose}: {old[whose]} -> {limit}"))
    gone = [ConfigChange("budgets", "removed", f"{whose}: {old[whose]}") for whose in old if whose not in new]
    return changes + gone


def queue_differences(before: Iterable[QueueSpec], after: Iterable[QueueSpec]) -> list[ConfigChange]:
    """Return a change for each queue that is new, gone or has other settings, which are named."""
    old, new = ({each.name: each for each in queues} for queues in (before, after))
    changes: list[ConfigChange] = []
    for name, queue in new.items():
        what = f"queue {name}"
        if name not in old:
            changes.append(ConfigChange(what, "added", queue.description))
        elif old[name] != queue:
            fields = [field.name for field in structs.fields(queue)]
            differing = [each for each in fields if getattr(old[name], each) != getattr(queue, each)]
            told = ", ".join(_QUEUE.get(each, each) for each in differing)
            changes.append(ConfigChange(what, "changed", told))
    gone = [ConfigChange(f"queue {name}", "removed", _GONE) for name in old if name not in new]
    if [*old] != [*new] and set(old) == set(new):
        changes.append(ConfigChange("queues", "changed", "their order"))
    return changes + gone


_QUEUE: Final = {"total": "limits", "each": "user_limits"}
"""Names in the configuration file of fields that have another name there."""
_GONE: Final = "its jobs stay in it without limits"


def _whose(budget: Budget) -> str:
    return f"{budget.of} {budget.name} per {budget.per}"


def _amount(millionths: int) -> str:
    """Write an amount of money with as many digits as it needs, because prices are often small."""
    whole, rest = divmod(millionths, MONEY)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")
