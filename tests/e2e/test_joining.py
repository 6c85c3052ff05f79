"""Agents that join as rented machines do: with a file that names the server, a token and the server's certificate."""

import json
import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from spillover.model.units import SECOND
from spillover.server.certificates import make_certificates
from spillover.wire.api import AgentView
from tests.support.metadata import metadata_service
from tests.support.processes import ServerProcess, wait_until
from tests.support.remote_agent import RemoteAgent

CLUSTERS = [{"name": "cloud"}]


def join_file(server: ServerProcess, path: Path, **other: object) -> Path:
    """Write what a machine would be given, with an agent token."""
    made = server.spill("token", "create", "--role", "agent")
    assert made.returncode == 0, made
    address = json.loads((server.data / "server.json").read_text())["grpc"]
    given = {
        "server": address,
        "cluster": "cloud",
        "name": "cloud-1",
        "token": made.stdout.strip(),
        "join_by": 0,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(given | other))
    return path


def joined(server: ServerProcess, name: str) -> AgentView:
    def look() -> AgentView | None:
        with server.client() as client:
            found = [agent for agent in client.agents() if agent.name == name and agent.state == "ready"]
        return found[0] if found else None

    found = wait_until(look, f"{name} being ready")
    assert found is not None
    return found


def test_a_machine_joins_by_its_file_and_runs_jobs(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS).up()
    path = join_file(server, tmp_path / "join.json")
    path.chmod(0o644)
    agent = agents("--join", str(path), "--cpu", "2", "--memory", "1Gi", "--label", "zone=a").start()
    view = joined(server, "cloud-1")
    assert (view.cluster, view.capacity["cpu"], view.labels["zone"]) == ("cloud", 2, "a")
    assert f"all users of this machine can read {path}" in agent.log()
    ran = server.spill("run", "--wait", "--", "echo", "rented")
    assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
    agent.signal()
    assert agent.end() == 0


def test_a_machine_that_knows_only_the_pin_joins_over_tls(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    tls = tmp_path / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost"], 5)
    files = {"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")}
    server = servers(clusters=CLUSTERS, tls=files).up()
    pin = sha256(ssl.PEM_cert_to_DER_cert((tls / "server.pem").read_text())).hexdigest()
    path = join_file(server, tmp_path / "join.json", pin=pin)
    other = join_file(server, tmp_path / "other.json", pin="0" * 64, name="cloud-2")
    deceived = agents("--join", str(other), "--cpu", "1", folder="deceived").start()
    agents("--join", str(path), "--cpu", "1").start()
    joined(server, "cloud-1")
    wait_until(lambda: "not the one that this machine was told to trust" in deceived.log(), "a refusal")
    with server.client() as client:
        assert [agent.name for agent in client.agents()] == ["cloud-1"]


def test_tasks_of_a_machine_that_is_taken_back_run_elsewhere_at_no_cost_to_their_retries(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS, agents={"heartbeat": "500ms"}).up()
    with metadata_service() as metadata:
        path = join_file(server, tmp_path / "join.json", notices="ec2")
        agents("--join", str(path), "--cpu", "1", "--metadata", metadata.url).start()
        joined(server, "cloud-1")
        gate = tmp_path / "gate"
        run = (
            f"trap 'echo term; exit 9' TERM; echo on $SPILL_NODE; while ! test -e {gate}; do sleep 0.05; done"
        )
        with server.client() as client:
            job = client.submit(run=run, retry={"exit": 0, "lost": 0})[0]
            wait_until(lambda: client.job(job).state == "RUNNING", "the start of the job")
            metadata.notice = b'{"action": "terminate", "time": "2100-01-01T00:00:00Z"}'
            wait_until(lambda: client.job(job).interruptions == 1, "its interruption")
            assert [agent.state for agent in client.agents()] == ["draining"]
            other = join_file(server, tmp_path / "other.json", name="cloud-2")
            agents("--join", str(other), "--cpu", "1", folder="other").start()
            gate.touch()
            (ended,) = client.wait(job, timeout=30)
            assert (ended.state, ended.attempt, ended.node) == ("SUCCEEDED", 2, "cloud-2")
        assert "interrupted once because its machine was taken back" in server.spill("show", job).stdout


def test_a_machine_without_server_and_tasks_is_turned_off(
    servers: Callable[..., ServerProcess], agents: Callable[..., RemoteAgent], tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS).up()
    path = join_file(server, tmp_path / "join.json", alone_for=SECOND // 2)
    off = tmp_path / "off"
    agent = agents("--join", str(path), "--cpu", "1", "--off", f"touch {off}").start()
    joined(server, "cloud-1")
    server.kill()
    assert agent.end() == 0
    assert off.exists()
    assert "stopping: no server and no tasks for " in agent.log()


def test_a_join_file_replaces_what_people_write(agents: Callable[..., RemoteAgent], tmp_path: Path) -> None:
    (tmp_path / "join.json").write_text("{}")
    agent = agents("--join", str(tmp_path / "join.json"), "--server", "x", "--ca", "y").start()
    assert agent.end() == 2
    assert agent.log() == "spill: --join says what --server and --ca would say; remove them\n"
