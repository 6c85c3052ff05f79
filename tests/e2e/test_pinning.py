"""Cores of one's own, through a real server and a real agent: granted, kept, shown, and given back."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillover.model.inside import cpu_mask
from tests.support.processes import ServerProcess, wait_until, write_config

ALLOWED = "grep Cpus_allowed_list /proc/self/status | cut -f2"
CPUS = sum(1 << cpu for cpu in sorted(os.sched_getaffinity(0))[:2])
"""The CPUs of the agent, as bits."""

pytestmark = pytest.mark.skipif(CPUS.bit_count() < 2, reason="needs two CPUs")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one agent that has two CPUs, each in a socket of its own."""
    folder = tmp_path_factory.mktemp("lab")
    machine = {"name": "n1", "cpu": 2, "memory": "1Gi", "sockets": 2}
    clusters = [{"name": "onprem", "kind": "agents", "local": [machine]}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(lambda: len(client.agents()) == 1, "the registration of the agent")
        yield server
    finally:
        server.clear()


def shown(lab: ServerProcess, job: str) -> dict[str, Any]:
    return dict(json.loads(lab.spill("show", job, "--json").stdout))


def printed(lab: ServerProcess, *options: str) -> int:
    """The CPUs on which a job may run, by what it prints itself."""
    done = lab.spill("run", *options, "--wait", "--", "sh", "-c", ALLOWED, timeout=60)
    assert done.returncode == 0, done
    return cpu_mask(done.stdout.strip())


def test_a_pinned_job_has_its_core_for_itself_until_it_ends(lab: ServerProcess, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stay")
    held = f"{ALLOWED}; read x < {tmp_path}/stay"
    assert (
        lab.spill("run", "--name", "pinned", "--pin", "core", "--cpu", "1", "--", "sh", "-c", held).returncode
        == 0
    )
    wait_until(lambda: shown(lab, "pinned")["state"] == "RUNNING", "the start of the pinned job")
    own = cpu_mask(shown(lab, "pinned")["cpus"])
    assert own.bit_count() == 1
    assert own & CPUS

    assert printed(lab, "--cpu", "0.5") & own == 0, "others run beside it"
    other = printed(lab, "--pin", "core", "--cpu", "1")
    assert (other.bit_count(), other & own) == (1, 0), "another pinned job gets the other core"
    both = lab.spill("run", "--name", "both", "--pin", "core", "--cpu", "2", "--", "sh", "-c", ALLOWED)
    assert both.returncode == 0
    why = json.loads(lab.spill("why", "both", "--json").stdout)
    assert why["reason"]["code"] in {"no_room", "no_room_inside"}, why
    assert shown(lab, "both")["state"] == "QUEUED"

    (tmp_path / "stay").write_text("go\n")
    wait_until(lambda: shown(lab, "both")["state"] == "SUCCEEDED", "the end of the job with both cores")
    assert cpu_mask(lab.spill("logs", "pinned").stdout.strip()) == own
    assert cpu_mask(lab.spill("logs", "both").stdout.strip()) == CPUS
    assert cpu_mask(shown(lab, "both")["cpus"]) == CPUS
    assert printed(lab, "--cpu", "0.5") & CPUS == CPUS, "nothing is kept from others any more"


def test_each_group_of_a_gang_runs_on_the_cores_that_it_asked_for(lab: ServerProcess, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stay")
    os.mkfifo(tmp_path / "look")
    held = f"{ALLOWED}; read x < {tmp_path}/stay"
    groups = [
        # A task that began before is moved when the pinned one starts.
        {"name": "shares", "resources": {"cpu": 0.5}, "run": f"read x < {tmp_path}/look; {ALLOWED}"},
        {"name": "pinned", "resources": {"cpu": 1}, "pin": "socket", "run": held},
    ]
    job = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "led"},
        "spec": {"groups": groups},
    }
    (tmp_path / "led.json").write_text(json.dumps(job))
    assert lab.spill("submit", str(tmp_path / "led.json")).returncode == 0
    wait_until(lambda: shown(lab, "led")["tasks"][1]["state"] == "RUNNING", "the start of the pinned task")
    tasks = shown(lab, "led")["tasks"]
    own = cpu_mask(tasks[1]["cpus"])
    assert (own.bit_count(), own & CPUS) == (1, own)
    assert not tasks[0].get("cpus")
    assert tasks[1]["cpus"] in lab.spill("show", "led").stdout

    (tmp_path / "look").write_text("go\n")
    wait_until(lambda: shown(lab, "led")["tasks"][0]["state"] == "SUCCEEDED", "the end of the other task")
    (tmp_path / "stay").write_text("go\n")
    wait_until(lambda: shown(lab, "led")["state"] == "SUCCEEDED", "the end of the gang")
    printed_by = [lab.spill("logs", "led", "--task", str(rank)).stdout.strip() for rank in (0, 1)]
    assert cpu_mask(printed_by[1]) == own
    assert cpu_mask(printed_by[0]) & own == 0, "the other group runs beside it"
