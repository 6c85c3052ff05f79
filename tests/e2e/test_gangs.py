"""Gangs on real agents: they start together, find each other, run MPI programs, and survive a lost agent."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ServerProcess, wait_until, write_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi"
NODES = 4
MEET = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where) as server:
        met = sorted(server.accept()[0].recv(9).decode() for _ in range(size - 1))
    print("met", *met)
else:
    for _ in range(500):
        try:
            socket.create_connection(where).sendall(str(rank).encode())
            break
        except ConnectionRefusedError:
            import time
            time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with four machines of one CPU."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": f"n{number}", "cpu": 1, "memory": "1Gi"} for number in range(1, NODES + 1)]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(lambda: len(client.agents()) == NODES, "the registration of all agents")
        yield server
    finally:
        server.clear()


def run(lab: ServerProcess, *words: str, tasks: int = NODES) -> "subprocess.CompletedProcess[str]":
    """What `spill run --wait` says of a gang."""
    return lab.spill("run", "--tasks", str(tasks), "--wait", *words, timeout=60)


def shown(lab: ServerProcess, job: str) -> dict[str, Any]:
    return dict(json.loads(lab.spill("show", job, "--json").stdout))


def test_each_task_knows_the_others_and_its_lines_have_its_number(lab: ServerProcess) -> None:
    line = "echo $SPILL_TASK of $SPILL_TASKS, $(wc -l < $SPILL_HOSTS) hosts; echo oh >&2"
    done = run(lab, "--name", "who", "--", "sh", "-c", line)
    assert done.returncode == 0, done
    wanted = [f"[{rank}] {rank} of {NODES}, {NODES} hosts" for rank in range(NODES)]
    assert sorted(done.stdout.splitlines()) == wanted
    assert sorted(done.stderr.splitlines()) == [f"[{rank}] oh" for rank in range(NODES)]
    assert lab.spill("logs", "who").stdout.splitlines() == wanted, "in order, afterwards"
    assert lab.spill("logs", "who", "--task", "3").stdout == f"3 of {NODES}, {NODES} hosts\n"
    assert lab.spill("logs", "who", "--task", "2", "--stderr").stdout == "oh\n"
    tasks = shown(lab, "who")["tasks"]
    assert sorted(task["node"] for task in tasks) == ["n1", "n2", "n3", "n4"]
    assert {(task["state"], task["exit_code"]) for task in tasks} == {("SUCCEEDED", 0)}


LED = """
apiVersion: spillover/v1
kind: Job
metadata: {name: led-groups}
spec:
  on_task_success: end
  env: {BOTH: yes}
  groups:
    - name: leader
      resources: {cpu: 1}
      run: echo $SPILL_TASK is $SPILL_GROUP $SPILL_GROUP_TASK of $SPILL_GROUP_TASKS, $BOTH; sleep 0.5
    - name: worker
      tasks: 3
      resources: {cpu: 500m}
      env: {OWN: mine}
      command: [sh, -c, "echo $SPILL_TASK is $SPILL_GROUP $SPILL_GROUP_TASK of $SPILL_GROUP_TASKS, $OWN; exec sleep 100"]
