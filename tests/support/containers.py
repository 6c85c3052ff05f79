"""Runs a container engine with all its data in one folder, and builds an image for it."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import spillover

IMAGE: Final = "localhost/spill-busybox:1"
_APPLETS: Final = [
    "sh",
    "echo",
    "sleep",
    "cat",
    "env",
    "true",
    "false",
    "dd",
    "head",
    "tail",
    "pwd",
    "ls",
    "touch",
    "id",
]
_CONFIG: Final = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
netns = "none"
"""


def machine_mounts() -> list[str]:
    """Return options that give a container this program and its libraries, as the image of a machine has them."""
    source = Path(spillover.__file__).parents[1]
    there = {Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.prefix), Path(sys.base_prefix), source}
    return [f"--volume={path}:{path}:ro" for path in sorted(there) if path.exists()]


def missing() -> str | None:
    """Return what prevents containers from running here; None if nothing does."""
    absent = [name for name in ("podman", "runc", "busybox") if shutil.which(name) is None]
    if absent:
        return f"containers need {', '.join(absent)}: apt-get install podman runc busybox-static, then run this again"
    return None if os.geteuid() == 0 else "containers are tested as root"


class ContainerEngine:
    """Podman with its own settings, images and containers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (folder / "containers.conf").write_text(_CONFIG)
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
        )
        self.env = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def load(self) -> None:
        """Build the image and load it into the engine."""
        policy = self._folder / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        archive = self._folder / "image.tar"
        archive.write_bytes(_image())
        self.run("load", "--signature-policy", str(policy), "--input", str(archive))
        archive.unlink()

    def run(self, *words: str) -> str:
        """Run a podman command and return its output."""
        done = subprocess.run(
            ["podman", *words],
            env=os.environ | self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done
        return done.stdout

    def containers(self) -> list[str]:
        """Return the names of all containers, including ended ones."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def clear(self) -> None:
        """Remove everything."""
        self.run("rm", "--force", "--all", "--time=0")
        self.run("system", "reset", "--force")


@contextmanager
def an_engine(folder: Path) -> Iterator[ContainerEngine]:
    """Start an engine with the image in it; at the end remove everything."""
    engine = ContainerEngine(folder)
    engine.load()
    try:
        yield engine
    finally:
        engine.clear()


def _image() -> bytes:
    """Return a docker-archive with nothing but busybox."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc"):
            _add(tar, folder, kind=tarfile.DIRTYPE)
        busybox = shutil.which("busybox")
        assert busybox is not None
        _add(tar, "bin/busybox", Path(busybox).read_bytes())
        for applet in _APPLETS:
            _add(tar, f"bin/{applet}", kind=tarfile.SYMTYPE, link="busybox")
    body = layer.getvalue()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["echo", "the image's own command"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    described = json.dumps(config).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        _add(tar, name, described)
        _add(tar, "layer.tar", body)
        manifest = [{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return image.getvalue()


def _add(
    tar: tarfile.TarFile, name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    """Add an entry to an archive."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), 0o755, kind, link
    tar.addfile(info, io.BytesIO(data))
