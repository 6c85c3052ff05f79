"""The command line against a real server with a real agent, which most tests share."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.processes import wait_until

ARRAY = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: sweep}
spec: {run: "test $SPILL_ARRAY_INDEX -ne 2", array: 1-3}
"""

PAIR = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: first}
spec: {run: "echo one >> out.txt"}
---
apiVersion: spillover/v1
kind: Job
metadata: {name: second}
spec: {run: "echo two >> out.txt", after: [{job: first, on: success}]}
"""


def state_of(server: Any, job: str) -> str:
    return str(json.loads(server.spill("show", job, "--json").stdout)["state"])


def test_a_submission_runs_and_its_output_is_there(server: Any) -> None:
    submitted = server.spill("submit", "-", "--wait", typed=PAIR)
    assert (submitted.returncode, submitted.stderr) == (0, "")
    first, second = submitted.stdout.split()
    assert (server.folder / "out.txt").read_text() == "one\ntwo\n"
    listed = json.loads(server.spill("ls", "--json").stdout)
    assert [job["id"] for job in listed] == [second, first]
    assert {job["state"] for job in listed} == {"SUCCEEDED"}
    assert server.spill("show", "second").returncode == 0
    assert server.spill("why", "first").returncode == 0
    assert first in server.spill("events").stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)],
)
def test_run_ends_as_its_job_does(standing: Any, command: str, code: int) -> None:
    done = standing.spill("run", "--wait", "--", "sh", "-c", f"echo to out; echo to err >&2; {command}")
    assert done.returncode == code
    assert done.stdout == "to out\n"
    assert done.stderr.startswith("to err\n")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [("nosuchprogram", 127, "No such file or directory"), ("./notes.txt", 126, "Permission denied")],
)
def test_run_of_what_is_no_program_ends_as_in_a_shell(
    standing: Any, program: str, code: int, said: str
) -> None:
    (standing.folder / "notes.txt").write_text("to do\n")
    done = standing.spill("run", "--wait", "--", program)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{program}: {said}\n")


def test_a_folder_that_is_not_on_the_agent_is_told_with_what_to_do(standing: Any) -> None:
    done = standing.spill("run", "--wait", "--name", "far", "--workdir", "/no/such/folder", "--", "true")
    assert done.returncode == 125
    assert done.stderr.endswith(
        "(far) is FAILED: could not be started on local/local-1: workdir '/no/such/folder': No such file or directory; "
        "set `workdir` to an existing folder, or use `inputs` to run it in a folder of its own\n"
    )


def test_run_is_124_when_a_job_reached_its_walltime(standing: Any) -> None:
    done = standing.spill("run", "--wait", "--walltime", "1s", "--grace", "1s", "--", "sleep", "60")
    assert done.returncode == 124
    assert "it exceeded its walltime" in done.stderr


def test_run_is_125_when_a_job_was_cancelled_before_it_ran(standing: Any) -> None:
    filler = standing.spill("run", "--cpu", "2", "--", "sleep", "60").stdout.strip()
    waiting = standing.start("run", "--wait", "--cpu", "2", "--name", "late", "--", "true")
    try:
        wait_until(lambda: standing.spill("cancel", "late").returncode == 0, "cancelling")
        waiting.communicate(timeout=15)
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == 125
    assert standing.spill("cancel", filler).returncode == 0


def test_ctrl_c_cancels_what_run_waits_for(standing: Any) -> None:
    running = standing.start("run", "--wait", "--name", "long", "--", "sleep", "60")
    try:
        wait_until(lambda: "RUNNING" in standing.spill("ls", "--name", "long").stdout, "running")
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=15)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + signal.SIGTERM
    assert "cancelling" in errors
    assert state_of(standing, "long") == "CANCELLED"


def test_ctrl_c_without_a_server_leaves_the_job_and_says_so(server: Any) -> None:
    running = server.start("run", "--wait", "--name", "long", "--", "sleep", "60")
    try:
        wait_until(lambda: "RUNNING" in server.spill("ls").stdout, "running")
        server.kill()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=15)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "was not cancelled and keeps running" in errors
    server.up()
    assert state_of(server, "long") == "RUNNING"
    assert len(json.loads(server.spill("cancel", "long", "--json").stdout)) == 1
    assert server.spill("wait", "long").returncode == 1


def test_logs_of_a_job_that_never_ran_say_so(standing: Any) -> None:
    job = standing.spill("run", "--detach", "--need", "nobody", "--", "true").stdout.strip()
    done = standing.spill("logs", job)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"spill: {job} has not run yet and has no output\n"
    assert standing.spill("cancel", job).returncode == 0


def test_logs_of_a_job_that_wrote_only_to_standard_error_say_where_that_is(standing: Any) -> None:
    job = standing.spill("run", "--name", "train", "--", "nosuchprogram").stdout.strip()
    assert standing.spill("wait", job, "--timeout", "20s").returncode == 1
    done = standing.spill("logs", "train")
    told = "train wrote nothing to standard output; for standard error, run `spill logs train --stderr`"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"spill: {told}\n")
    assert standing.spill("logs", "train", "--stderr").stdout == "nosuchprogram: No such file or directory\n"


def test_logs_are_followed_until_the_end(standing: Any) -> None:
    job = standing.spill("run", "--", "sh", "-c", "echo a; sleep 0.5; echo b; echo c >&2").stdout.strip()
    assert standing.spill("wait", job, "--timeout", "20s").returncode == 0
    assert standing.spill("logs", job, "-f").stdout == "a\nb\n"
    assert standing.spill("logs", job, "--stderr").stdout == "c\n"


def test_logs_of_a_job_that_runs_come_at_once(standing: Any) -> None:
    job = standing.spill("run", "--", "sh", "-c", "echo now; sleep 60").stdout.strip()
    wait_until(lambda: state_of(standing, job) == "RUNNING", "running")
    following = standing.start("logs", "-f", job)
    try:
        assert following.stdout.readline() == "now\n"
        assert standing.spill("cancel", job).returncode == 0
        assert following.wait(timeout=15) == 0
    finally:
        following.kill()
        following.communicate()


def test_an_array_fails_if_one_of_its_members_does(standing: Any) -> None:
    done = standing.spill("submit", "-", "--wait", typed=ARRAY)
    assert done.returncode == 1
    assert "is FAILED" in done.stderr
    array = done.stdout.strip()
    assert [state_of(standing, f"{array}.{index}") for index in (1, 2, 3)] == [
        "SUCCEEDED",
        "FAILED",
        "SUCCEEDED",
    ]
    listed = json.loads(standing.spill("ls", "--members", "--name", "sweep", "--json").stdout)
    assert [job["id"] for job in listed] == [array, *(f"{array}.{index}" for index in (1, 2, 3))]
    assert "array      3: 2 done, 1 failed" in standing.spill("show", "sweep").stdout


def test_a_held_job_waits_until_it_is_released(standing: Any) -> None:
    # So many that the agent, if it is there already, cannot prefetch the next job: that would be placed and not wait.
    many = ("--cpu", "2", "--array", "1-100", "--detach")
    filler = standing.spill("run", *many, "--", "sleep", "60").stdout.strip()
    job = standing.spill("run", "--cpu", "2", "--name", "later", "--", "true").stdout.strip()
    assert standing.spill("hold", job).returncode == 0
    assert state_of(standing, job) == "HELD"
    assert "held by" in standing.spill("why", "later").stdout
    assert standing.spill("set", job, "--priority", "5").returncode == 0
    assert standing.spill("release", job).returncode == 0
    assert standing.spill("wait", job, "--timeout", "100ms").returncode == 124
    assert standing.spill("cancel", filler).returncode == 0
    assert standing.spill("wait", job, "--timeout", "20s").returncode == 0


def test_a_dry_run_submits_nothing(standing: Any) -> None:
    before = ids_of(standing)
    [told] = json.loads(standing.spill("run", "--dry-run", "--json", "--", "true").stdout)
    assert told["name"] == "true"
    [never] = json.loads(standing.spill("run", "--dry-run", "--json", "--cpu", "64", "--", "true").stdout)
    assert never["reason"]["never"] is True
    assert ids_of(standing) == before


def ids_of(server: Any) -> set[str]:
    return {job["id"] for job in json.loads(server.spill("ls", "--json").stdout)}


def test_clusters_and_agents_are_listed(standing: Any) -> None:
    assert standing.spill("run", "--wait", "--", "true").returncode == 0  # so that its agent is there
    [cluster] = json.loads(standing.spill("clusters", "--json").stdout)
    [agent] = json.loads(standing.spill("agents", "--json").stdout)
    assert (cluster["role"], cluster["capacity"]["cpu"]) == ("owned", 2.0)
    assert (agent["cluster"], agent["capacity"]["cpu"]) == (cluster["name"], 2.0)
    assert standing.spill("clusters").returncode == standing.spill("agents").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nobody"), "nobody"),
        (("cancel", "nobody"), "nobody"),
        (("submit", "missing.yaml"), "missing.yaml"),
        (("run", "--after", "nobody", "--", "true"), "nobody"),
        (("ls", "--server", "http://127.0.0.1:9"), "no server answers"),
        (("ls", "--data", "elsewhere"), "no server was started in elsewhere"),
    ],
)
def test_what_is_refused_is_one_line_and_exit_code_2(
    standing: Any, arguments: tuple[str, ...], says: str
) -> None:
    done = standing.spill(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("spill: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_after_a_stop_no_server_runs_in_the_folder(server: Any) -> None:
    server.stop()
    done = server.spill("ls")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no server runs in " in done.stderr
    assert "start one with `spill up`" in done.stderr


def test_a_wrong_token_is_refused(standing: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spillover.cli", "ls"],
        env=dict(os.environ) | {"SPILL_SERVER": standing.url, "SPILL_TOKEN": "wrong"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "token" in done.stderr


def test_run_waits_by_itself_on_a_terminal(standing: Any) -> None:
    """A pseudo-terminal stands for the person."""
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "spillover.cli", "run", "--", "sh", "-c", "echo seen; exit 4"],
        cwd=standing.folder,
        env=dict(os.environ) | {"SPILL_DATA": str(standing.data)},
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    try:
        code = running.wait(timeout=20)
        shown = b""
        while select.select([leader], [], [], 0.2)[0]:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # nobody is at the other end any more
                break
    finally:
        running.kill()
        running.wait()
        os.close(leader)
    assert code == 4
    assert b"seen\r\n" in shown
    assert b"is FAILED: exited with code 4" in shown


def test_a_job_that_uses_more_memory_than_it_asked_for_is_told_so(standing: Any) -> None:
    hog = "head -c 300000000 /dev/zero | tail -c 300000000 | sleep 2; sleep 1000"
    done = standing.spill("run", "--wait", "--name", "hog", "--memory", "64Mi", "--", "sh", "-c", hog)
    assert done.returncode != 0
    (job,) = json.loads(standing.spill("ls", "--name", "hog", "--json").stdout)
    assert job["state"] == "FAILED"
    why = standing.spill("why", job["id"]).stdout
    assert "used more memory than the 64Mi it requested; it used" in why
    shown = json.loads(standing.spill("show", job["id"], "--json").stdout)
    assert shown["reason"]["code"] == "out_of_memory"
    assert shown["peak_memory"] >= 60 << 20
    (agent,) = json.loads(standing.spill("agents", "--json").stdout)
    assert agent["labels"]["isolation"]
