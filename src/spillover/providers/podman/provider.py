"""The provider `podman`: rents containers of the server's machine, which join over the network as other machines do.

Names of containers are unique, so a repeated order meets the container of the first one and adopts it. What the agent
needs to join is a file that only the user of the container can read. A volume of its own holds the agent's data, and
goes with the container.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta, Struct, field

from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import format_cpu
from spillover.ports.kinds import Flaw
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    PriceSeen,
    Provider,
    ProviderError,
    ProviderKind,
    ProviderOpening,
    Refused,
    Unknown,
    name_prefix,
)
from spillover.providers.podman.engine import (
    FAILED,
    LONGEST_PULL,
    PATIENCE,
    TAKEN,
    Container,
    Engine,
    Lost,
    refusal,
)
from spillover.providers.rest import one_line
from spillover.providers.userdata import FOLDER, agent_options

LANES: Final = 4
"""Containers that are created at a time."""
GRACE: Final = 4
"""Seconds that an agent has to stop before it is killed."""
AGENT_MEMORY: Final = 256 << 20
"""Bytes that a container may use beside what its offer states, for its agent."""
KEEP: Final = 86_400.0
"""Seconds for which names and logs of machines that are gone are kept."""
LOG_LINES: Final = 500
"""Lines that are kept of the log of a machine that is gone."""
OWN_OPTIONS: Final = ("--name", "--label", "--entrypoint", "--rm", "--restart", "--detach")
"""Options of the engine that `engine_options` cannot set."""
STATES: Final[Mapping[str, Presence]] = {
    "created": Presence.PENDING,
    "initialized": Presence.PENDING,
    "configured": Presence.PENDING,
    "exited": Presence.STOPPING,
    "stopped": Presence.STOPPING,
    "stopping": Presence.STOPPING,
    "removing": Presence.STOPPING,
}
"""By the state of a container; RUNNING for all others."""
_ENDED: Final = "ended"
"""Folder with a log for each machine that is gone, by its name."""
_JOIN: Final = "join"
"""Folder with the join file of each machine."""


class PodmanForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `podman`."""

    image: Annotated[str, Meta(description="Image of the containers, with Spillover in it.")] = ""
    network: Annotated[
        str, Meta(description="Network of the containers, such as host; default: that of the engine.")
    ] = ""
    engine: Annotated[str, Meta(min_length=1, description="The program podman, or its path.")] = "podman"
    engine_options: Annotated[
        list[str],
        Meta(max_length=100, description="More options of podman create, such as --volume=/data:/data:ro."),
    ] = field(default_factory=list)
    program: Annotated[str, Meta(min_length=1, description="The program spill in the image.")] = "spill"


