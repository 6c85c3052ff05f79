"""Output that the server keeps is there when the agent is not."""

import os
import signal
from collections.abc import Callable

from tests.support.processes import ServerProcess, wait_until

LAB = [{"name": "lab", "local": [{"name": "n1", "cpu": 2, "memory": "8Gi"}]}]


def run(server: ServerProcess, line: str, *options: str) -> str:
    job = server.spill("run", "--detach", *options, "--", "sh", "-c", line).stdout.strip()
    server.spill("wait", job)
    return job


def test_output_that_the_server_keeps_is_read_without_its_agent(
    servers: Callable[..., ServerProcess],
) -> None:
    agents = {"keep_output": True, "output_limit": "1Mi", "heartbeat": "500ms", "lost_after": "10s"}
    server = servers(clusters=LAB, agents=agents).up()
    job = run(server, "echo to out; echo to err >&2")
    large = run(server, "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last")
    failed = run(server, "echo failing; exit 3")
    for pid in server.agents():
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: lost(server), "losing the agent", 30)
    assert server.spill("logs", job).stdout == "to out\n"
    assert server.spill("logs", job, "--stderr").stdout == "to err\n"
    assert server.spill("logs", failed).stdout == "failing\n"
    text = server.spill("logs", large).stdout
    assert text.startswith("first\n")
    assert text.endswith("xlast\n")
    assert "bytes left out ...]\n" in text
    assert len(text) < 2_000_000
    assert "stdout" not in server.spill("fetch", job).stdout, "what was kept is no output file of the job"
    for pid in server.agents():
        os.kill(pid, signal.SIGCONT)


def lost(server: ServerProcess) -> bool:
    """Whether the server has given its agents up."""
    return '"lost"' in server.spill("agents", "--json").stdout
