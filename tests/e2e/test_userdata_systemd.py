"""A machine with systemd and the user `spillover`, as is recommended: its unit, `--user` and its end, all together.

The container has the programs of this machine, so its systemd too. SPILL_TEST_SYSTEMD=1 runs this, as root: not every kernel
lets systemd boot in a container.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.model.pools import MachineId
from spillover.model.units import SECOND
from spillover.ports.provider import Order, order_token
from spillover.providers.userdata import FOLDER, UNIT
from spillover.testing.provider_suite import OWNER
from tests.e2e.conftest import Joinable
from tests.e2e.test_userdata import OFFER, ordered
from tests.support.containers import IMAGE, ContainerEngine, an_engine, machine_mounts, missing
from tests.support.processes import wait_until

SYSTEMD = "/lib/systemd/systemd"
WANTED = os.environ.get("SPILL_TEST_SYSTEMD") == "1"
NAME = "booted"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WANTED, reason="SPILL_TEST_SYSTEMD=1 runs it"),
    pytest.mark.skipif(WANTED and missing() is not None, reason=str(missing())),
    pytest.mark.skipif(
        not Path(SYSTEMD).exists(), reason="this machine has no systemd: apt-get install systemd"
    ),
]
USERS = "root:x:0:0::/root:/bin/sh\nspillover:x:990:990::/home/spillover:/bin/sh\n"
PATIENCE = 90.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContainerEngine]:
    with an_engine(tmp_path / "engine") as made:
        yield made


def boot(engine: ContainerEngine, folder: Path, script: bytes, network: str) -> None:
    """Boot a machine with systemd, and run its user data once it is up, as cloud-init does."""
    etc = folder / "etc"
    (etc / "systemd" / "system").mkdir(parents=True)
    for each in ("systemd-networkd.service", "systemd-networkd-wait-online.service"):
        (etc / "systemd" / "system" / each).symlink_to("/dev/null")  # the container has its network already
    (etc / "passwd").write_text(USERS)
    (etc / "group").write_text("root:x:0:\nspillover:x:990:\n")
    (folder / "user-data").write_bytes(script)
    engine.run(
        *("run", "--detach", f"--name={NAME}", f"--network=ns:/run/netns/{network}"),
        *("--systemd=always", "--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN"),
        *machine_mounts(),
        f"--volume={etc}:/etc",
        f"--volume={folder / 'user-data'}:/user-data:ro",
        *(IMAGE, SYSTEMD, "--unit=basic.target"),
    )
    wait_until(
        lambda: "active" in says(engine, "systemctl", "is-active", "basic.target"), "systemd", PATIENCE
    )
    engine.run("exec", NAME, "sh", "/user-data")


def says(engine: ContainerEngine, *words: str) -> str:
    """Return what a command says on the machine, whether it works or not."""
    command = ["podman", "exec", NAME, "/usr/bin/env", "PATH=/usr/sbin:/usr/bin:/bin", *words]
    done = subprocess.run(command, env=os.environ | engine.env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_unit_runs_the_agent_as_its_user_again_after_a_crash_and_powers_off_when_it_is_alone(
    joinable: Joinable, engine: ContainerEngine, tmp_path: Path
) -> None:
    server = joinable.server
    join = replace(joinable.join, alone_for=3 * SECOND)
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, join)
    boot(engine, tmp_path, ordered(order, []), joinable.namespace)

    def ready() -> list[str]:
        with server.client() as client:
            return [each.name for each in client.agents() if each.state == "ready"]

    def journal() -> str:
        return says(engine, "journalctl", "--unit", UNIT, "--no-pager", "--lines=30")

    try:
        wait_until(lambda: ready() == ["cloud-1"], "the machine joining", PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}; {journal()}") from None
    run = ("run", "--wait", "--need", "rented", "--workdir", "/tmp", "--", "sh", "-c")
    ran = server.spill(*run, f"id -u; cat {FOLDER}/join.json || echo 'no token'")
    assert (ran.returncode, ran.stdout) == (0, "990\nno token\n"), ran
    first = says(engine, "systemctl", "show", "--property=MainPID", "--value", UNIT).strip()
    assert first != "0"
    says(engine, "kill", "-KILL", first)

    def another() -> bool:
        now = says(engine, "systemctl", "show", "--property=MainPID", "--value", UNIT).strip()
        return now not in {"0", first}

    wait_until(another, "the unit starting it again", PATIENCE, 0.2)
    ran = server.spill(*run, "echo again")
    assert (ran.returncode, ran.stdout) == (0, "again\n"), f"{ran} {journal()}"
    server.kill()
    ended = ("ps", "--all", "--filter", f"name={NAME}", "--format", "{{.Status}}")
    wait_until(lambda: engine.run(*ended).startswith("Exited"), "the machine being off", PATIENCE, 0.2)
