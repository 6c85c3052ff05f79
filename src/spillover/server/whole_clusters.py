"""Connects the server to whole clusters that pools make: keeps their kubeconfigs, and turns the template into a cluster."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from spillover.clusters.kinds import Kinds, section_of
from spillover.config.clusters import read_cluster
from spillover.core.records.machines import RentedMachine
from spillover.forms.problems import Findings
from spillover.model.cluster import Billing, ClusterSpec, pool_price
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Pool
from spillover.ports.kinds import CannotOpen


class TemplateHost:
    """What is open of a template: nothing. It has no nodes of its own."""

    async def run(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    async def stop(self, successor: object = None) -> None:
        """Do nothing."""


class ClusterKeeper:
    """Implements `MadeClusters` of `control/controllers/pools.py` for one template."""

    def __init__(self, template: ClusterName, folder: Path, entry: str, kinds: Callable[[], Kinds]) -> None:
        self._template = template
        self._folder = folder
        """Has the kubeconfigs."""
        self._entry = entry
        """The template in spill.yaml, as JSON."""
        self._kinds = kinds

    def knows(self, form: str) -> bool:
        """See MadeClusters."""
        entry = msgspec.json.decode(form)
        kind = self._kinds()[entry["kind"]]
        section = entry if kind.section is None else entry.get(section_of(kind), {})
        return Path(section.get(kind.kubeconfig, "")).is_file()

    def keep(self, machine: RentedMachine, kubeconfig: str) -> tuple[ClusterSpec, str]:
        """See MadeClusters."""
        # Named by what is in it, so that other credentials are another entry, and the cluster is opened with them.
        digest = hashlib.blake2s(kubeconfig.encode(), digest_size=6).hexdigest()
        path = self._folder / f"{machine.id}.{digest}.kubeconfig"
        spec, form = self._cluster(machine, path)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in self._kept(machine.id):
                if old != path:
                    old.unlink(missing_ok=True)
            new = path.with_suffix(".new")
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(kubeconfig)
            new.replace(path)
        except OSError as error:
            raise CannotOpen(f"{path}: {error.strerror or error}") from None
        return spec, form

    def forget(self, machine: MachineId) -> None:
        """See MadeClusters."""
        for old in self._kept(machine):
            old.unlink(missing_ok=True)

    def _kept(self, machine: MachineId) -> list[Path]:
        """Return the kubeconfigs of a cluster."""
        return [each for each in self._folder.glob("*.kubeconfig") if each.name.split(".")[0] == machine]

    def _cluster(self, machine: RentedMachine, path: Path) -> tuple[ClusterSpec, str]:
        """Return the cluster that a template becomes, and its entry in spill.yaml; raise CannotOpen."""
        kinds = self._kinds()
        entry = msgspec.json.decode(self._entry)
        kind = kinds[entry["kind"]]
        for name in ("pool", "price", "billing"):
            entry.pop(name, None)
        entry["name"] = machine.id
        section = entry if kind.section is None else entry.setdefault(section_of(kind), {})
        section[kind.kubeconfig] = str(path.absolute())
        found = Findings()
        read = read_cluster(entry, kinds, found)
        if read is None:
            raise CannotOpen("; ".join([str(each) for each in found.located()]))
        (spec,) = read.specs
        # Jobs pay for the time in which they use nodes. The cluster is billed as a whole, in steps.
        price = pool_price(Pool("", (machine.offer,)))
        spec = replace(spec, price=price, billing=Billing(step=1), made_by=self._template)
        return spec, read.entries[spec.name]
