"""`srun` inside of a job: what a command line starts, and what runs then."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spillover.agent.rsh.serving import ShellService
from spillover.agent.rsh.srun_options import SRUN_OPTIONS, SrunError, Use, read_line
from spillover.agent.rsh.srun_plan import OwnJob, Step, plan, remote_line
from spillover.agent.tasks.srun import SrunProgram
from tests.support.processes import free_ports
from tests.unit.agent.test_rsh import TOKEN, a_gang, until

ALONE = OwnJob(1, ("n1",), 0, 4, 2, is_gang=False)
GANG = OwnJob(4, ("n1", "n2"), 2, 2, 0, is_gang=True)


def step(line: str, job: OwnJob = ALONE) -> Step:
    return plan(read_line(line.split()), job)


def refused(line: str, job: OwnJob = ALONE) -> tuple[str, ...]:
    with pytest.raises(SrunError) as error:
        step(line, job)
    return error.value.args


def placed(line: str, job: OwnJob = GANG) -> list[str]:
    """The nodes of the tasks of a step, by rank."""
    return [task.node for task in step(line, job).tasks]


# --- what a command line means


def test_a_step_of_a_job_with_one_task_is_its_command() -> None:
    for line in ("./x -n 3", "-n1 ./x -n 3", "-vun 1 -c4 --cpu-bind=cores --mpi=pmix --exact -- ./x -n 3"):
        found = step(line)
        assert (found.command, [task.rank for task in found.tasks]) == (["./x", "-n", "3"], [0])
        assert found.notes == ()
    told = step("-l --mem=4G ./x").notes
    assert told == (
        "--label is ignored: lines have no rank before them",
        "--mem is ignored: a step has the limits of its job",
    )


def test_a_step_has_the_tasks_of_its_job_in_blocks() -> None:
    assert placed("./x") == ["n1", "n1", "n2", "n2"]
    assert placed("-n 3 ./x") == ["n1", "n1", "n2"]
    assert placed("-n 1 ./x") == ["n1"]
    assert placed("-N 2 -n 2 ./x") == ["n1", "n2"]
    assert placed("--ntasks-per-node=1 ./x") == ["n1", "n2"]
    assert placed("-N1 ./x") == ["n1", "n1"], "as many on each as the script asked for"
    assert placed("-w n2 -n1 ./x") == ["n2"]
    last = step("./x", GANG).tasks[3].variables
    assert (
        last
        | {
            "SLURM_PROCID": "3",
            "SLURM_LOCALID": "1",
            "SLURM_NODEID": "1",
            "SLURM_NTASKS": "4",
            "SLURM_TASKS_PER_NODE": "2,2",
            "SLURMD_NODENAME": "n2",
            "RANK": "3",
            "WORLD_SIZE": "4",
        }
        == last
    )
    assert "RANK" not in step("-n 4 ./x").tasks[3].variables, "only a gang has what torchrun sets"


def test_what_would_do_something_else_is_refused_with_all_problems() -> None:
    assert refused("-t 5 --nope --pty") == (
        "--time is not supported: write `srun timeout 10m COMMAND`",
        "unknown option --nope",
        "--pty is not supported: `spill run --pty` and `spill exec JOB` have terminals",
        "no command; write srun [OPTIONS] COMMAND",
    )
    assert refused("-n 0 ./x") == ("--ntasks: '0' is not a whole number of 1 or more",)
    assert refused("-n 5 ./x") == (
        "5 tasks need more CPUs than the job has; ask for them in its #SBATCH lines, or write `-O`",
    )
    assert len(step("-O -n 5 ./x").tasks) == 5
    assert refused("-N 3 ./x", GANG) == ("--nodes: there are 2, not 3",)
    assert refused("-N 1 ./x", GANG._replace(per_node=0)) == (
        "some nodes need a number of tasks too; write `-n`",
    )
    assert refused("-w n9 ./x") == ("--nodelist: 'n9' is not a node of this job; its nodes are n1",)
    assert refused("--exact -n1 ./x", GANG) == (
        "--exact of some nodes is not supported: name the nodes with `-w`",
    )
    assert step("--exact -w n1 -n1 ./x", GANG).notes == (
        "--exact is ignored: a step does not wait until another one has ended",
    )
    assert refused("--mpi=pmix ./x", GANG) == (
        "--mpi is not supported: a program of MPI needs `mpirun` in place of srun",
    )
    assert refused("--export=HOME ./x")[0].startswith("--export without ALL is not supported")
    assert refused("./x : ./y") == (
        "`:` is not supported: steps of unlike tasks need a job file with `groups`",
    )


def test_gpus_are_all_of_a_node_or_refused() -> None:
    for line in (
        "--gpus=2 ./x",
        "--gres=gpu:a100:2 ./x",
        "--gpus-per-node=2 -n2 ./x",
        "--gpus-per-task=2 ./x",
    ):
        assert step(line).notes == ()
    told = "is not supported: every task sees all GPUs of its node; choose one by SLURM_LOCALID"
    assert refused("-G 1 ./x") == (f"--gpus=1 {told}",)
    assert refused("-n 2 --gpus-per-task=1 ./x") == (f"--gpus-per-task=1 {told}",)


def test_every_option_that_does_not_count_says_why() -> None:
    assert all(bool(option.advice) == (option.use in {Use.TOLD, Use.REFUSED}) for option in SRUN_OPTIONS)
    letters = [option.letter for option in SRUN_OPTIONS if option.letter]
    assert len(letters) == len(set(letters))


def test_a_command_on_another_node_has_the_environment_of_the_caller_and_the_devices_of_the_node() -> None:
    environ = {
        "SPILL_AGENT": "/var/agent",
        "SPILL_FOLDER": "/var/agent/work/1",
        "OMP_NUM_THREADS": "4",
        "TMPDIR": "/var/agent/scratch/1",
        "PATH": "/var/agent/bin:/opt/env/bin:/bin",
        "CUDA_VISIBLE_DEVICES": "3",
        "HOME": "/root",
        "SLURM_PROCID": "7",
    }
    (task, *_) = step("-n1 ./x", GANG).tasks
    line = remote_line(
        task._replace(variables={"SLURM_PROCID": "0"}), ["./x", "a b"], environ, "/var/agent/work/1/sub"
    )
    assert line.startswith('cd -- "$SPILL_FOLDER"/sub 2>/dev/null || ')
    assert line.endswith(
        "; exec /usr/bin/env OMP_NUM_THREADS=4 PATH=/opt/env/bin:/bin SLURM_PROCID=0 ./x 'a b'"
    )
    assert remote_line(task, ["./x"], environ, "/shared").startswith("cd -- /shared ")


# --- what runs


def call(folder: Path, *words: str, given: str = "", **environ: str) -> tuple[int, str, str]:
    """Run the program that tasks find."""
    program = SrunProgram(folder)
    program.write()
    env = {"PATH": os.environ["PATH"], **environ}
    program.give(env)
    (folder / "given").write_text(given)
    (folder / "random.py").write_text("raise SystemExit('a file of the job')")
    with (folder / "given").open() as stdin:
        done = subprocess.run(
            ["srun", *words],
            executable=env["SPILL_SRUN"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=env,
            cwd=folder,
        )
    return done.returncode, done.stdout, done.stderr


def test_one_task_is_the_command_itself_with_its_streams_and_exit_code(tmp_path: Path) -> None:
    line = "cat; echo $SLURM_PROCID of $SLURM_NTASKS; exit 7"
    assert call(tmp_path, "-n1", "sh", "-c", line, given="in\n") == (7, "in\n0 of 1\n", "")
    code, _, said = call(tmp_path, "-n", "9", "--time=3", "true")
    assert code == 2
    assert said == "srun: --time is not supported: write `srun timeout 10m COMMAND`\n"
    assert call(tmp_path, "./missing") == (127, "", "srun: ./missing: No such file or directory\n")


def test_several_tasks_run_at_once_and_each_reads_all_input(tmp_path: Path) -> None:
    line = "read x; echo $SLURM_PROCID $x; exit $SLURM_PROCID"
    environ = {"SLURM_NTASKS": "3", "SLURM_CPUS_ON_NODE": "3"}
    code, said, _ = call(tmp_path, "sh", "-c", line, given="in\n", **environ)
    assert (code, sorted(said.splitlines())) == (2, ["0 in", "1 in", "2 in"])
    code, _, _ = call(tmp_path, "-K", "sh", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 60", **environ)
    assert code == 128 + 15, "the others were ended"


def test_each_task_of_a_gang_that_runs_the_script_is_told_to_leave_srun_out(tmp_path: Path) -> None:
    code, _, said = call(tmp_path, "true", SPILL_GANG_TOKEN="ab")
    assert (code, said.startswith("srun: each task of this job runs the whole script, so remove srun")) == (
        2,
        True,
    )


@contextlib.asynccontextmanager
async def a_served_gang(folder: Path, size: int) -> AsyncIterator[dict[str, str]]:
    """The services of a gang with a task on each node; yields the environment of its script."""
    ports = free_ports(size)
    peers = folder / "peers"
    peers.write_text("".join(f"{rank} n{rank + 1} 127.0.0.1 {port}\n" for rank, port in enumerate(ports)))
    known = {
        "PATH": os.environ["PATH"],
        "SPILL_TASK": "0",
        "SPILL_PEERS": str(peers),
        "SPILL_GANG_TOKEN": TOKEN.hex(),
        "SLURM_NTASKS": str(size),
    }
    services = [
        ShellService(a_gang(ports, rank), known | {"SPILL_NODE": f"n{rank + 1}"}) for rank in range(size)
    ]
    for service in services:
        await service.open()
    try:
        yield services[0].environment
    finally:
        for service in services:
            service.close()
        await until(lambda: not any(service.callers for service in services))


async def launched(folder: Path, env: dict[str, str], *words: str) -> asyncio.subprocess.Process:
    """Start a step."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "spillover.agent.rsh.srun",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=folder,
    )


