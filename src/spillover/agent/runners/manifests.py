"""What of a Kubernetes Job an engine for containers can do: the first container, its words, variables and plain volumes."""

import msgspec
from msgspec import Struct

from spillover.forms.pods import beyond_engines
from spillover.model.job import Container
from spillover.wire.manifest import UNREADABLE, ManifestDoc, MountDoc, PodContainerDoc, VolumeDoc


class UnrunnableManifest(ValueError):
    """A manifest asks for what an engine cannot do; the message says what."""


class ContainerPlan(Struct, frozen=True):
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


def plan_of(work: Container) -> ContainerPlan:
    """How to run a container job; raises Unrunnable."""
    plan = _plan(work)
    if plan.image.startswith("-"):  # which would be an option of the engine, such as one for more rights
        raise UnrunnableManifest(f"{plan.image[:100]!r} is not the name of an image")
    return plan


def _plan(work: Container) -> ContainerPlan:
    """The same, whatever the image is called."""
    if work.manifest is None:
        entrypoint, words = (work.command[0], work.command[1:]) if work.command else (None, ())
        return ContainerPlan(work.image, entrypoint, words)
    try:
        job = msgspec.json.decode(work.manifest, type=ManifestDoc).spec
    except UNREADABLE as error:
        raise UnrunnableManifest(f"the manifest cannot be read: {error}") from None
    if unable := beyond_engines(job):
        raise UnrunnableManifest(f"the manifest {unable}")
    return _planned(job.pod.containers[0], {volume.name: volume for volume in job.pod.volumes or ()})


def _planned(one: PodContainerDoc, volumes: dict[str, VolumeDoc]) -> ContainerPlan:
    """How to run a container of a pod."""
    command = one.command or []
    words = (*command[1:], *(one.args or ()))
    mounts = tuple(_mounted(mount, volumes[mount.name]) for mount in one.volume_mounts or ())
    return ContainerPlan(
        one.image, command[0] if command else None, words, one.working_dir, mounts, own_folder=False
    )


def _mounted(mount: MountDoc, volume: VolumeDoc) -> str:
    """A volume as engines write it."""
    inside, host = mount.mount_path, volume.host_path
    if not inside or (host is not None and not host.path):
        raise UnrunnableManifest(
            f"the manifest mounts {mount.name!r} without a path; write mountPath, and hostPath with a path"
        )
    outside = host.path if host is not None else None
    if ":" in inside or ":" in (outside or ""):
        raise UnrunnableManifest(
            f"the manifest mounts {mount.name!r} at a path with a colon, which engines cannot do; run it on a Kubernetes cluster"
        )
    return f"{outside}:{inside}" + (":ro" if mount.read_only else "") if outside else inside
