"""The command line with its real client, a real HTTP server and the scheduler behind it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from spillover.cli.main import main
from spillover.model.ids import JobId
from tests.support.http import TOKEN, Threaded, threaded_server
from tests.support.served import Agent, Served, served
from tests.support.waiting import until

Spill = Callable[..., "Typed"]


class Typed(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def server() -> Iterator[Threaded[Served]]:
    with threaded_server(partial(served, time.time_ns())) as server:
        yield server


@pytest.fixture
def spill(
    server: Threaded[Served],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Spill:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPILL_SERVER", server.url)
    monkeypatch.setenv("SPILL_TOKEN", TOKEN)
    monkeypatch.delenv("SPILL_DEBUG", raising=False)

    def run(*arguments: str) -> Typed:
        capfd.readouterr()  # what the server has logged meanwhile
        return Typed(main(arguments), *capfd.readouterr())

    return run


def test_a_job_is_submitted_looked_at_and_cancelled(spill: Spill, server: Threaded[Served]) -> None:
    job = spill("run", "--name", "train", "--cpu", "2", "--", "python", "train.py").out.strip()
    assert [one["id"] for one in json.loads(spill("ls", "--mine", "--since", "1d", "--json").out)] == [job]
    assert spill("ls", "--state", "running") == (0, "", "spill: no jobs\n")
    assert json.loads(spill("show", "train", "--json").out)["spec"]["spec"]["command"] == [
        "python",
        "train.py",
    ]
    assert "QUEUED, " in spill("show", job[:7]).out
    user = json.loads(spill("show", "train", "--json").out)["user"]
    assert spill("why", "train").out.startswith(f"{job} ")
    assert spill("wait", "train", "--timeout", "50ms").code == 124
    for act in ("hold", "release"):
        assert spill(act, "train") == (0, "", "")
    after = str(server.inside.control.loop.gate.durable)
    assert spill("cancel", "train") == (0, "", "")
    assert spill("wait", "train").code == 1
    assert f"{job}      {user} submitted train" in spill("events").out
    assert [event["type"] for event in json.loads(spill("events", "--after", after, "--json").out)] == [
        "job_ended"
    ]


def test_clusters_and_agents_are_listed(spill: Spill, server: Threaded[Served]) -> None:
    server.run(server.inside.agent())
    assert spill("clusters").out.splitlines()[1].split()[:3] == ["onprem", "agents", "owned"]
    assert spill("agents").out.splitlines()[1].split()[:3] == ["n1", "onprem", "ready"]


def test_a_job_that_runs_goes_back_to_the_queue(spill: Spill, server: Threaded[Served]) -> None:
    agent = server.run(server.inside.agent())
    job = spill("run", "--", "sleep", "60").out.strip()
    server.run(agent.start(job))
    assert spill("requeue", job) == (0, "", "")
    assert f"{job}      requeued (requested)" in spill("events", "--job", job).out


def test_jobs_and_agents_are_completed(
    spill: Spill, server: Threaded[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = spill("run", "--name", "train", "--", "true").out.strip()
    words = ("completion", "bash", "--words")
    assert spill(*words, "why", "").out == f"{job}\ttrain QUEUED\ntrain\n"
    server.run(server.inside.agent())
    for act in ("drain", "resume", "undrain", "forget"):
        assert spill(*words, "agents", act, "").out == "n1\tready\nonprem/n1\tready\n"
    assert spill(*words, "agents", "drain", "onp").out == "onprem/n1\tready\n"
    monkeypatch.setenv("SPILL_TOKEN", "wrong")
    assert spill(*words, "why", "") == spill(*words, "agents", "drain", "") == (0, "", "")


def test_a_dry_run_asks_the_server(spill: Spill, server: Threaded[Served]) -> None:
    typed = spill("run", "--dry-run", "--name", "train", "--", "true")
    assert typed.code == 0
    assert typed.out.splitlines()[1].split()[:4] == ["train", "-", "not", "known"]
    assert server.inside.jobs == {}


def test_what_the_server_refuses_is_one_line(spill: Spill) -> None:
    told = (2, "", "spill: there is no job 'nobody'; `spill ls` lists jobs\n")
    assert spill("show", "nobody") == told
    assert spill("cancel", "nobody", "else") == told
    assert spill("logs", "nobody") == told
    assert spill("events", "--job", "nobody") == told
    short = spill("show", "zp").err
    assert short == "spill: there is no job 'zp'; a prefix needs at least 3 letters; `spill ls` lists jobs\n"


def test_a_server_that_is_not_there_is_one_line(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = spill("ls", "--server", "http://127.0.0.1:9")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("spill: no server answers at http://127.0.0.1:9; ")
    monkeypatch.delenv("SPILL_SERVER")
    monkeypatch.delenv("SPILL_TOKEN")
    typed = spill("ls")
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
    assert "start one with `spill up`" in typed.err


def test_a_token_that_others_could_read_is_not_sent(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "spill: the server's address is 'http://build.example:7070', which would send the token without TLS; "
        "write https://build.example:7070\n"
    )
    assert spill("ls", "--server", "http://build.example:7070") == (2, "", line)
    monkeypatch.setenv("SPILL_SERVER", "http://build.example:7070")
    assert spill("run", "--", "true") == (2, "", line)


def test_a_wrong_token_is_one_line(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILL_TOKEN", "wrong")
    typed = spill("ls")
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
    assert "token" in typed.err


def test_a_token_file_lets_in_and_is_not_to_be_read_by_everybody(
    spill: Spill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.token"
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("SPILL_TOKEN", "wrong")
    typed = spill("ls", "--token-file", str(file), "--json")
    assert typed == (0, "[]\n", "")
    file.chmod(0o644)
    monkeypatch.delenv("SPILL_TOKEN")
    monkeypatch.setenv("SPILL_TOKEN_FILE", str(file))
    typed = spill("ls", "--json")
    assert (typed.code, typed.out) == (0, "[]\n")
    assert typed.err == f"spill: all users of this machine can read {file}; run `chmod 600 {file}`\n"
    file.chmod(0o640)
    assert spill("ls", "--json").err == ""


@pytest.fixture
def running(server: Threaded[Served]) -> Iterator["subprocess.Popen[str]"]:
    """`spill run --wait` as a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spillover.cli", "run", "--wait", "--", "sleep", "60"],
        env=dict(os.environ) | {"SPILL_SERVER": server.url, "SPILL_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def started(server: Threaded[Served]) -> tuple[str, Agent]:
    """The job that was submitted, which runs from now on, and its agent."""

    async def start() -> tuple[str, Agent]:
        agent = await server.inside.agent()
        await until(lambda: server.inside.jobs, "a submission")
        [job] = server.inside.jobs
        await agent.start(job)
        return job, agent

    return server.run(start())


def test_run_shows_output_as_it_comes(server: Threaded[Served], running: "subprocess.Popen[str]") -> None:
    assert running.stdout is not None
    assert running.stderr is not None
    job, agent = started(server)
    server.run(agent.write(job, b"one\n"))
    assert running.stdout.readline() == "one\n"
    server.run(agent.write(job, b"oh\n", stderr=True))
    assert running.stderr.readline() == "oh\n"
    server.run(agent.write(job, b"two\n"))
    server.run(agent.end(job, 5))
    assert running.stdout.read() == "two\n"
    assert running.wait(10) == 5


def test_ctrl_c_becomes_a_cancel(server: Threaded[Served], running: "subprocess.Popen[str]") -> None:
    job, agent = started(server)
    server.run(agent.asked_for_output())
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=10)
    assert (running.returncode, out) == (1, "")
    assert server.inside.jobs[JobId(job)].state == "CANCELLED"
    assert f"spill: cancelling {job}; press Ctrl-C again" in err
    assert "Traceback" not in err


def test_a_command_on_the_job_of_somebody_else_says_who_may(
    spill: Spill, server: Threaded[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {
        name: spill("token", "create", "--role", role, "--user", name).out.strip()
        for name, role in (("ada", "submit"), ("bob", "submit"), ("kim", "maintain"), ("rae", "read"))
    }
    monkeypatch.setenv("SPILL_TOKEN", tokens["ada"])
    job = spill("run", "--name", "train", "--", "true").out.strip()
    monkeypatch.setenv("SPILL_TOKEN", tokens["bob"])
    told = (
        f"spill: {job} (train) belongs to ada, and you are bob; "
        "only ada, a maintainer of project default or an admin may hold it\n"
    )
    assert spill("hold", "train") == (2, "", told)
    monkeypatch.setenv("SPILL_TOKEN", tokens["rae"])
    assert spill("ls").out.splitlines()[1].split()[0] == job
    for change in (("cancel", "train"), ("run", "--", "true"), ("set", "train", "--priority", "3")):
        typed = spill(*change)
        assert typed.code == 2
        assert "a token of role read may not do this; use one of role submit" in typed.err
    monkeypatch.setenv("SPILL_TOKEN", tokens["kim"])
    assert spill("cancel", "train").code == 0
