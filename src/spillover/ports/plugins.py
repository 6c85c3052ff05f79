"""Loads plugins that have a form in spill.yaml: kinds of clusters, and providers of machines.

A package names its plugins by entry points. Each is checked here before anybody uses it, because it is foreign code.
"""

from collections.abc import Sequence
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
from msgspec import Struct


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of a group in installed packages, by name."""
    return sorted(entry_points(group=group), key=lambda point: (point.name, point.value))


def brought(what: str, point: EntryPoint) -> str:
    """Describe a plugin and the package that provides it."""
    return f"the {what} {point.name}" + (f" of {point.dist.name}" if point.dist is not None else "")


def load_plugin(point: EntryPoint, parts: Sequence[str], base: type) -> Any:
    """Load and create a plugin that has these parts, its name and a form; raise whatever is wrong with it."""
    invalidate_caches()  # the package may have been installed while the server runs
    plugin = point.load()()
    if lacking := [part for part in parts if not hasattr(plugin, part)]:
        raise TypeError(
            f"it has no {', '.join(lacking)}; derive it from {base.__module__}.{base.__qualname__}"
        )
    if plugin.name != point.name:
        raise ValueError(f"its entry point must have its name, {plugin.name!r}")
    form: object = plugin.form
    if not (isinstance(form, type) and issubclass(form, Struct)):
        raise TypeError("its form is not a msgspec.Struct")
    msgspec.json.schema(form)
    form()  # fails if the form has required fields: its settings may be left out
    return plugin
