"""The suite for providers on a plugin of flux-burst whose cloud is a folder, each call in a real process of its own."""

from pathlib import Path

import pytest

from spillover.ports.provider import Provider
from spillover.providers.fluxburst.provider import FluxburstForm, FluxburstKind
from spillover.providers.process.machines import RECORD
from spillover.testing.provider_suite import Fault, OpenProvider, ProviderSuite, an_opening
from tests.support.fluxburst import put_toy

pytestmark = pytest.mark.slow


class TestFluxburst(ProviderSuite):
    faults = frozenset({Fault.INVALID, Fault.AUTH, Fault.UNREACHABLE, Fault.LOST_TAGS, Fault.REFUSED_DESTROY})
    folder: Path
    cloud: Path

    @pytest.fixture
    def open_provider(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenProvider:
        put_toy(tmp_path / "packages")
        monkeypatch.syspath_prepend(str(tmp_path / "packages"))
        self.folder, self.cloud = tmp_path / "machines", tmp_path / "cloud"
        self.cloud.mkdir()
        form = FluxburstForm("toy", {"cloud": str(self.cloud)})
        assert not FluxburstKind().check(form, [self.offer])

        def opened(owner: str) -> Provider:
            return FluxburstKind().open(form, an_opening(self.folder, owner))

        return opened

    def provoke(self, fault: Fault) -> None:
        if fault is Fault.LOST_TAGS:
            for record in self.folder.glob(f"*/{RECORD}"):
                record.unlink()
        elif fault is Fault.UNREACHABLE:
            if self.folder.is_dir():
                self.folder.rename(self.folder.with_name("away"))
            self.folder.touch()
        else:
            (self.cloud / "fault").write_text(fault)

    def mend(self) -> None:
        (self.cloud / "fault").unlink(missing_ok=True)
        if self.folder.is_file():
            self.folder.unlink()
            if (away := self.folder.with_name("away")).is_dir():
                away.rename(self.folder)
