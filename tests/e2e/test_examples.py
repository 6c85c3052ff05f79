"""Every example does what it says, on a server that the example of a configuration describes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_examples_run(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--config", str(EXAMPLES / "spill.yaml"))
    runnable = ("hello.yaml", "array.yaml", "pipeline.yaml", "script.sh")
    done = server.spill("submit", "--wait", *(str(EXAMPLES / name) for name in runnable), timeout=90)
    assert done.returncode == 0, done
    assert server.spill("logs", "squares.12").stdout == "12 squared is 144\n"
    assert server.spill("logs", "compute").stdout == "computing with 2 threads\n"
    assert server.spill("logs", "report").stdout == "done\n"
    assert "words" in server.spill("logs", "count-words").stdout


def test_the_examples_that_nothing_here_can_run_wait_and_say_so(
    start_server: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither docker nor podman is there
    server = start_server("--config", str(EXAMPLES / "spill.yaml"))
    server.spill("run", "--wait", "--", "/bin/true")  # an agent is there
    submitted = server.spill("submit", str(EXAMPLES / "gpu.yaml"), str(EXAMPLES / "pi-job.yaml"))
    assert submitted.returncode == 0, submitted
    for name, words in (("train", ["gpu:a100"]), ("pi", ["container"])):
        reason = json.loads(server.spill("why", name, "--json").stdout)["reason"]
        assert (reason["code"], reason["never"]) == ("not_offered", True)
        assert reason["details"]["words"] == words
