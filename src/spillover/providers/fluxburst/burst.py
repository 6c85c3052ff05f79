"""Calls one plugin of flux-burst, as a process of its own: plugins block for minutes, print, and exit.

`python -m spillover.providers.fluxburst.burst create|cleanup FOLDER` reads the order from the folder, and writes what became
of it there. `describe PLUGIN` prints the parameters of a plugin. A plugin hides most of its failures, and has no call for the
state of a cluster. So what it logs as a warning counts as a failure when a cluster is removed, and only an agent that joins
proves that one was made.
"""

import dataclasses
import importlib
import inspect
import logging
import os
import sys
import tempfile
import typing
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

PREFIX: Final = "fluxburst_"
ORDER: Final = "burst.json"
CREATED: Final = "created.json"
CLEANED: Final = "cleaned.json"
MOST_WHY: Final = 300
"""Characters of a reason."""
_GONE: Final = ("404", "not found", "notfound", "does not exist", "no cluster found")
"""Words in errors of a cloud that has no such cluster."""


class Burst(Struct, frozen=True):
    """An order for a plugin, as its file has it."""

    plugin: str
    """Name without the prefix."""
    params: dict[str, Any]
    """Fields of its dataclass of parameters."""
    cluster: str
    """Name of the cluster that it makes."""
    job: dict[str, Any]
    """What the plugin takes for a job of Flux: it starts an agent."""


class Became(Struct, frozen=True):
    """What became of a call, as far as the plugin says."""

    phase: str
    """`preparing`: nothing was made; `refused`: nor will be; `calling`; `done`; `failed`."""
    why: str = ""
    clusters: tuple[str, ...] = ()
    """Those that the plugin knows afterwards."""


class Described(Struct, frozen=True):
    """The parameters of a plugin."""

    params: dict[str, tuple[str, ...]] = {}
    """Names of their types; empty for any."""
    required: tuple[str, ...] = ()
    problem: str = ""
    """Why the plugin cannot be used; empty if it can."""


class Heard(logging.Handler):
    """Keeps what a plugin logs as a warning, with the error that it handles at that moment."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        error = sys.exc_info()[1]
        self.said.append(record.getMessage() + (f": {_line(error)}" if error is not None else ""))


def params_of(plugin: str) -> type[Any]:
    """Return the dataclass of the parameters of a plugin; raise what importing it raises, and LookupError."""
    name = f"{PREFIX}{plugin}"
    top = importlib.import_module(name)
    inner = f"{name}.plugin"
    has_inner = hasattr(top, "__path__") and find_spec(inner) is not None
    module = importlib.import_module(inner) if has_inner else top
    for each in vars(module).values():
        if inspect.isclass(each) and each.__module__ == module.__name__ and hasattr(each, "_param_dataclass"):
            form: type[Any] = each._param_dataclass  # noqa: SLF001 - that is where plugins have it
            return form
    raise LookupError(f"{name} has no class with _param_dataclass")


def described(plugin: str) -> Described:
    """Return the parameters of a plugin, or why it cannot be used."""
    try:
        form = params_of(plugin)
        hints = typing.get_type_hints(form)
        fields = dataclasses.fields(form)
    except BaseException as error:  # noqa: BLE001 - foreign code, which may also exit
        return Described(problem=_line(error))
    required = [
        each.name
        for each in fields
        if each.init and dataclasses.MISSING is each.default and dataclasses.MISSING is each.default_factory
    ]
    return Described({each.name: _types(hints.get(each.name)) for each in fields}, tuple(required))


def opened(burst: Burst) -> Any:
    """Return a plugin with its parameters; raise whatever it raises."""
    plugin = importlib.import_module(f"{PREFIX}{burst.plugin}").init(params_of(burst.plugin)(**burst.params))
    plugin.name = burst.plugin
    return plugin


def create(folder: Path, heard: Heard) -> None:
    """Let a plugin make the cluster of a machine."""
    burst = _read(folder)
    write(folder / CREATED, Became("preparing"))
    try:
        plugin = opened(burst)
        sound = not hasattr(plugin, "validate") or plugin.validate()
        if not sound or not plugin.schedule(burst.job):
            write(folder / CREATED, Became("refused", _last(heard) or "the plugin does not take the order"))
            return
    except BaseException as error:  # noqa: BLE001 - foreign code, which may also exit
        write(folder / CREATED, Became("refused", _line(error)))
        return
    write(folder / CREATED, Became("calling"))
    why, phase = "", "done"
    try:
        plugin.run(request_burst=False, nodes=1, tasks=1)
    except BaseException as error:  # noqa: BLE001 - foreign code, which may also exit
        phase, why = "failed", _line(error)
    clusters = tuple(map(str, plugin.clusters))
    if not clusters:
        phase = "failed"
    write(folder / CREATED, Became(phase, why or _last(heard), clusters))


def cleanup(folder: Path, heard: Heard) -> None:
    """Let a plugin remove the cluster of a machine."""
    burst = _read(folder)
    try:
        plugin = opened(burst)
        # A plugin removes only clusters that it knows, and this instance of it has made none.
        plugin.clusters[burst.cluster] = None
        plugin.cleanup(burst.cluster)
        failures = heard.said
    except BaseException as error:  # noqa: BLE001 - foreign code, which may also exit
        failures = [_line(error)]
    left = [each for each in failures if not any(word in each.lower() for word in _GONE)]
    write(folder / CLEANED, Became("failed", left[-1][:MOST_WHY]) if left else Became("done"))


def write(path: Path, content: Struct) -> None:
    """Replace a private file durably."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def _read(folder: Path) -> Burst:
    return msgspec.json.decode((folder / ORDER).read_bytes(), type=Burst)


def _last(heard: Heard) -> str:
    """Return the last warning."""
    return " ".join(heard.said[-1].split())[:MOST_WHY] if heard.said else ""


def _line(error: BaseException | None) -> str:
    """Return an error in one line."""
    if isinstance(error, SystemExit):
        return f"the plugin exited with {error.code}"
    return " ".join(f"{type(error).__name__}: {error}".split())[:MOST_WHY]


def _types(hint: Any) -> tuple[str, ...]:
    """Return the names of the plain types that a field takes; empty for any."""
    parts = typing.get_args(hint) if typing.get_origin(hint) is typing.Union else (hint,)
    names = [part.__name__ for part in parts if part in {str, int, float, bool}]
    plain = len(names) == len([part for part in parts if part is not type(None)])
    return tuple(names) if plain else ()


def main(action: str, what: str) -> None:
    """Carry out one call."""
    if action == "describe":
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)  # what a plugin prints when it is imported
        answer = msgspec.json.encode(described(what))
        os.write(kept, answer)
        return
    heard = Heard()
    logging.getLogger().addHandler(heard)
    calls: Mapping[str, Any] = {"create": create, "cleanup": cleanup}
    calls[action](Path(what), heard)


if __name__ == "__main__":
    main(*sys.argv[1:])
