"""`spill doctor` on a real server: while it runs, after it was killed, stopped, and damaged."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import ServerProcess, await_ends, wait_until


def test_a_server_is_well_while_it_runs_and_a_killed_or_damaged_one_is_told(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers().up()
    (tmp_path / "in.txt").write_text("needed")
    with server.client() as client:
        client.submit(run="true", array="1-20")
        client.submit(run="cp in.txt out.txt", inputs=["in.txt"], outputs=["out.txt"], workdir=str(tmp_path))
        await_ends(client, 60)
        client.submit(run="sleep 600")
    done = server.spill("doctor", "--config", "spill.yaml", "--json")
    said = json.loads(done.stdout)
    assert said["healthy"], said
    assert done.returncode == 0
    assert {each["check"] for each in said["findings"]} >= {"integrity", "journal", "agents", "tokens"}

    server.kill()
    server.end_agents()
    done = server.spill("doctor")
    assert done.returncode == 1, done.stdout
    first, second = done.stdout.splitlines()
    assert first.startswith("warning  leftovers")
    assert second.startswith("ok ")

    server.up()
    assert server.stop() == 0
    before = sorted(path.name for path in server.data.iterdir())
    done = server.spill("doctor")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stdout
    assert sorted(path.name for path in server.data.iterdir()) == before

    file = server.data / "spill.db"
    file.write_bytes(file.read_bytes()[:-9000])
    done = server.spill("doctor")
    assert done.returncode == 1
    assert done.stdout.startswith("problem  ")
    assert not done.stderr

    done = server.spill("doctor", "--config", "none.yaml")
    assert (done.returncode, done.stderr) == (2, "spill: none.yaml: No such file or directory\n")


def test_a_server_elsewhere_is_asked_alone(server: ServerProcess) -> None:
    token = server.data / "token"
    with server.client() as client:
        wait_until(client.agents, "the registration of its agent")
    done = server.spill("doctor", "--server", server.url, "--token-file", str(token), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {each["check"] for each in json.loads(done.stdout)["findings"]}
    assert "store" not in checks
    assert "server" in checks
