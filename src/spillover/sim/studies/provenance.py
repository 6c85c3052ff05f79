"""Identifies the code of installed policies, so that a stored result is not reused for other code."""

import hashlib
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from spillover.model.policy import AXES, PolicySet, choice_of
from spillover.policies.loading import BUILT_IN, GROUP


def made_of(policies: PolicySet) -> str:
    """Return package, version and source digest of each policy that is not built in; empty if all are."""
    names = [f"{axis}.{choice_of(policies, axis).name}" for axis in AXES]
    own = [name for name in names if name not in BUILT_IN]
    if not own:
        return ""
    points = {point.name: point for point in reversed(tuple(entry_points(group=GROUP)))}
    return " ".join(_told(points[name]) for name in own if name in points)


def _told(point: EntryPoint) -> str:
    """Identify one policy."""
    package = f"{point.dist.name}-{point.dist.version}" if point.dist else ""
    return f"{point.name}={point.value}@{package}#{_digest(point.module)}"


def _digest(module: str) -> str:
    """Hash the whole package of a module, because the module may import from it; else the module alone."""
    spec = find_spec(module.partition(".")[0])
    digest = hashlib.blake2b(digest_size=16)
    if spec is None:
        return ""
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    for file in files or ([Path(spec.origin)] if spec.has_location and spec.origin else []):
        code = file.read_bytes()
        digest.update(f"{file.name} {len(code)} ".encode() + code)
    return digest.hexdigest()
