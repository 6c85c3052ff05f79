"""Scripts for Slurm on real agents, as they are."""

import json
from collections.abc import Iterator

import pytest

from tests.support.processes import ServerProcess, wait_until, write_config

ARRAY = """\
#!/bin/bash
#SBATCH --job-name=sweep --array=1-3%1
#SBATCH -t 5 --mem=50M
#SBATCH --output=out/res_%A_%a.txt
#SBATCH --mail-type=END
mkdir lock || exit 1
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: $SLURM_JOB_NAME $1"
echo error >&2
rmdir lock
"""

NODES = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
echo "$SLURM_NTASKS tasks on $SLURM_NNODES nodes"
other=$(awk '$1 == 1 {print $2}' "$SPILL_PEERS")
"$SPILL_RSH" "$other" echo from the other
"""

CLEAN = """\
#!/bin/sh
#SBATCH -J clean --dependency=afternotok:broken
echo cleaned
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two machines of one CPU."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": f"n{number}", "cpu": 1, "memory": "1Gi"} for number in (1, 2)]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(lambda: len(client.agents()) == 2, "the registration of both agents")
        yield server
    finally:
        server.clear()


def test_an_array_runs_one_at_a_time_and_writes_where_it_was_told(lab: ServerProcess) -> None:
    (lab.folder / "sweep.sbatch").write_text(ARRAY)
    done = lab.spill("submit", "--wait", "sweep.sbatch", "--", "with an argument", timeout=60)
    assert done.returncode == 0, done
    assert "sweep.sbatch:5: --mail-type: is ignored" in done.stderr
    array = done.stdout.split()[0]
    for index in (1, 2, 3):
        written = f"{index} of 3: sweep with an argument\nerror\n"
        assert (lab.folder / f"out/res_{array}_{index}.txt").read_text() == written
        assert lab.spill("logs", f"{array}.{index}").stdout == written


def test_a_script_for_two_nodes_runs_on_the_first_and_reaches_the_other(lab: ServerProcess) -> None:
    (lab.folder / "nodes.sbatch").write_text(NODES)
    done = lab.spill("submit", "--wait", "nodes.sbatch", timeout=60)
    logs = lab.spill("logs", "nodes.sbatch")
    assert done.returncode == 0, (done, logs, lab.spill("logs", "--stderr", "nodes.sbatch"))
    assert logs.stdout.splitlines() == ["[0] 2 tasks on 2 nodes", "[0] from the other"]


def test_a_job_that_is_held_or_waits_for_a_failure_starts_when_it_may(lab: ServerProcess) -> None:
    held = lab.spill("run", "--hold", "--detach", "--name", "broken", "--", "false").stdout.strip()
    (lab.folder / "clean.sbatch").write_text(CLEAN)
    clean = lab.spill("submit", "clean.sbatch").stdout.strip()
    assert json.loads(lab.spill("show", held, "--json").stdout)["state"] == "HELD"
    assert "waits for broken" in lab.spill("why", clean).stdout
    assert lab.spill("release", held).returncode == 0
    assert lab.spill("wait", clean, timeout=60).returncode == 0
    assert lab.spill("logs", clean).stdout == "cleaned\n"
