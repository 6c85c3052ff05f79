"""The provider `fluxburst`: rents machines through plugins of flux-burst, which it uses unchanged.

A plugin makes a cluster for a job of Flux. The job that it gets from us starts an agent, so a cluster of one node is a
machine. Each order has a folder and a process of its own with one instance of the plugin, and so has each removal. Plugins
cannot list clusters, so a listing shows what the folders say.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta, Struct, field

from spillover.model.pools import Offer, RefusalCause
from spillover.ports.kinds import Flaw
from spillover.ports.provider import (
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
    name_prefix,
)
from spillover.providers.fluxburst.burst import (
    CLEANED,
    CREATED,
    ORDER,
    PREFIX,
    Became,
    Burst,
    Described,
    write,
)
from spillover.providers.fluxburst.machine import command
from spillover.providers.fluxburst.plugins import (
    NEED_FLUX,
    describe,
    missing_credentials,
    param_flaws,
    there,
    variables,
    why_unknown,
    words,
)
from spillover.providers.process.machines import LOG, Machines, Record, locked, marked
from spillover.providers.process.starting import MARK
from spillover.providers.rest import one_line

MOST_CLUSTER: Final = 40
"""Characters of the name of a cluster of GKE, the least of all."""
PREPARING: Final = 20.0
"""Seconds in which an order waits for the plugin to accept its parameters. After that it counts as made."""
CLEANING: Final = 2.0
"""Seconds that `destroy` waits for a plugin. After that the machine is being destroyed."""
STARTING: Final = 5.0
"""Seconds in which the process of a plugin writes its first file."""
_ENDING: Final = "ending"
_CLEANUP_LOCK: Final = "cleanup.lock"


class FluxburstForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `fluxburst`."""

    plugin: Annotated[str, Meta(description="Name of the plugin: gke for the module fluxburst_gke.")] = ""
    params: Annotated[
        dict[str, Any], Meta(max_length=100, description="Parameters of the plugin, by name.")
    ] = field(default_factory=dict)
    python: Annotated[
        str, Meta(min_length=1, pattern=r"^[\w./-]+$", description="Python with Spillover on the machines.")
    ] = "python3"


