"""The script that a new machine of a cloud runs."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer
from spillover.model.resources import Resources
from spillover.ports.provider import Join, Order, order_token
from spillover.providers.userdata import FOLDER, MOST_SETUP, MOST_USER_DATA, UNIT, user_data
from tests.support.processes import wait_until

OWNER = "5d1f0c7a9b3e2468"
JOIN = Join(
    "203.0.113.7:7071", ClusterName("cloud"), "cloud-1", "a'secret$(id)", 1_800_000_000 * 10**9, "ab" * 32
)
OFFER = Offer(
    "m7i.xlarge",
    Resources(3500, 15 * 2**30, 0),
    200_000,
    "eu-central-1a",
    words=("big", "fast"),
    labels={"b": "it's", "a": "$HOME"},
)
ORDER = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, JOIN)


class Machine:
    """A folder in which the script runs, with a program that only tells how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lib"
        self._units = folder / "units"
        self._systemd = folder / "systemd"
        self._bin = folder / "bin"
        for each in (self._units, self._bin):
            each.mkdir()
        self.tool(
            "spill",
            f'for word; do echo "$word"; done >{folder}/called.new; mv {folder}/called.new {folder}/called',
        )
        self.called = folder / "called"

    def tool(self, name: str, does: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def with_systemd(self) -> Path:
        self._systemd.mkdir()
        self.tool("systemctl", f'echo "$@" >>{self.folder}/systemctl')
        return self._units / UNIT

    def boot(self, script: str) -> "subprocess.CompletedProcess[str]":
        here = {
            FOLDER: str(self.folder),
            "/opt/spillover/bin": str(self._bin),
            "/run/systemd/system": str(self._systemd),
            "/etc/systemd/system": str(self._units),
        }
        for there, place in here.items():
            script = script.replace(there, place)
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=20, check=False)

    def words(self) -> list[str]:
        wait_until(self.called.exists, "the agent being started")
        return self.called.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_new_machine_starts_its_agent_with_what_the_offer_says(machine: Machine) -> None:
    done = machine.boot(user_data(ORDER))
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.words() == [
        "agent",
        *("--join", f"{machine.folder}/join.json", "--data", str(machine.folder)),
        *("--cpu", "3.5", "--memory", "15Gi", "--gpu", "0"),
        *("--offer", "big", "--offer", "fast", "--label", "a=$HOME", "--label", "b=it's"),
    ]


def test_the_agent_runs_as_a_user_of_its_own_if_the_machine_has_it(machine: Machine) -> None:
    machine.tool("id", '[ "$2" = spillover ]')
    machine.boot(user_data(ORDER))
    assert machine.words()[-2:] == ["--user", "spillover"]


def test_only_root_can_read_the_join_file_whatever_the_umask_is(machine: Machine) -> None:
    seen = machine.folder.parent / "seen"
    machine.tool(
        "chmod", f'stat -c "%a %n" "$2" >>{seen}; exec /bin/chmod "$@"'
    )  # what others could see before
    machine.boot("umask 000\n" + user_data(ORDER))
    assert f"600 {machine.folder}/join.json.new" in seen.read_text()
    path = machine.folder / "join.json"
    assert json.loads(path.read_text()) == structs.asdict(JOIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.folder.stat().st_mode) == 0o700


def test_the_lines_of_the_operator_run_first_as_they_are(machine: Machine) -> None:
    setup = (
        "cat >made <<'SPILLOVER_END'",
        "it's $HOME",
        "SPILLOVER_END",
        'echo "$(cat made)" >>made',
        "test ! -e called",
    )
    script = user_data(ORDER, [f"cd {machine.folder.parent}", *setup])
    assert machine.boot(script).returncode == 0
    machine.words()
    assert (machine.folder.parent / "made").read_text() == "it's $HOME\n" * 2


def test_a_machine_whose_setup_fails_starts_no_agent_and_says_so(machine: Machine) -> None:
    done = machine.boot(user_data(ORDER, ["false", "true"]))
    assert done.returncode == 1
    assert "the setup of this machine failed" in done.stderr
    assert not machine.called.exists()


def test_systemd_runs_the_agent_where_it_is(machine: Machine) -> None:
    unit = machine.with_systemd()
    assert machine.boot(user_data(ORDER)).returncode == 0
    assert f"ExecStart={machine.folder}/start\n" in unit.read_text()
    assert (machine.folder / "systemctl").read_text() == f"daemon-reload\nenable --now {UNIT}\n"
    assert not machine.called.exists()
    if shutil.which("systemd-analyze") is not None:
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        assert (verified.returncode, UNIT in verified.stderr) == (0, False), verified


def test_the_script_may_run_again_after_a_reboot(machine: Machine) -> None:
    machine.boot(user_data(ORDER))
    machine.words()
    machine.called.unlink()
    assert machine.boot(user_data(ORDER)).returncode == 0
    assert machine.words()[0] == "agent"


def test_the_same_order_gives_the_same_bytes() -> None:
    turned = structs.replace(OFFER, labels=dict(reversed(OFFER.labels.items())))
    assert user_data(structs.replace(ORDER, offer=turned)) == user_data(ORDER)


def test_the_longest_setup_still_fits() -> None:
    many = structs.replace(OFFER, words=tuple(f"word-{number:04}" for number in range(50)))
    script = user_data(structs.replace(ORDER, offer=many), ["x" * (MOST_SETUP - 1)])
    assert len(script.encode()) < MOST_USER_DATA