"""


def test_a_leader_and_its_workers_run_what_their_groups_say(lab: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "led.yaml").write_text(LED)
    done = lab.spill("submit", str(tmp_path / "led.yaml"), "--wait", timeout=60)
    assert done.returncode == 0, done
    lines = lab.spill("logs", "led-groups").stdout.splitlines()
    assert lines == [
        "[leader 0] 0 is leader 0 of 1, yes",
        "[worker 0] 1 is worker 0 of 3, mine",
        "[worker 1] 2 is worker 1 of 3, mine",
        "[worker 2] 3 is worker 2 of 3, mine",
    ]
    tasks = shown(lab, "led-groups")["tasks"]
    assert [(task["group"], task["group_task"]) for task in tasks] == [
        ("leader", 0),
        *[("worker", number) for number in range(3)],
    ]
    assert [task["state"] for task in tasks] == ["SUCCEEDED", *["CANCELLED"] * 3]
    assert "leader 0" in lab.spill("show", "led-groups").stdout


def test_a_gang_of_elastic_size_takes_what_is_free(lab: ServerProcess) -> None:
    with lab.client() as client:
        [other] = client.submit(run="exec sleep 100", grace="0s")
        wait_until(lambda: client.job(other).state == "RUNNING", "the other job")
        line = "echo $SPILL_TASK of $SPILL_TASKS, $(wc -l < $SPILL_HOSTS) hosts"
        done = lab.spill(
            "run", "--tasks", "1..8", "--wait", "--name", "some", "--", "sh", "-c", line, timeout=60
        )
        assert done.returncode == 0, done
        assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} of 3, 3 hosts" for rank in range(3)]
        assert len(shown(lab, "some")["tasks"]) == 3
        client.cancel(other)
        client.wait(other)
        [alone] = client.submit(run=line, tasks="1..2", cpu=1, within="node")
        [ended] = client.wait(alone, timeout=60)
        assert ended.state == "SUCCEEDED"
        assert b"".join(client.logs(alone)) == b"0 of 1, 1 hosts\n", "one task is told its number too"


def test_tasks_meet_at_the_address_and_port_of_the_first(lab: ServerProcess) -> None:
    done = run(lab, "--", "python3", "-c", MEET)
    assert (done.returncode, done.stdout) == (0, "[0] met 1 2 3\n"), done


def test_a_job_says_what_the_end_of_one_task_means(lab: ServerProcess) -> None:
    done = run(lab, "--", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 100")
    assert done.returncode == 7, "the first failure ends the others"
    done = run(
        lab, "--on-task-success", "end", "--name", "led", "--", "sh", "-c", "[ $RANK = 0 ] || exec sleep 100"
    )
    assert done.returncode == 0, done
    assert sorted(task["state"] for task in shown(lab, "led")["tasks"]) == ["CANCELLED"] * 3 + ["SUCCEEDED"]
    done = run(lab, "--on-task-failure", "ignore", "--", "sh", "-c", "[ $RANK != 2 ] || exit 7")
    assert done.returncode == 0, done


RESTARTED = """
echo run ${SPILL_RESTART-0} of $RANK at $MASTER_PORT, $(wc -l < $SPILL_HOSTS) hosts
[ $RANK = 2 ] && [ ${SPILL_RESTART-0} -lt 2 ] && exit 5
[ $RANK = 1 ] && sleep 1
true
"""


def test_a_task_that_fails_starts_again_in_its_place(lab: ServerProcess) -> None:
    words = ("--on-task-failure", "restart", "--retry-exit", "2", "--name", "phoenix")
    done = run(lab, *words, "--", "sh", "-c", RESTARTED)
    assert done.returncode == 0, done
    found = shown(lab, "phoenix")
    assert (found["attempt"], {task["state"] for task in found["tasks"]}) == (1, {"SUCCEEDED"})
    assert found["tasks"][2]["restarts"] == 2
    said = lab.spill("logs", "phoenix", "--task", "2").stdout.splitlines()
    assert [line.partition(" at ")[0] for line in said] == [f"run {number} of 2" for number in range(3)]
    assert len({line.partition(" at ")[2] for line in said}) == 1, "the same port and hosts"
    assert sorted(done.stdout.splitlines()) == sorted(lab.spill("logs", "phoenix").stdout.splitlines())
    done = run(lab, "--on-task-failure", "restart", "--retry-exit", "1", "--", "sh", "-c", RESTARTED)
    assert done.returncode == 5, "no restart is left"


def test_a_gang_that_a_node_cannot_prepare_gives_all_its_room_back(
    lab: ServerProcess, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    done = run(lab, "--name", "lost", "--workdir", str(missing), "--retry-lost", "1", "--", "true")
    assert done.returncode == 125, done
    assert f"its working directory {missing} does not exist" in done.stderr
    assert run(lab, "--", "true").returncode == 0, "the room is free"


def test_a_gang_whose_agent_is_killed_runs_again_as_a_whole(lab: ServerProcess) -> None:
    with lab.client() as client:
        [job] = client.submit(run="[ $SPILL_ATTEMPT = 2 ] || exec sleep 100", tasks=NODES, grace="0s")
        wait_until(lambda: [each.state for each in client.job(job).tasks] == ["RUNNING"] * NODES, "all tasks")
        with suppress(ProcessLookupError):
            os.kill(lab.agents()[-1], signal.SIGKILL)
        [ended] = client.wait(job, timeout=60)
        assert (ended.state, ended.attempt) == ("SUCCEEDED", 2)


def test_a_gang_that_starts_while_the_server_is_killed_runs_once(lab: ServerProcess, tmp_path: Path) -> None:
    stamps = tmp_path / "stamps"
    with lab.client(patience=30) as client:
        jobs = [
            client.submit(run=f"echo $SPILL_JOB_ID $SPILL_ATTEMPT $RANK >> {stamps}; sleep 0.2", tasks=NODES)[
                0
            ]
            for _ in range(5)
        ]
        lab.kill()
        lab.up()
        ends = client.wait(*jobs, timeout=60)
    ran = stamps.read_text().split("\n")
    for end in ends:
        assert end.state == "SUCCEEDED"
        assert [ran.count(f"{end.id} {end.attempt} {rank}") for rank in range(NODES)] == [1] * NODES


@pytest.mark.skipif(
    shutil.which("mpicc") is None or shutil.which("mpirun") is None,
    reason="Open MPI is not installed; `make tools` installs it",
)
def test_the_mpi_example_runs_on_four_agents_without_ssh(lab: ServerProcess, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    subprocess.run(["mpicc", "hello.c", "-o", "hello"], cwd=tmp_path, check=True)
    job = (tmp_path / "mpi.yaml").read_text()
    as_root = "  env: {OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1'}\n"
    (tmp_path / "mpi.yaml").write_text(f"{job}  workdir: {tmp_path}\n{as_root}")
    done = lab.spill("submit", "--wait", str(tmp_path / "mpi.yaml"), timeout=90)
    said = lab.spill("logs", "mpi", "--task", "0").stdout.splitlines()
    assert done.returncode == 0, (done, said, lab.spill("logs", "mpi", "--stderr").stdout)
    assert len(said) == NODES
    where = {line.split(" on ")[1].split(":")[0] for line in said}
    assert where == {"n1", "n2", "n3", "n4"}, "a process in each task"
    assert all(line.endswith("the sum of all ranks is 6") for line in said)


@pytest.mark.skipif(
    shutil.which("mpicc.mpich") is None or shutil.which("mpiexec.mpich") is None,
    reason="MPICH is not installed; `make tools` installs it",
)
def test_a_program_of_mpich_runs_on_four_agents_without_ssh(lab: ServerProcess, tmp_path: Path) -> None:
    subprocess.run(["mpicc.mpich", str(EXAMPLE / "hello.c"), "-o", "hello"], cwd=tmp_path, check=True)
    words = ("--name", "mpich", "--workdir", str(tmp_path), "--spread", "node")
    done = run(lab, *words, "--", "sh", "-c", "exec $SPILL_RSH --serve -- mpiexec.mpich ./hello")
    said = lab.spill("logs", "mpich", "--task", "0").stdout.splitlines()
    assert done.returncode == 0, (done, lab.spill("logs", "mpich", "--stderr").stdout)
    assert {line.split(" on ")[1].split(":")[0] for line in said} == {"n1", "n2", "n3", "n4"}
    assert len(said) == NODES
    assert all(line.endswith("the sum of all ranks is 6") for line in said)
    failed = run(lab, *words, "--", "sh", "-c", "exec $SPILL_RSH --serve -- mpiexec.mpich sh -c 'exit 3'")
    assert failed.returncode == 3, "the exit code of the program is that of the job"


def test_remote_shells_work_inside_gangs_only(lab: ServerProcess) -> None:
    done = lab.spill("rsh", "n2", "true")
    told = "spill: SPILL_TASK is not set; remote shells work only inside a job with several tasks\n"
    assert (done.returncode, done.stderr) == (2, told)
    done = run(
        lab,
        "--on-task-success",
        "end",
        "--",
        "sh",
        "-c",
        "[ $RANK != 0 ] || exec $SPILL_RSH n9 true; exec sleep 99",
    )
    assert done.returncode == 2
    assert "'n9' is not a node of this job; its nodes are " in done.stderr
