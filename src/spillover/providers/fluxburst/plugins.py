"""Plugins of flux-burst on this machine: which there are, what they take, and which cannot make machines for us."""

import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from spillover.forms.problems import shown
from spillover.model.bounds import plain
from spillover.ports.kinds import Flaw
from spillover.providers.fluxburst.burst import PREFIX, Described

MODULE: Final = "spillover.providers.fluxburst.burst"
OWN_PARAMS: Final = ("cluster_name", "isolated_burst")
"""Parameters that Spillover sets for each machine."""
NEED_FLUX: Final = {
    "local": "fluxburst_local needs a Flux instance on this machine, which it extends; use the provider process",
    "compute_engine": "fluxburst_compute_engine needs a Flux instance: its machines start brokers and no agent; "
    "use the provider gce",
}
"""Plugins whose machines cannot start an agent, and what to use in place of them."""
CREDENTIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "gke": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "eks": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
}
"""Environment variables without which plugins refuse every job."""
PATIENCE: Final = 60.0
"""Seconds to import a plugin with its libraries."""
_TYPES: Final[Mapping[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}


def there() -> list[str]:
    """Return the names of installed plugins, without the prefix."""
    return sorted(
        each.name.removeprefix(PREFIX) for each in pkgutil.iter_modules() if each.name.startswith(PREFIX)
    )


def words(action: str, what: str) -> list[str]:
    """Return the command that calls a plugin in a process of its own."""
    return [sys.executable, "-P", "-m", MODULE, action, what]


def variables(environ: Mapping[str, str], ours: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the environment for a plugin. Variables FLUXBURST_* replace parameters, but not those that are ours."""
    kept = {
        key: value
        for key, value in environ.items()
        if not (key.startswith("FLUXBURST_") and key.removeprefix("FLUXBURST_").lower() in ours)
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def describe(plugin: str, environ: Mapping[str, str]) -> Described:
    """Return the parameters of a plugin, or why it cannot be used; imports it in a process of its own."""
    try:
        ended = subprocess.run(
            words("describe", plugin),
            env=variables(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        return msgspec.json.decode(ended.stdout, type=Described)
    except subprocess.TimeoutExpired:
        return Described(problem=f"importing it took longer than {PATIENCE:.0f} s")
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError) as error:
        return Described(problem=plain(str(error)))


def why_unknown(plugin: str) -> str:
    """Return in one line that there is no such plugin, which there are, and what to install."""
    names = ", ".join(there()) or "none"
    known = plugin if plugin.isidentifier() else "NAME"
    return (
        f"{shown(plugin)} is not an installed plugin of flux-burst; there are {names}; "
        f"run: pip install flux-burst-{known.replace('_', '-')}"
    )


def missing_credentials(plugin: str, environ: Mapping[str, str]) -> list[str]:
    """Return the variables that a plugin reads its credentials from and that are not set, one line each."""
    return [
        f"{name} is not set in the environment of the server, where {PREFIX}{plugin} looks for its credentials; set it"
        for name in CREDENTIALS.get(plugin, ())
        if not environ.get(name)
    ]


def param_flaws(params: Mapping[str, Any], plugin: str, found: Described) -> Iterator[Flaw]:
    """Return what is wrong with the parameters of a plugin."""
    for name, value in params.items():
        types = found.params.get(name)
        if name in OWN_PARAMS:
            yield Flaw(("params", name), "is set by Spillover; leave it out")
        elif types is None:
            names = ", ".join(each for each in found.params if each not in OWN_PARAMS) or "none"
            yield Flaw(("params", name), f"is not a parameter of {PREFIX}{plugin}; there are {names}")
        elif types and value is not None and type(value) not in {_TYPES[each] for each in types}:
            yield Flaw(("params", name), f"{shown(value)} is not of type {' or '.join(types)}")
    for name in found.required:
        if name not in params and name not in OWN_PARAMS:
            yield Flaw(
                ("params",),
                f"{name} is missing, which {PREFIX}{plugin} requires; write params: {{{name}: ...}}",
            )
