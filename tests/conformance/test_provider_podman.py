"""The suite for providers on real containers of podman, with a program around it that fails on request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.providers.podman.provider import PodmanForm, PodmanKind
from spillover.testing.provider_suite import Fault, OpenProvider, ProviderSuite, an_opening
from tests.support.containers import IMAGE, ContainerEngine, an_engine, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

AROUND = """\
#!/bin/sh
asked=$(cat FAULT 2>/dev/null)
say() { echo "Error: $1" >&2; exit 125; }
case "$asked,$1" in
  unreachable,*) say 'cannot connect to Podman: dial unix /run/podman/podman.sock: connect: connection refused' ;;
  capacity,create) say 'creating container storage: mkdir /var/lib/x: no space left on device' ;;
  auth,create) say 'initializing source docker://r/i: unauthorized: authentication required' ;;
  throttled,create) say 'reading manifest 1 in r/i: toomanyrequests: too many requests to registry' ;;
  lost_request,create) rm FAULT; kill -9 $$ ;;
  lost_answer,create) rm FAULT; podman "$@" >/dev/null; kill -9 $$ ;;
  refused_destroy,rm) say 'cannot remove container: device or resource busy' ;;
esac
exec podman "$@"
"""
STUB = "#!/bin/sh\ntrap 'exit 0' TERM\nsleep 1000 &\nwait\n"
"""Real agents would take a second each."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    with an_engine(tmp_path_factory.mktemp("engine")) as made:
        yield made


class TestPodman(ProviderSuite):
    faults = frozenset(
        {
            *(Fault.CAPACITY, Fault.AUTH, Fault.INVALID, Fault.THROTTLED, Fault.UNREACHABLE),
            *(Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.REFUSED_DESTROY),
        }
    )
    fault: Path
    engine: ContainerEngine
    hidden = False

    @pytest.fixture
    def open_provider(self, tmp_path: Path, engine: ContainerEngine) -> Iterator[OpenProvider]:
        self.fault, self.engine = tmp_path / "fault", engine
        around, stub = tmp_path / "around", tmp_path / "stub"
        around.write_text(AROUND.replace("FAULT", str(self.fault)))
        stub.write_text(STUB)
        for each in (around, stub):
            each.chmod(0o755)
        form = PodmanForm(IMAGE, engine=str(around), engine_options=[f"--volume={stub}:/bin/spill:ro"])
        assert not PodmanKind().check(form, [self.offer])
        environ = {**an_opening(tmp_path).environ, **engine.env}
        yield lambda owner: PodmanKind().open(form, an_opening(tmp_path / "data", owner, environ))
        assert not engine.containers()
        assert not engine.run("volume", "ls", "--quiet")
        assert not [*(tmp_path / "data").glob("join/*")]

    def provoke(self, fault: Fault) -> None:
        if fault is Fault.INVALID:
            self.engine.run("tag", IMAGE, "localhost/hidden:1")
            self.engine.run("untag", IMAGE, IMAGE)
            self.hidden = True
        else:
            self.fault.write_text(fault)

    def mend(self) -> None:
        self.fault.unlink(missing_ok=True)
        if self.hidden:
            self.engine.run("tag", "localhost/hidden:1", IMAGE)
            self.hidden = False
