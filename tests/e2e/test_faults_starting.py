"""Servers that cannot start: exit code 2, one clear line, and nothing changed."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.support.processes import ServerProcess, clean_environment, wait_until


@pytest.fixture
def servers(servers: Callable[..., ServerProcess]) -> Callable[..., ServerProcess]:
    """Servers that load their modules themselves, as those of users do."""

    def make(*options: str, **settings: Any) -> ServerProcess:
        server = servers(*options, **settings)
        server.forked = False
        return server

    return make


def refused(server: ServerProcess, *options: str) -> str:
    """The one line of a server that does not start."""
    before = len(server.last_words())
    server.launch(*options)
    assert server.await_end() == 2
    [line] = server.last_words()[before:].splitlines()
    assert line.startswith("spill: ")
    return line


def content(folder: Path) -> dict[str, str]:
    """All files of a folder by what is in them."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("which", ["http", "grpc"])
def test_a_port_in_use_is_named_and_nothing_is_made(
    servers: Callable[..., ServerProcess], tmp_path: Path, which: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = servers()
        line = refused(server, f"--{which}", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert f"--{which}" in line
    assert not server.data.exists()


def test_a_port_in_use_changes_nothing_of_data_that_are_there(servers: Callable[..., ServerProcess]) -> None:
    server = servers().up()
    with server.client() as client:
        client.wait(*client.submit(run="true"), timeout=20)
    assert server.stop() == 0
    before = content(server.data)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(server, "--grpc", f"127.0.0.1:{taken.getsockname()[1]}")
    assert content(server.data) == before


@pytest.mark.parametrize("same_ports", [True, False])
def test_a_second_server_on_the_same_data_names_the_one_that_leads(
    servers: Callable[..., ServerProcess], tmp_path: Path, same_ports: bool
) -> None:
    first = servers().up()
    if same_ports:
        second = ServerProcess(tmp_path, "--config", str(tmp_path / "spill.yaml"), data=first.data)
    else:
        second = servers(folder=tmp_path / "two", data=first.data)
    second.log = tmp_path / "second.log"
    line = refused(second)
    assert f"(process {first.process.pid})" in line
    assert first.url in line
    assert "--standby" in line
    with first.client() as client:
        assert client.wait(*client.submit(run="true"), timeout=20)[0].state == "SUCCEEDED"


def test_data_of_a_newer_version_are_left_alone(servers: Callable[..., ServerProcess]) -> None:
    server = servers().up()
    assert server.stop() == 0
    connection = apsw.Connection(str(server.data / "spill.db"))
    connection.execute("UPDATE meta SET value = '999' WHERE name = 'version'").fetchall()
    connection.close()
    before = content(server.data)
    line = refused(server)
    assert "have version 999" in line
    assert "use a newer one" in line
    assert content(server.data) == before


def test_data_that_are_no_database_are_left_alone(servers: Callable[..., ServerProcess]) -> None:
    server = servers()
    server.data.mkdir()
    (server.data / "spill.db").write_bytes(b"something else entirely" * 100)
    before = content(server.data)
    assert "damaged or not a Spillover database" in refused(server)
    assert content(server.data) == before


def test_a_data_folder_that_cannot_be_made_is_one_line(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    server = servers(data=tmp_path / "file" / "data")
    assert f"{tmp_path}/file" in refused(server)


def test_a_configuration_that_is_wrong_is_told_line_by_line(servers: Callable[..., ServerProcess]) -> None:
    server = servers(clusters=[], polcy={})
    server.launch()
    assert server.await_end() == 2
    lines = server.last_words().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("spill: ") and "spill.yaml:" in line for line in lines)
    assert not server.data.exists()


def typed(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "spillover.cli", *arguments],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_commands_without_a_server_or_with_a_wrong_token_are_one_line(server: ServerProcess) -> None:
    url = server.url
    wrong = typed("run", "--", "true", SPILL_SERVER=url, SPILL_TOKEN="wrong")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "token" in wrong.stderr
    with server.client() as client:
        assert list(client.jobs()) == []
    server.kill()
    for place in ({"SPILL_DATA": str(server.data)}, {"SPILL_SERVER": url, "SPILL_TOKEN": "any"}):
        away = typed("run", "--", "true", **place)
        assert (away.returncode, away.stdout, away.stderr.count("\n")) == (2, "", 1)
        assert f"no server answers at {url}; start it with `spill up`" in away.stderr


def test_an_agent_in_a_folder_that_another_one_uses_does_not_start(server: ServerProcess) -> None:
    [agent] = wait_until(server.agents, "the agent's start")
    words = Path(f"/proc/{agent}/cmdline").read_text().split("\0")[:-1]
    wait_until((server.data / "agents" / "local-1" / "agent.json").exists, "the agent's readiness")
    second = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "Traceback" not in second.stderr
    os.kill(agent, 0)


def test_a_server_that_is_told_to_stop_while_it_stands_by_stops(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    first = servers().up()
    second = servers("--standby", folder=tmp_path / "two", data=first.data)
    second.launch()
    wait_until(lambda: "standing by" in second.last_words(), "standing by")
    assert second.stop(signal.SIGINT) == 0
    told = json.loads((first.data / "server.json").read_text())
    assert told["pid"] == first.process.pid
