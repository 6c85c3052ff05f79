"""What of a Kubernetes Job an engine for containers can do: the first container, its words, variables and plain volumes."""

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spillover.model.job import Container

_UNABLE: Final = "an engine for containers cannot do that; run it on a Kubernetes cluster"


class Unrunnable(ValueError):
    """A manifest asks for what an engine cannot do; the message says what."""


class Plan(Struct, frozen=True):
    """What an engine is told."""

    image: str
    entrypoint: str | None = None
    """None is the image's own."""
    words: tuple[str, ...] = ()
    workdir: str | None = None
    """Within the container; None is the image's own, or where the job's folder is."""
    volumes: tuple[str, ...] = ()
    """As the engine writes them: `/host:/inside:ro`, or `/inside` for an empty one."""
    own_folder: bool = True
    """Whether the work folder of the job is to be seen inside, under its own path."""


class _Mount(Struct, frozen=True, rename="camel"):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""


class _HostPath(Struct, frozen=True):
    path: str


class _Volume(Struct, frozen=True, rename="camel"):
    name: str
    empty_dir: dict[str, Any] | None = None
    host_path: _HostPath | None = None


class _Env(Struct, frozen=True, rename="camel"):
    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None


class _Container(Struct, frozen=True, rename="camel"):
    image: str
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: list[_Env] = field(default_factory=list)
    env_from: list[Any] = field(default_factory=list)
    working_dir: str | None = None
    volume_mounts: list[_Mount] = field(default_factory=list)


class _Pod(Struct, frozen=True, rename="camel"):
    containers: list[_Container]
    init_containers: list[Any] = field(default_factory=list)
    volumes: list[_Volume] = field(default_factory=list)


class _Template(Struct, frozen=True):
    spec: _Pod


class _Spec(Struct, frozen=True, rename="camel"):
    template: _Template
    completions: int | None = 1
    parallelism: int | None = 1


class _Manifest(Struct, frozen=True):
    spec: _Spec


def plan_of(work: Container) -> Plan:
    """How to run a container job; raises Unrunnable."""
    plan = _plan(work)
    if plan.image.startswith("-"):  # which would be an option of the engine, such as one for more rights
        raise Unrunnable(f"{plan.image[:100]!r} is not the name of an image")
    return plan


def _plan(work: Container) -> Plan:
    """The same, whatever the image is called."""
    if work.manifest is None:
        entrypoint, words = (work.command[0], work.command[1:]) if work.command else (None, ())
        return Plan(work.image, entrypoint, words)
    try:
        manifest = msgspec.json.decode(work.manifest, type=_Manifest)
    except msgspec.DecodeError as error:
        raise Unrunnable(f"the manifest cannot be read: {error}") from None
    pod, spec = manifest.spec.template.spec, manifest.spec
    if len(pod.containers) != 1:
        raise Unrunnable(f"the manifest has {len(pod.containers)} containers; {_UNABLE}")
    if pod.init_containers:
        raise Unrunnable(f"the manifest has initContainers; {_UNABLE}")
    if (spec.completions or 1) > 1 or (spec.parallelism or 1) > 1:
        raise Unrunnable(f"the manifest asks for several pods; write an array instead, as {_UNABLE}")
    return _planned(pod.containers[0], {volume.name: volume for volume in pod.volumes})


def _planned(one: _Container, volumes: dict[str, _Volume]) -> Plan:
    """How to run a container of a pod."""
    if one.env_from or any(each.value_from is not None for each in one.env):
        raise Unrunnable(f"the manifest takes variables from elsewhere (envFrom, valueFrom); {_UNABLE}")
    entrypoint = one.command[0] if one.command else None
    words = (*one.command[1:], *one.args)
    mounts = tuple(_mounted(mount, volumes.get(mount.name)) for mount in one.volume_mounts)
    return Plan(one.image, entrypoint, words, one.working_dir, mounts, own_folder=False)


def _mounted(mount: _Mount, volume: _Volume | None) -> str:
    """A volume as engines write it."""
    if volume is None:
        raise Unrunnable(f"the manifest mounts a volume {mount.name!r} that it does not have")
    if mount.sub_path:
        raise Unrunnable(f"the manifest mounts a part of a volume (subPath of {mount.name!r}); {_UNABLE}")
    if ":" in mount.mount_path or (volume.host_path is not None and ":" in volume.host_path.path):
        raise Unrunnable(f"the manifest mounts {mount.name!r} at a path with a colon; {_UNABLE}")
    if volume.host_path is not None:
        return f"{volume.host_path.path}:{mount.mount_path}" + (":ro" if mount.read_only else "")
    if volume.empty_dir is not None:
        return mount.mount_path
    raise Unrunnable(f"the volume {mount.name!r} is neither emptyDir nor hostPath; {_UNABLE}")
