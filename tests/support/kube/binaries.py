"""Finds the programs of a control plane: on the machine, or in the cache that `make kube` fills.

The folder `modules` pins the versions. The name of the cache contains the release and a digest of the pins, so that
other pins use another folder, and older checkouts keep theirs.
"""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parent / "modules"
"""Go modules that only pin versions, one for each project."""
_VERSION: Final = "k8s.io/component-base/version"
"""Go package that holds the version of Kubernetes programs."""


@dataclass(frozen=True)
class Program:
    """One program, and how to build it."""

    name: str
    module: str
    """Its folder in `modules`."""
    package: str
    pinned: str
    """The module whose version is that of the program."""
    stamped: bool = False
    """Whether the linker sets its version."""

    def version(self) -> str:
        """Return the pinned version, such as v1.36.3."""
        text = (MODULES / self.module / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.pinned)} (v\S+)", text, re.MULTILINE)
        assert found is not None, f"go.mod of {self.module} does not require {self.pinned}"
        return found.group(1)

    def link_flags(self) -> str:
        """Return the linker flags: no debug tables, and the version."""
        flags = ["-s", "-w"]
        if self.stamped:
            version = self.version()
            major, minor, _ = version.removeprefix("v").split(".", 2)
            stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitCommit": ""}
            flags += [f"-X {_VERSION}.{name}={value}" for name, value in stamps.items()]
        return " ".join(flags)


def _kubernetes(name: str, module: str = "kubernetes") -> Program:
    return Program(name, module, f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", stamped=True)


CONTROL_PLANE: Final = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
)
KWOK: Final = Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok")
KUBECTL: Final = _kubernetes("kubectl", "kubectl")
"""The command-line client; it has its own pins, because it needs other modules."""
PROGRAMS: Final = (*CONTROL_PLANE, KWOK, KUBECTL)


class NotBuilt(Exception):
    """Programs are missing; the message says how to get them."""


@dataclass(frozen=True)
class Binaries:
    """Paths of all programs."""

    etcd: Path
    apiserver: Path
    controllers: Path
    scheduler: Path
    kwok: Path
    kubectl: Path


def find_binaries(environ: Mapping[str, str] = os.environ) -> Binaries:
    """Return all programs, or raise NotBuilt."""
    places = {program.name: place(program, environ) for program in PROGRAMS}
    if missing := [name for name, path in places.items() if not _runs(path)]:
        raise NotBuilt(f"{', '.join(missing)} not built yet: run make kube, once")
    return Binaries(*(places[program.name] for program in PROGRAMS))


def place(program: Program, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a program is, or will be after the build."""
    there = assets(environ)
    if there is not None and (program in CONTROL_PLANE or _runs(there / program.name)):
        return there / program.name
    return cache(environ) / program.name


def assets(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return KUBEBUILDER_ASSETS if it has a complete control plane, because releases must not be mixed."""
    folder = environ.get("KUBEBUILDER_ASSETS")
    if folder and all(_runs(Path(folder) / program.name) for program in CONTROL_PLANE):
        return Path(folder)
    return None


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for built programs."""
    home = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = environ.get("SPILL_KUBE_CACHE") or Path(home) / "spillover" / "kube"
    return Path(root) / f"{CONTROL_PLANE[1].version()}-{_digest()}"


def go_needed() -> str:
    """Return the oldest Go version that builds everything, such as 1.26.0."""
    texts = [(MODULES / module / "go.mod").read_text() for module in sorted({p.module for p in PROGRAMS})]
    found = [re.search(r"^go (\S+)$", text, re.MULTILINE) for text in texts]
    return max((match.group(1) for match in found if match is not None), key=go_order)


def go_order(version: str) -> tuple[int, ...]:
    """Return a version of Go for comparisons: 1.26.8 is less than 1.26.10."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _digest() -> str:
    """Hash everything that affects the build."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}\n".encode())
    for program in PROGRAMS:
        digest.update(f"{program.name} {program.package} {program.link_flags()}\n".encode())
    for path in sorted(MODULES.glob("*/go.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
