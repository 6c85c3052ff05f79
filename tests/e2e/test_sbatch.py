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
test "$SLURM_SUBMIT_HOST" = "$(uname -n)" && test "$SLURM_JOB_UID" = "$(id -u)" || exit 1
test $((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME)) = 300 || exit 1
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

STEP = """\
#!/bin/bash -l
#SBATCH -J step --ntasks=1 --time=5
echo 'echo "in a script: $SLURM_PROCID of $SLURM_NTASKS"' > inner.sh
srun --unbuffered -n 1 --cpu-bind=cores sh inner.sh
echo 'srun -l sh inner.sh' > outer.sh && sh outer.sh
srun --time=3 true || echo "refused with $?"
srun sh -c 'exit 7'
"""

STEPS = """\
#!/bin/sh
#SBATCH -J steps --nodes=2 --ntasks=3
export FROM=script
cd "$SLURM_SUBMIT_DIR"
srun sh -c 'echo $FROM $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID on $SPILL_NODE at $PWD'
srun -N1 -n1 -w n2 hostname > /dev/null || exit 1
srun sh -c 'exit $SLURM_PROCID'
"""

GANGS = """\
#!/bin/sh
#SBATCH -J gangs --array=1-3%1 --nodes=2 --ntasks-per-node=1 -t 5
#SBATCH --output=gang_%A_%a.txt
echo "script $SLURM_ARRAY_TASK_ID at $SLURM_PROCID of $SLURM_NNODES nodes"
srun sh -c 'sleep 0.$SLURM_PROCID; echo "step $SLURM_ARRAY_TASK_ID $SLURM_PROCID"'
test $SLURM_ARRAY_TASK_ID != 2
"""

AFTER = """\
#!/bin/sh
#SBATCH -J after --array=1-3 -d aftercorr:gangs
echo after $SLURM_ARRAY_TASK_ID
"""

CLEAN = """\
#!/bin/sh
#SBATCH -J clean --dependency=afternotok:broken
echo cleaned
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two machines of two CPUs."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": f"n{number}", "cpu": 2, "memory": "1Gi"} for number in (1, 2)]
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


def test_a_script_with_srun_runs_it_as_a_step(lab: ServerProcess) -> None:
    (lab.folder / "step.sbatch").write_text(STEP)
    done = lab.spill("submit", "--wait", "step.sbatch", timeout=60)
    told = lab.spill("logs", "--stderr", "step").stdout
    assert done.stderr == f"spill: {done.stdout.strip()} (step) is FAILED: exited with code 7\n", (done, told)
    said = lab.spill("logs", "step").stdout.splitlines()
    assert said == ["in a script: 0 of 1", "in a script: 0 of 1", "refused with 2"]
    assert "srun: --label is ignored: lines have no rank before them" in told
    assert "srun: --time is not supported: write `srun timeout 10m COMMAND`" in told


def test_srun_starts_the_tasks_of_a_gang_on_all_its_nodes(lab: ServerProcess) -> None:
    (lab.folder / "steps.sbatch").write_text(STEPS)
    done = lab.spill("submit", "--wait", "steps.sbatch", timeout=60)
    told = lab.spill("logs", "--stderr", "steps").stdout
    assert "exited with code 2" in done.stderr, (done, told)
    said = sorted(line.removeprefix("[0] ") for line in lab.spill("logs", "steps").stdout.splitlines())
    first, second, third = (line.split() for line in said)
    assert first[:3] == ["script", "0/3", "0"]
    assert second[:3] == ["script", "1/3", "1"]
    assert third[:3] == ["script", "2/3", "0"]
    assert first[4] == second[4] != third[4]
    assert {line[6] for line in (first, second, third)} == {str(lab.folder)}


def test_members_of_an_array_are_gangs_and_those_of_another_one_follow_them(lab: ServerProcess) -> None:
    for name, text in (("gangs", GANGS), ("after", AFTER)):
        (lab.folder / f"{name}.sbatch").write_text(text)
    done = lab.spill("submit", "gangs.sbatch", "after.sbatch", timeout=60)
    assert done.returncode == 0, done
    gangs, after = done.stdout.split()
    assert lab.spill("wait", gangs, after, timeout=90).returncode == 1
    for index in (1, 2, 3):
        lines = [f"script {index} at 0 of 2 nodes", f"step {index} 0", f"step {index} 1"]
        written = (lab.folder / f"gang_{gangs}_{index}.txt").read_text().splitlines()
        assert (written[0], sorted(written)) == (lines[0], lines)
        assert lab.spill("logs", f"{gangs}.{index}", "--task", "1").stdout == ""
    states = {each: json.loads(lab.spill("show", each, "--json").stdout) for each in (gangs, after)}
    assert states[gangs]["array"]["counts"] == {"SUCCEEDED": 2, "FAILED": 1}
    assert states[after]["array"]["counts"] == {"SUCCEEDED": 2, "CANCELLED": 1}
    assert f"its dependency {gangs}.2 did not succeed" in lab.spill("why", f"{after}.2").stdout
    again = lab.spill("rerun", "--failed", gangs).stdout.strip()
    assert lab.spill("wait", again, timeout=60).returncode == 1
    assert (lab.folder / f"gang_{again}_2.txt").read_text().startswith("script 2 at 0")


def test_a_job_that_is_held_or_waits_for_a_failure_starts_when_it_may(lab: ServerProcess) -> None:
    held = lab.spill("run", "--hold", "--detach", "--name", "broken", "--", "false").stdout.strip()
    (lab.folder / "clean.sbatch").write_text(CLEAN)
    clean = lab.spill("submit", "clean.sbatch").stdout.strip()
    assert json.loads(lab.spill("show", held, "--json").stdout)["state"] == "HELD"
    assert "waits for broken" in lab.spill("why", clean).stdout
    assert lab.spill("release", held).returncode == 0
    assert lab.spill("wait", clean, timeout=60).returncode == 0
    assert lab.spill("logs", clean).stdout == "cleaned\n"


@pytest.mark.parametrize("files", [("--input", "names.txt"), ("--output", "*.none")])
def test_the_file_for_the_output_of_a_job_with_files_is_brought_back(
    lab: ServerProcess, files: tuple[str, ...]
) -> None:
    (lab.folder / "names.txt").write_text("ann\n")
    options = (*files, "--array", "1-2", "--stdout", "out/res_%A_[%a].txt", "--stderr", "./err_%a")
    line = "echo $SPILL_ARRAY_INDEX; echo wrong >&2"
    array = lab.spill("run", "--detach", *options, "--", "sh", "-c", line).stdout.strip()
    assert lab.spill("wait", array, timeout=60).returncode == 0
    for index in (1, 2):
        member = f"{array}.{index}"
        assert lab.spill("logs", member).stdout == f"{index}\n"
        assert lab.spill("logs", "--stderr", member).stdout == "wrong\n"
    assert lab.spill("fetch", array, f"back-{array}").returncode == 0
    for index in (1, 2):
        back = lab.folder / f"back-{array}" / str(index)
        assert (back / f"out/res_{array}_[{index}].txt").read_text() == f"{index}\n"
        assert (back / f"err_{index}").read_text() == "wrong\n"


def test_the_file_for_the_output_of_a_job_with_files_does_not_leave_its_folder(lab: ServerProcess) -> None:
    done = lab.spill("run", "--output", "x", "--stdout", "a/../../out.txt", "--", "true")
    assert done.returncode == 2
    assert "leads out of the folder that the job gets for its files; write an absolute path" in done.stderr
