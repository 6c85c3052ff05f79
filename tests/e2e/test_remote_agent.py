"""`spill agent` as a process of its own, with a token and a URL: it joins, runs, survives the server and drains."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Client
from spillover.server.certificates import make_certificates
from spillover.wire.api import AgentView
from tests.support.fork_server import fork_server
from tests.support.processes import (
    ServerProcess,
    clean_environment,
    free_ports,
    wait_until,
)
from tests.support.remote_agent import RemoteAgent

CLUSTERS = [{"name": "onprem"}]
"""One cluster, without agents of its own."""


@pytest.fixture
def server(servers: Callable[..., ServerProcess]) -> ServerProcess:
    return servers(clusters=CLUSTERS, agents={"heartbeat": "500ms"}).up()


def token_file(server: ServerProcess, path: Path, *limits: str) -> Path:
    made = server.spill("token", "create", "--role", "agent", *limits)
    assert made.returncode == 0, made
    path.write_text(made.stdout)
    path.chmod(0o600)
    return path


def joined(server: ServerProcess, name: str, state: str = "ready") -> AgentView:
    def look() -> AgentView | None:
        with server.client() as client:
            found = [agent for agent in client.agents() if agent.name == name and agent.state == state]
        return found[0] if found else None

    found = wait_until(look, f"{name} being {state}")
    assert found is not None
    return found


def submit(server: ServerProcess, run: str, **fields: Any) -> str:
    with server.client() as client:
        return client.submit(run=run, **fields)[0]


def state_of(server: ServerProcess, job: str) -> str:
    with server.client(patience=20) as client:
        return client.job(job).state


def running(server: ServerProcess, job: str) -> None:
    wait_until(lambda: state_of(server, job) == "RUNNING", "the start of the job")


def test_an_agent_joins_with_a_token_and_a_url_and_runs_jobs(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    words = ("--server", server.url, "--token-file", str(token), "--name", "far", "--slots", "2")
    more = ("--memory", "2Gi", "--offer", "gpu:a100", "--label", "rack=7", "--queue", "3")
    agent = agents(*words, *more, SPILL_TOKEN="not-for-tasks").start()
    view = joined(server, "far")
    assert (view.cluster, view.capacity["cpu"], view.capacity["memory"]) == ("onprem", 2, 2 * 2**30)
    assert "gpu:a100" in view.offers
    assert view.labels["rack"] == "7"
    ran = server.spill("run", "--wait", "--", "echo", "from afar")
    assert (ran.returncode, ran.stdout) == (0, "from afar\n"), ran
    seen = server.spill("run", "--wait", "--", "env").stdout
    assert "SPILL_JOB_ID=" in seen
    assert "not-for-tasks" not in seen
    assert token.read_text().strip() not in seen
    assert (agent.folder / "state" / "spillover" / "agents" / "far" / "agent.json").exists()
    assert not list(server.data.glob("agents/*"))
    agent.signal()
    assert agent.end() == 0
    joined(server, "far", "lost")


def test_name_cluster_and_capacity_are_those_of_the_machine_and_the_server_unless_told(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    token.chmod(0o644)
    agent = agents(SPILL_SERVER=server.url, SPILL_TOKEN_FILE=str(token)).start()
    view = joined(server, socket.gethostname())
    assert view.cluster == "onprem"
    assert view.capacity["cpu"] >= 1
    assert view.capacity["memory"] > 2**20
    assert f"all users of this machine can read {token}" in agent.log()


def test_an_agent_survives_a_restart_of_the_server_and_another_port(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    (http,) = free_ports(1)
    settings: dict[str, Any] = {
        "clusters": CLUSTERS,
        "agents": {"heartbeat": "500ms"},
        "http": f"127.0.0.1:{http}",
        "grpc": "127.0.0.1:0",
    }
    server = servers(**settings).up()
    before = (server.data / "server.json").read_text()
    token = token_file(server, tmp_path / "agent.token")
    agent = agents(
        "--server", server.url, "--token-file", str(token), "--name", "far", "--slots", "1"
    ).start()
    joined(server, "far")
    gate = tmp_path / "gate"
    job = submit(server, f"echo begun; while ! test -e {gate}; do sleep 0.05; done; echo done")
    running(server, job)
    server.kill()
    server.up()
    assert (server.data / "server.json").read_text() != before
    joined(server, "far")
    gate.touch()
    with server.client() as client:
        (ended,) = client.wait(job, timeout=30)
        assert (ended.state, ended.attempt) == ("SUCCEEDED", 1)
        assert b"".join(client.logs(job)) == b"begun\ndone\n"
    agent.signal()
    assert agent.end() == 0


def test_an_agent_that_names_no_cluster_waits_for_its_server(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    (http,) = free_ports(1)
    server = servers(clusters=CLUSTERS, http=f"127.0.0.1:{http}", grpc="127.0.0.1:0").up()
    token = token_file(server, tmp_path / "agent.token")
    url = server.url
    assert server.stop() == 0
    words = ("--server", url, "--token-file", str(token), "--slots", "1")
    agent = agents(*words, "--name", "far").start()
    wait_until(lambda: "waiting for the server" in agent.log(), "the agent saying that it waits")
    wrong = agents(*words, "--name", "odd", "--cache", "much", folder="odd").start()
    assert wrong.end() == 2, "what is wrong is told before anything is waited for"
    stranger = tmp_path / "strange.token"
    stranger.write_text("spill_nobody")
    stranger.chmod(0o600)
    refused = agents("--server", url, "--token-file", str(stranger), "--name", "no", folder="no").start()
    wait_until(lambda: "waiting for the server" in refused.log(), "the other one saying so")
    server.up()
    assert joined(server, "far").cluster == "onprem"
    assert agent.log().count("waiting for the server") == 1
    assert refused.end() == 2
    assert "Traceback" not in refused.log()
    agent.signal()
    assert agent.end() == 0


def test_told_to_stop_it_lets_tasks_end_and_gives_back_what_has_not_started(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    agent = agents(
        *("--server", server.url, "--token-file", str(token), "--name", "far", "--slots", "1"),
        *("--drain-timeout", "60s"),
    ).start()
    joined(server, "far")
    gate = tmp_path / "gate"
    first = submit(server, f"while ! test -e {gate}; do sleep 0.05; done")
    running(server, first)
    later = submit(server, "true")
    agent.signal()
    joined(server, "far", "draining")
    assert state_of(server, first) == "RUNNING"
    gate.touch()
    assert agent.end() == 0
    with server.client() as client:
        view = client.job(first)
        assert (view.state, view.attempt) == ("SUCCEEDED", 1)
        assert client.job(later).state == "QUEUED"


@pytest.mark.parametrize("how", ["its time is over", "a second signal", "no time at all"])
def test_what_does_not_end_in_time_is_stopped_and_tried_again(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path, how: str
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    patience = {"its time is over": "1s", "a second signal": "1h", "no time at all": "0s"}[how]
    agent = agents(
        *("--server", server.url, "--token-file", str(token), "--name", "far", "--slots", "1"),
        *("--drain-timeout", patience),
    ).start()
    joined(server, "far")
    job = submit(server, "sleep 600")
    running(server, job)
    agent.signal()
    if how == "a second signal":
        joined(server, "far", "draining")
        assert state_of(server, job) == "RUNNING"
        agent.signal()
    assert agent.end() == 0
    wait_until(lambda: state_of(server, job) == "QUEUED", "the job being back in the queue")
    with server.client() as client:
        assert client.job(job).attempt == 2


@pytest.mark.slow  # a refused agent asks again every five seconds
def test_a_revoked_token_ends_the_agent_s_session_and_a_new_one_is_taken_up(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    secret = token.read_text().strip()
    agent = agents(
        "--server", server.url, "--token-file", str(token), "--name", "far", "--slots", "1"
    ).start()
    joined(server, "far")
    assert server.spill("token", "revoke", secret.split("_")[1]).returncode == 0
    joined(server, "far", "lost")
    wait_until(lambda: "was revoked" in agent.log(), "the agent being told")
    job = submit(server, "echo later")
    token_file(server, token)
    joined(server, "far")
    with server.client() as client:
        assert client.wait(job, timeout=30)[0].state == "SUCCEEDED"
    agent.signal()
    assert agent.end() == 0
    assert secret.split("_", 2)[2] not in agent.log()


def test_over_tls_with_a_private_authority(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    tls, strange = tmp_path / "tls", tmp_path / "strange"
    make_certificates(tls, ["127.0.0.1", "localhost"], 5)
    make_certificates(strange, ["127.0.0.1"], 5, authority="Somebody else")
    files = {"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")}
    server = servers(clusters=CLUSTERS, tls=files).up()
    token = token_file(server, tmp_path / "agent.token", "--cluster", "onprem")
    common = ("--server", server.url, "--token-file", str(token), "--slots", "1")
    wrong = agents(
        *common, "--name", "wrong", "--cluster", "onprem", "--ca", str(strange / "ca.pem"), folder="wrong"
    )
    wrong.start()
    wait_until(lambda: "did not sign it" in wrong.log(), "the agent saying whom it does not trust")
    agents(*common, "--name", "far", "--ca", str(tls / "ca.pem")).start()
    joined(server, "far")
    ran = server.spill("run", "--wait", "--", "echo", "secure")
    assert (ran.returncode, ran.stdout) == (0, "secure\n"), ran
    with server.client() as client:
        assert [agent.name for agent in client.agents()] == ["far"]


def test_what_keeps_an_agent_from_joining_is_told_and_not_fatal(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    server = servers(clusters=[{"name": "onprem"}, {"name": "cloud"}], agents={"heartbeat": "500ms"}).up()
    token = token_file(server, tmp_path / "agent.token", "--cluster", "onprem")
    common = ("--server", server.url, "--token-file", str(token), "--slots", "1")
    other = agents(*common, "--name", "a", "--cluster", "cloud", folder="a").start()
    wait_until(lambda: "is for agents of cluster 'onprem', not 'cloud'" in other.log(), "the refusal")
    assert "WARNING" in other.log()
    assert other.log().rstrip().endswith("; retrying every 5 s")
    assert "PERMISSION_DENIED" not in other.log()
    people = tmp_path / "people.token"
    people.write_text(server.spill("token", "create", "--role", "submit").stdout)
    person = agents(
        "--server", server.url, "--token-file", str(people), "--name", "b", "--cluster", "cloud", folder="b"
    )
    person.start()
    wait_until(lambda: "a token of role submit may not do this" in person.log(), "the refusal")
    early = agents(
        "--server", "http://127.0.0.1:9", *common[2:], "--name", "c", "--cluster", "onprem", folder="c"
    ).start()
    wait_until(lambda: "no server answers at" in early.log(), "the agent looking for its server")
    for agent in (other, person, early):
        agent.signal()
        assert agent.end() == 0
        assert "Traceback" not in agent.log()


def test_options_that_make_no_sense_are_one_line_and_exit_code_2(
    server: ServerProcess, tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    people, empty = tmp_path / "people.token", tmp_path / "empty.token"
    assert server.spill("token", "create", "--role", "submit", "--out", str(people)).returncode == 0
    empty.touch(0o600)
    good = ("--server", server.url, "--token-file", str(token), "--cluster", "onprem")
    cases: list[tuple[tuple[str, ...], str]] = [
        (("--token-file", str(token)), "no server; set --server URL or SPILL_SERVER"),
        (("--server", server.url), "no token; set --token-file FILE or SPILL_TOKEN_FILE"),
        (("--server", server.url, "--token-file", "none"), "--token-file none: No such file"),
        (("--server", server.url, "--token-file", str(people)), "a token of role submit may not do this"),
        (("--server", server.url, "--token-file", str(empty)), "holds no token"),
        (("--server", "ftp://x", "--token-file", str(token)), "which is not a URL"),
        (
            ("--server", "http://x:1", *good[2:]),
            "which would send the token without TLS; write https://x:1",
        ),
        ((*good, "--slots", "2", "--cpu", "2"), "--slots and --cpu mean the same"),
        ((*good, "--cpu", "many"), "--cpu: 'many' is not a number of CPUs"),
        ((*good, "--drain-timeout", "soon"), "--drain-timeout"),
        ((*good, "--name", "a b"), "--name 'a b' is not"),
        ((*good, "--label", "x"), "--label 'x' is not KEY=VALUE"),
    ]
    for words, says in cases:
        done = fork_server().run(
            ("agent", *words),
            folder=tmp_path,
            environment=clean_environment() | {"XDG_STATE_HOME": str(tmp_path / "state")},
        )
        assert done.returncode == 2, words
        (line,) = done.stderr.splitlines()
        assert line.startswith("spill: ")
        assert says in line


def test_a_second_agent_of_one_name_and_folder_is_refused(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    token = token_file(server, tmp_path / "agent.token")
    words = ("--server", server.url, "--token-file", str(token), "--name", "far", "--cluster", "onprem")
    agents(*words).start()
    joined(server, "far")
    second = agents(*words, "--data", str(tmp_path / "away" / "state" / "spillover"), folder="second").start()
    assert second.end() == 2
    assert "another agent (pid" in second.log().splitlines()[-1]


def test_a_client_of_the_server_finds_where_agents_go(server: ServerProcess) -> None:
    with Client(data=server.data) as client:
        address = client.agents_address()
    assert (address.host, address.cluster, address.clusters) == (None, "onprem", ["onprem"])
    assert f":{address.port}" in (server.data / "server.json").read_text()


def test_an_agent_that_was_stopped_left_and_one_that_was_killed_is_lost(
    server: ServerProcess, agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    """Its connection closes either way, and somebody should look after the second."""
    token = token_file(server, tmp_path / "agent.token")
    words = ("--server", server.url, "--token-file", str(token), "--slots", "1", "--name")
    stopped, killed = agents(*words, "stopped").start(), agents(*words, "killed").start()
    for name in ("stopped", "killed"):
        joined(server, name)
    stopped.signal()
    assert stopped.end() == 0
    killed.signal(signal.SIGKILL)
    for name in ("stopped", "killed"):
        joined(server, name, "lost")
    told = server.spill("events").stdout
    assert "agent onprem/stopped left" in told
    assert "agent onprem/killed is lost" in told