class FluxburstKind(ProviderKind):
    """The provider `fluxburst`."""

    name: ClassVar[str] = "fluxburst"
    form: ClassVar[type[Struct]] = FluxburstForm

    def check(self, form: FluxburstForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return a plugin that is not there or needs Flux, parameters that it does not take, and offers that it cannot be."""
        found = []
        if not form.plugin:
            names = ", ".join(there()) or "none is installed; run: pip install flux-burst-gke"
            found.append(Flaw(("plugin",), f"is missing; name a plugin of flux-burst: {names}"))
        elif form.plugin in NEED_FLUX:
            found.append(Flaw(("plugin",), NEED_FLUX[form.plugin]))
        elif form.plugin in there():
            described = describe(form.plugin, os.environ)
            found += [] if described.problem else param_flaws(form.params, form.plugin, described)
        for at, offer in enumerate(offers):
            if offer.spot:
                found.append(
                    Flaw(("offers", at), "plugins of flux-burst have no spot machines; leave out spot")
                )
            if offer.zone:
                found.append(Flaw(("offers", at), "plugins of flux-burst have no zones; leave out zones"))
        return found

    def missing(self, form: FluxburstForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return a plugin that is not installed or cannot be imported, and credentials that it lacks."""
        del home
        if form.plugin not in there():
            return [why_unknown(form.plugin)]
        problem = describe(form.plugin, environ).problem
        if not problem:
            return missing_credentials(form.plugin, environ)
        package = f"flux-burst-{form.plugin.replace('_', '-')}"
        return [
            f"{PREFIX}{form.plugin} cannot be used: {problem}; install it with what it needs: pip install {package}"
        ]

    def open(self, form: FluxburstForm, opening: ProviderOpening) -> "FluxburstProvider":
        """See ProviderKind."""
        return FluxburstProvider(form, opening)


class FluxburstProvider(Provider):
    """Rents what plugins make."""

    def __init__(self, form: FluxburstForm, opening: ProviderOpening) -> None:
        self._form = form
        self._opening = opening
        self._folder = opening.data.absolute()
        self._machines = Machines(self._folder)
        self._described: Described | None = None

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            return await asyncio.to_thread(self._create, order)
        except OSError as error:
            return NotNow(one_line(f"the plugin cannot be started: {error}"))

    async def list(self) -> Listing:
        """See Provider."""
        began = time.time_ns()
        try:
            machines = await asyncio.to_thread(self._look)
        except OSError as error:
            raise ProviderError(one_line(f"the machines cannot be listed: {error}")) from None
        return Listing(began, whole=True, machines=tuple(machines))

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider. Plugins take minutes, so the machines are only being destroyed when this returns."""
        try:
            return await asyncio.to_thread(self._end, ids)
        except OSError as error:
            raise ProviderError(one_line(f"the machines cannot be ended: {error}")) from None

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider. Says whether the plugin can be imported; plugins can be asked for nothing else."""
        del offers
        problem = (await asyncio.to_thread(self._describe)).problem
        return [f"{PREFIX}{self._form.plugin} cannot be used: {problem}"] if problem else ()

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Plugins state no prices."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""

    # --- creating

    def _create(self, order: Order) -> Created:
        """Record an order, and start its plugin, unless that was done before; raise OSError."""
        name, machines = order.name, self._machines
        with machines.alone():
            if machines.was(name):
                return Made(name)
            if not machines.exists(name):
                now = time.time_ns()
                machines.add(Record(order.machine, order.owner, order.token, name, now), order.join)
            record = machines.record(name)
            if record is not None and record.token != order.token:
                return Refused(RefusalCause.INVALID, f"another machine has the name {name}")
            folder = self._folder / name
            made = Made(name, None if record is None else record.at)
            if (folder / _ENDING).exists() or self._became(name, CREATED).phase not in {"", "preparing"}:
                return made
            write(folder / ORDER, self._burst(name, order))
            self._start(name, "create")
        self._await(name, PREPARING, ("", "preparing"))
        with machines.alone():
            if not machines.exists(name):
                return NotNow("the same order was refused a moment ago")
            became = self._became(name, CREATED)
            if became.phase != "refused":
                return made
            shutil.rmtree(folder)  # without a trace: there never was a machine
        lacks = "credential" in became.why.lower()
        return Refused(RefusalCause.AUTH if lacks else RefusalCause.INVALID, one_line(became.why))

    def _burst(self, name: str, order: Order | None) -> Burst:
        """Return what the plugin is told; without an order, as much as it needs to remove the cluster."""
        takes = self._describe().params
        cluster = cluster_name(name)
        ours = {"cluster_name": cluster, "isolated_burst": True}
        if order is not None and "machine_type" not in self._form.params:
            ours["machine_type"] = order.offer.type
        params = {**self._form.params, **{key: value for key, value in ours.items() if key in takes}}
        run = [] if order is None else command(order, self._form.python)
        return Burst(self._form.plugin, params, cluster, job_of(name, run))

    def _describe(self) -> Described:
        """Return the parameters of the plugin, which are asked for once if it has some."""
        if self._described is None or self._described.problem:
            self._described = describe(self._form.plugin, self._opening.environ)
        return self._described

    def _start(self, name: str, action: str) -> None:
        """Start a process that calls the plugin, unless one runs; raise OSError."""
        folder = self._folder / name
        held = locked(folder) if action == "create" else locked(folder, _CLEANUP_LOCK)
        if held is None:
            return
        ours = frozenset(("cluster_name", "isolated_burst", "machine_type"))
        try:
            with (folder / LOG).open("ab") as log:
                # The shell ends at once, so the server has no children. The process holds the lock while it runs.
                subprocess.run(
                    ["/bin/sh", "-c", '"$@" &', "sh", *words(action, str(folder))],
                    cwd=folder,
                    env={**variables(self._opening.environ, ours), MARK: str(folder)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(held,),
                    start_new_session=True,
                    check=True,
                )
        except subprocess.CalledProcessError as error:
            raise OSError(str(error)) from None
        finally:
            os.close(held)

    def _await(self, name: str, seconds: float, phases: Sequence[str]) -> None:
        """Wait until the plugin of an order has left these phases, or ended."""
        until = time.monotonic() + seconds
        while self._became(name, CREATED).phase in phases and self._calls(name) and time.monotonic() < until:
            time.sleep(0.02)

    # --- what is there

    def _calls(self, name: str, lock: str | None = None) -> bool:
        """Return whether a plugin works on a machine."""
        try:
            held = locked(self._folder / name) if lock is None else locked(self._folder / name, lock)
        except OSError:
            return False
        if held is not None:
            os.close(held)
        return held is None

    def _became(self, name: str, file: str) -> Became:
        """Return what became of a call; with an empty phase if there was none."""
        try:
            return msgspec.json.decode((self._folder / name / file).read_bytes(), type=Became)
        except (OSError, msgspec.DecodeError):
            return Became("")

    def _look(self) -> Sequence[Listed]:
        """Return our machines, after those that were cleaned up were removed; raise OSError."""
        with self._machines.alone():
            self._machines.forget(time.time())
            for name in self._machines.names():
                if (self._folder / name / _ENDING).exists() and self._cleaned(name):
                    self._machines.remove(name)
            return [self._listed(name) for name in self._machines.names() if self._is_ours(name)]

    def _cleaned(self, name: str) -> bool:
        """Return whether nothing is left of a machine that is to end."""
        if self._calls(name) or self._calls(name, _CLEANUP_LOCK):
            return False
        return self._became(name, CLEANED).phase == "done"

    def _is_ours(self, name: str) -> bool:
        record = self._machines.record(name)
        owner = self._opening.owner
        return name.startswith(name_prefix(owner)) if record is None else record.owner == owner

    def _listed(self, name: str) -> Listed:
        """Return a machine as its folder shows it."""
        record, (presence, reason) = self._machines.record(name), self._presence(name)
        if record is None:
            return Listed(name, presence, name=name, reason=reason)
        return Listed(name, presence, record.machine, record.owner, name, record.at, reason)

    def _presence(self, name: str) -> tuple[Presence, str]:
        """Return whether a machine is there, and why it is not."""
        log = f"see {self._folder / name / LOG}"
        if (self._folder / name / _ENDING).exists():
            cleaned = self._became(name, CLEANED)
            if cleaned.phase != "failed" or self._calls(name, _CLEANUP_LOCK):
                return Presence.STOPPING, "the plugin removes it"
            return Presence.RUNNING, f"{cleaned.why}; {log}"
        became = self._became(name, CREATED)
        if became.phase in {"", "preparing"} or self._calls(name):
            return Presence.PENDING, ""
        if became.phase == "done":
            return Presence.RUNNING, ""
        # A part of it may exist, so it is not gone.
        return Presence.STOPPING, f"{became.why or 'the plugin stopped while it made the machine'}; {log}"

    # --- ending

    def _end(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Let plugins remove machines; return why some were not. Raise OSError."""
        wanted = []
        with self._machines.alone():
            for name in dict.fromkeys(ids):
                if not is_name(name) or not (self._machines.exists(name) or self._adopt(name)):
                    continue
                wanted.append(name)
                (self._folder / name / _ENDING).touch()
        for name in wanted:
            self._stop(name)
        with self._machines.alone():
            for name in wanted:
                if self._machines.exists(name):
                    self._clean_up(name)
        until = time.monotonic() + CLEANING
        while any(self._calls(name, _CLEANUP_LOCK) for name in wanted) and time.monotonic() < until:
            time.sleep(0.02)
        why = {}
        with self._machines.alone():
            for name in [each for each in wanted if self._machines.exists(each)]:
                if self._cleaned(name):
                    self._machines.remove(name)
                elif (became := self._became(name, CLEANED)).phase == "failed":
                    why[name] = one_line(became.why)
        return why

    def _adopt(self, name: str) -> bool:
        """Make a folder for a machine of ours whose folder was lost, so that its plugin can remove it."""
        if not name.startswith(name_prefix(self._opening.owner)) or self._machines.was(name):
            return False
        (self._folder / name).mkdir(mode=0o700)
        write(self._folder / name / CREATED, Became("done"))
        return True

    def _stop(self, name: str) -> None:
        """Kill a plugin that still makes a machine. What it has made so far is removed afterwards."""
        if not self._calls(name):
            return
        folder = self._folder / name
        for pid in marked([folder])[str(folder)]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + STARTING
        while self._calls(name) and time.monotonic() < until:
            time.sleep(0.02)

    def _clean_up(self, name: str) -> None:
        """Start the plugin to remove what it made, if it was asked to make anything; raise OSError."""
        folder = self._folder / name
        if self._calls(name) or self._calls(name, _CLEANUP_LOCK):
            return
        if self._became(name, CREATED).phase in {"", "preparing", "refused"}:
            write(folder / CLEANED, Became("done"))
            return
        if not (folder / ORDER).exists():
            write(folder / ORDER, self._burst(name, None))
        write(folder / CLEANED, Became("calling"))
        self._start(name, "cleanup")


def is_name(name: str) -> bool:
    """Return whether an id is the name of a machine, not a path to anywhere else."""
    return name.startswith("spill-") and "/" not in name and "\0" not in name


def cluster_name(name: str) -> str:
    """Return the name of the cluster of a machine, short enough for every plugin."""
    if len(name) <= MOST_CLUSTER:
        return name
    digest = hashlib.blake2s(name.encode(), digest_size=6).hexdigest()
    return f"{name[: MOST_CLUSTER - len(digest) - 1].rstrip('-')}-{digest}"


def job_of(name: str, run: Sequence[str]) -> dict[str, Any]:
    """Return what plugins take for a job of Flux: one task on one node, for as long as the machine lives."""
    return {
        "id": name,
        "name": name,
        "nnodes": 1,
        "ntasks": 1,
        "duration": 0.0,
        "spec": {
            "version": 1,
            "tasks": [{"command": [*run], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "burstable": True}},
        },
    }
