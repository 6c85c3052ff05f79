"""A local agent of spill.yaml runs containers through the engine that is named there, with its options."""

from collections.abc import Callable
from pathlib import Path

from tests.support.processes import ServerProcess

JOB = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: boxed}
spec: {container: {image: tools, command: [greet, you]}}
"""
ENGINE = """\
#!/bin/sh
case "$1" in run) echo "$@";; container) echo "false 2027-01-31";; esac
"""


def test_the_engine_and_its_options_are_those_of_the_configuration(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    options = ["--network=none", "--ulimit=nofile=1024:1024"]
    agent = {"name": "n1", "cpu": 1, "engine": str(engine), "engine_options": options}
    server = servers(clusters=[{"name": "onprem", "local": [agent]}]).up()
    done = server.spill("submit", "-", "--wait", typed=JOB)
    assert (done.returncode, done.stderr) == (0, "")
    said = server.spill("logs", "boxed").stdout.split()
    assert (said[0], said[-1]) == ("run", "you")
    assert set(options) <= set(said)