class PodmanKind(ProviderKind):
    """The provider `podman`."""

    name: ClassVar[str] = "podman"
    form: ClassVar[type[Struct]] = PodmanForm

    def check(self, form: PodmanForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return a missing image, options that Spillover sets, and offers that containers cannot be."""
        found = []
        if not form.image or form.image.startswith("-"):
            found.append(
                Flaw(("image",), "is missing; name an image with Spillover, such as one of deploy/Dockerfile")
            )
        for at, option in enumerate(form.engine_options):
            if not option.startswith("-"):
                found.append(
                    Flaw(
                        ("engine_options", at),
                        f"must begin with a hyphen; write --OPTION=VALUE, not {option}",
                    )
                )
            elif option.partition("=")[0] in OWN_OPTIONS:
                found.append(Flaw(("engine_options", at), "is set by Spillover; leave it out"))
        passed = any(option.startswith(("--device", "--gpus")) for option in form.engine_options)
        for at, offer in enumerate(offers):
            if offer.spot:
                found.append(Flaw(("offers", at), "there are no spot containers; leave out spot"))
            if offer.zone:
                found.append(Flaw(("offers", at), "containers have no zones; leave out zones"))
            if offer.resources.gpu and not passed:
                found.append(
                    Flaw(
                        ("offers", at),
                        "containers have no GPUs unless engine_options passes some, such as --device=nvidia.com/gpu=all",
                    )
                )
        return found

    def missing(self, form: PodmanForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return an engine that is not on this machine."""
        del home
        if shutil.which(form.engine, path=environ.get("PATH")) is not None:
            return ()
        needs = f"the provider podman needs the program {form.engine}"
        return [f"{needs}; install it (apt-get install podman), or set the option engine"]

    def open(self, form: PodmanForm, opening: ProviderOpening) -> "PodmanProvider":
        """See ProviderKind."""
        return PodmanProvider(form, opening)


class PodmanProvider(Provider):
    """Rents containers."""

    def __init__(self, form: PodmanForm, opening: ProviderOpening) -> None:
        self._form = form
        self._opening = opening
        self._engine = Engine(form.engine, opening.environ)
        self._folder = opening.data.absolute()
        self._lanes = asyncio.Semaphore(LANES)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        if self._kept(order.name).exists():
            return Made(order.name)
        async with self._lanes:
            try:
                return await self._create(order)
            except Lost as error:
                return Unknown(str(error)) if error.sent else NotNow(str(error))
            except OSError as error:
                return NotNow(one_line(f"the join file cannot be written: {error}"))

    async def list(self) -> Listing:
        """See Provider."""
        began = time.time_ns()
        try:
            found = await self._engine.containers()
        except Lost as error:
            raise ProviderError(str(error)) from None
        ours = [self._listed(each) for each in found if self._is_ours(each)]
        return Listing(began, whole=True, machines=tuple(ours))

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        try:
            there = [each.name for each in await self._engine.containers() if self._is_ours(each)]
            wanted = [each for each in there if each in ids]
            if not wanted:
                return {}
            await asyncio.gather(*map(self._keep_log, wanted))
            words = ("rm", "--force", "--volumes", "--time", str(GRACE), "--", *wanted)
            # The engine ends them one after the other.
            removed = await self._engine.ask(*words, patience=PATIENCE + 2 * GRACE * len(wanted))
            left = {each.name for each in await self._engine.containers()}.intersection(wanted)
        except Lost as error:
            raise ProviderError(str(error)) from None
        for name in wanted:
            (self._kept(name) if name in left else self._join_file(name)).unlink(missing_ok=True)
        self._clean()
        return {name: removed.error for name in wanted if name in left}

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider. Asks whether the engine works and has an image that cannot be pulled."""
        del offers
        image = self._form.image
        try:
            await self._engine.limits()
            await self._engine.containers()
            there = not self._is_local or (await self._engine.ask("image", "exists", "--", image)).ok
        except Lost as error:
            return [str(error)]
        return () if there else [f"{self._form.engine} has no image {image}; build it, or load it"]

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Containers have no price but the configured one."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""

    # --- creating

    async def _create(self, order: Order) -> Created:
        """Create and start a container, or adopt the one of this order; raise Lost and OSError."""
        self._write_join(order)
        words = (
            "create",
            *await self._options(order),
            "--",
            self._form.image,
            "agent",
            *agent_options(order),
        )
        made = await self._engine.ask(*words, patience=LONGEST_PULL)
        if made.code not in {0, FAILED}:
            return Unknown(made.error)
        if not made.ok and TAKEN.search(made.error) is None:
            self._join_file(order.name).unlink(missing_ok=True)
            return refusal(made.error)
        found = await self._find(order.name)
        if found is None:
            return Unknown(f"the container {order.name} was created, and is gone")
        owner, machine = found.tags.get(OWNER_TAG, order.owner), found.tags.get(MACHINE_TAG, order.machine)
        # Nobody else gives a container this name, so one without our labels was made by hand, or by an old release.
        if (owner, machine) != (order.owner, order.machine):
            return Refused(
                RefusalCause.INVALID,
                f"there is a container {order.name} of somebody else; remove it with: "
                f"{self._form.engine} rm --force {order.name}",
            )
        # One that ended is not started again: it was a machine, and is gone.
        if STATES.get(found.state) is Presence.PENDING:
            started = await self._engine.ask("start", "--", order.name)
            if not started.ok and (refused := await self._unstarted(order.name, started.error)) is not None:
                return refused
        return Made(order.name, found.at)

    async def _unstarted(self, name: str, error: str) -> Created | None:
        """Remove a container that does not start; return what that means, or None if somebody else started it."""
        found = await self._find(name)
        if found is not None and STATES.get(found.state) is not Presence.PENDING:
            return None
        removed = await self._engine.ask("rm", "--force", "--volumes", "--", name)
        if not removed.ok and await self._find(name) is not None:
            return Unknown(one_line(f"{error}; and it cannot be removed: {removed.error}"))
        self._join_file(name).unlink(missing_ok=True)
        return refusal(error)

    async def _find(self, name: str) -> Container | None:
        return next((each for each in await self._engine.containers() if each.name == name), None)

    async def _options(self, order: Order) -> Sequence[str]:
        """Return the options of a container; raise Lost."""
        form, has = self._form, order.offer.resources
        limits = await self._engine.limits()
        words = [f"--name={order.name}", f"--entrypoint={form.program}"]
        words += [f"--label={key}={value}" for key, value in order.tags.items()]
        # `U` gives the folder and the file to the user of the container, and to nobody else.
        words += [f"--mount=type=volume,destination={FOLDER},U=true"]
        words += [f"--volume={self._join_file(order.name)}:{FOLDER}/join.json:ro,U"]
        if "cpu" in limits and has.cpu:
            words.append(f"--cpus={format_cpu(has.cpu)}")
        if "memory" in limits and has.memory:
            words += [f"--memory={has.memory + AGENT_MEMORY}b"]
        if form.network:
            words.append(f"--network={form.network}")
        if self._is_local:
            words.append("--pull=never")
        return [*words, *form.engine_options]

    @property
    def _is_local(self) -> bool:
        """Whether the image was built here, so that no registry has it."""
        return self._form.image.startswith("localhost/")

    def _join_file(self, name: str) -> Path:
        """Return the join file of a machine on this side."""
        return self._folder / _JOIN / f"{name}.json"

    def _write_join(self, order: Order) -> None:
        """Write the join file, unless it is there: the engine may have given it to the user of the container."""
        path = self._join_file(order.name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            return
        # Private from its first moment, as all temporary files; and whole when its name appears.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-") as file:
            file.write(msgspec.json.encode(order.join))
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)

    # --- what is there

    def _is_ours(self, container: Container) -> bool:
        """Return whether a container belongs to our owner, by its label, or else by its name."""
        owner = container.tags.get(OWNER_TAG)
        if owner is None:
            return container.name.startswith(name_prefix(self._opening.owner))
        return owner == self._opening.owner

    def _listed(self, container: Container) -> Listed:
        """Translate a container."""
        presence = STATES.get(container.state, Presence.RUNNING)
        reason = ""
        if container.state in {"exited", "stopped"}:
            reason = (
                f"its agent ended with exit code {container.exit_code}; "
                f"see: {self._form.engine} logs {container.name}"
            )
        elif presence is Presence.STOPPING:
            reason = f"it is {container.state}"
        return Listed(
            container.name,
            presence,
            container.tags.get(MACHINE_TAG, ""),
            container.tags.get(OWNER_TAG, ""),
            container.name,
            container.at,
            reason,
        )

    # --- what is kept

    def _kept(self, name: str) -> Path:
        """Return the file with the log of a machine that is gone. It also says that there was one."""
        return self._folder / _ENDED / name

    async def _keep_log(self, name: str) -> None:
        """Keep the last lines of a machine that is about to go."""
        async with self._lanes:
            log = b""
            with contextlib.suppress(Lost):
                log = (await self._engine.ask("logs", "--tail", str(LOG_LINES), "--", name, merged=True)).out
            with contextlib.suppress(OSError):
                self._kept(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._kept(name).write_bytes(log)

    def _clean(self) -> None:
        """Remove what was kept of machines that are gone, and join files, which are of no use after so long."""
        for folder in (self._folder / _ENDED, self._folder / _JOIN):
            with contextlib.suppress(OSError):
                for each in os.scandir(folder):
                    if time.time() - each.stat().st_mtime > KEEP:
                        Path(each.path).unlink(missing_ok=True)
