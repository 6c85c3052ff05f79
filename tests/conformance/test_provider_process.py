"""The suite for providers on processes of this machine: real agents, which find no server."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.ports.provider import Provider
from spillover.providers.process.machines import RECORD
from spillover.providers.process.provider import ProcessForm, ProcessKind, ProcessProvider
from spillover.testing.provider_suite import Fault, OpenProvider, ProviderSuite, an_opening


class TestProcess(ProviderSuite):
    faults = frozenset(Fault) - {Fault.PARTIAL, Fault.THROTTLED, Fault.LOST_REQUEST, Fault.REFUSED_DESTROY}
    offer = replace(ProviderSuite.offer, spot=True)
    opened: list[ProcessProvider]
    folder: Path

    @pytest.fixture
    def open_provider(self, tmp_path: Path) -> OpenProvider:
        self.opened, self.folder = [], tmp_path / "machines"

        def opened(owner: str) -> Provider:
            self.opened.append(ProcessKind().open(ProcessForm(boot="1m"), an_opening(self.folder, owner)))
            return self.opened[-1]

        return opened

    def provoke(self, fault: Fault) -> None:
        form = ProcessForm(boot="1m")
        match fault:
            case Fault.CAPACITY:
                form = replace(form, capacity=0)
            case Fault.QUOTA | Fault.INVALID | Fault.AUTH:
                form = replace(form, refuse={"small/*": fault.value})
            case Fault.LOST_ANSWER:
                form = replace(form, lose=1.0)
            case Fault.TAKEN_BACK:
                form = replace(form, boot="0s", spot_for="1ns")
            case Fault.LOST_TAGS:
                for record in self.folder.glob(f"*/{RECORD}"):
                    record.unlink()
            case _:
                assert fault is Fault.UNREACHABLE
                if self.folder.is_dir():
                    self.folder.rename(self.folder.with_name("away"))
                self.folder.touch()
        for each in self.opened:
            each.form = form

    def mend(self) -> None:
        if self.folder.is_file():
            self.folder.unlink()
            if (away := self.folder.with_name("away")).is_dir():
                away.rename(self.folder)
        for each in self.opened:
            each.form = ProcessForm(boot="1m")
