"""Translates a Kubernetes Job for a container engine: its first container, arguments, variables and plain volumes."""

import msgspec
from msgspec import Struct

from spillover.forms.jobs.pods import beyond_engines
from spillover.model.job import Container
from spillover.wire.manifest import UNREADABLE, ManifestDoc, MountDoc, PodContainerDoc, VolumeDoc


class UnrunnableManifest(ValueError):
    """A manifest needs something that an engine cannot do; the message says what."""


class ContainerPlan(Struct, frozen=True):
    """How an engine runs a container."""

    image: str
    entrypoint: str | None = None
    """None uses that of the image."""
    words: tuple[str, ...] = ()
    workdir: str | None = None
    """Inside the container; None uses that of the image, or the job's folder."""
    volumes: tuple[str, ...] = ()
    """In the syntax of the engine: `/host:/inside:ro`, or `/inside` for an empty volume."""
    own_folder: bool = True
    """Whether to mount the job's work folder, under its own path."""


def plan_of(work: Container) -> ContainerPlan:
    """Return how to run a container job; raise UnrunnableManifest if no engine can."""
    plan = _plan(work)
    # The engine would take it as an option, such as one that grants privileges.
    if plan.image.startswith("-"):
        raise UnrunnableManifest(f"{plan.image[:100]!r} is not the name of an image")
    return plan


def _plan(work: Container) -> ContainerPlan:
    """Return how to run a container job, without a check of the image name."""
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
    """Return how to run a container of a pod."""
    command = one.command or []
    words = (*command[1:], *(one.args or ()))
    mounts = tuple(_mounted(mount, volumes[mount.name]) for mount in one.volume_mounts or ())
    return ContainerPlan(
        one.image, command[0] if command else None, words, one.working_dir, mounts, own_folder=False
    )


def _mounted(mount: MountDoc, volume: VolumeDoc) -> str:
    """Return a volume in the syntax of the engine."""
    inside, host = mount.mount_path, volume.host_path
    if not inside or (host is not None and not host.path):
        raise UnrunnableManifest(
            f"the manifest mounts {mount.name!r} without a path; write mountPath, and hostPath with a path"
        )
    outside = host.path if host is not None else None
    if ":" in inside or ":" in (outside or ""):
        raise UnrunnableManifest(
            f"the manifest mounts {mount.name!r} at a path with a colon, which container engines do not "
            "support; run it on a Kubernetes cluster"
        )
    return f"{outside}:{inside}" + (":ro" if mount.read_only else "") if outside else inside
