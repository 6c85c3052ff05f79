"""Loads runners by name: the built-in ones, and those of installed packages by entry point."""

import logging
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from spillover.agent.runners.port import Runner, RunnerContext

GROUP: Final = "spillover.runners"
BUILT_IN: Final = {
    "python": "python:PythonCalls",
    "container": "containers:Containers",
}
"""Module in this package, and class."""

log = logging.getLogger("spillover.agent")


def load(context: RunnerContext) -> list[Runner]:
    """Create all runners, installed ones first; skip and log those that fail."""
    makers: dict[str, Callable[[], Any]] = {point.name: point.load for point in _points()}
    runners: list[Runner] = []
    for name, maker in [*makers.items(), *_built_in(without=makers)]:
        try:
            runner: Runner = maker()(context)
        except Exception as error:  # noqa: BLE001 - a plugin must not stop the agent
            log.error("runner %s cannot be used: %s: %s", name, type(error).__name__, error)  # noqa: TRY400 - one line
            continue
        missing = [part for part in _PARTS if not hasattr(runner, part)]
        if missing:
            log.error("runner %s cannot be used: it has no %s", name, ", ".join(missing))
            continue
        runners.append(runner)
    return runners


_PARTS: Final = ("kinds", "offer", "open", "start", "recall", "signal", "name_output", "close")


def _points() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _built_in(without: dict[str, Callable[[], Any]]) -> list[tuple[str, Callable[[], Any]]]:
    """Return the built-in runners that no installed one of the same name replaces."""
    return [(name, _finder(where)) for name, where in BUILT_IN.items() if name not in without]


def _finder(where: str) -> Callable[[], Any]:
    """Return a function that imports a built-in runner."""
    module, _, made = where.partition(":")
    return lambda: getattr(import_module(f"spillover.agent.runners.{module}"), made)
