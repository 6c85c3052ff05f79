"""Agents that join as rented machines do: with a file that names the server, a token and the server's certificate."""

import json
import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from spillover.server.certificates import make_certificates
from spillover.wire.api import AgentView
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


def test_a_join_file_replaces_what_people_write(agents: Callable[..., RemoteAgent], tmp_path: Path) -> None:
    (tmp_path / "join.json").write_text("{}")
    agent = agents("--join", str(tmp_path / "join.json"), "--server", "x", "--ca", "y").start()
    assert agent.end() == 2
    assert agent.log() == "spill: --join says what --server and --ca would say; remove them\n"