async def test_a_step_of_a_gang_runs_on_all_nodes_and_ends_with_the_highest_code(tmp_path: Path) -> None:
    async with a_served_gang(tmp_path, 3) as env:
        line = "echo $SLURM_PROCID/$SLURM_NTASKS $SPILL_NODE $X; pwd >&2; exit $SLURM_PROCID"
        child = await launched(tmp_path, {**env, "X": "a b"}, "sh", "-c", line)
        out, err = await child.communicate()
    assert sorted(out.decode().splitlines()) == ["0/3 n1 a b", "1/3 n2 a b", "2/3 n3 a b"]
    assert (child.returncode, err.decode()) == (2, f"{tmp_path}\n" * 3)


async def test_a_signal_reaches_the_tasks_on_all_nodes(tmp_path: Path) -> None:
    async with a_served_gang(tmp_path, 2) as env:
        line = f"trap 'echo told; exit 5' TERM; : > {tmp_path}/up$SLURM_PROCID; while :; do sleep 0.05; done"
        child = await launched(tmp_path, env, "sh", "-c", line)
        await until(lambda: all((tmp_path / f"up{rank}").exists() for rank in (0, 1)))
        child.terminate()
        out, _ = await child.communicate()
    assert (child.returncode, out) == (5, b"told\n" * 2)
