"""Which variables of a container the client of its engine would obey itself.

Values of the others reach the container through the environment of the client. These have to go on its command line.
"""

from typing import Final

ENGINE_ENV: Final = ("CONTAINER", "DOCKER_", "PODMAN_", "REGISTRY_", "STORAGE_", "XDG_")
"""Prefixes of variables that configure the client of an engine."""
_STEERING: Final = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
)
_PREFIXES: Final = (*ENGINE_ENV, "LD_", "LC_", "SPILL_")


def steers(variable: str) -> bool:
    """Return whether the client itself would obey a variable, so that it must go on the command line."""
    return variable in _STEERING or variable.startswith(_PREFIXES)
