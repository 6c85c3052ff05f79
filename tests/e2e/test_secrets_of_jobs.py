"""Jobs with secrets on real processes: they get the values, and nothing else keeps them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.client.calling import CallOptions
from tests.support.processes import ServerProcess, command_lines, processes_of, wait_until, write_config

VALUE = "hunter2-of-the-database"
FILE = "license-" + "0123456789abcdef" * 4000
"""Larger than a message to the process that starts tasks."""

BOTH = """\
#!/bin/sh
#SPILL --secret db --secret-file license
test "$DB" = "$(cat there)" || exit 3
stat -c %a "$LICENSE_FILE"
test "$LICENSE_FILE" = "$SPILL_SECRETS/license" || exit 4
sha256sum < "$LICENSE_FILE" > sum
echo "$LICENSE_FILE"
touch running
while [ ! -e over ]; do sleep 0.05; done
"""

GANG = """\
#!/bin/sh
#SPILL --tasks 2 --on-task-failure restart --retry-exit 2 --secret db --secret-file db
printf %s "$DB" | cmp -s - "$DB_FILE" || exit 9
mkdir "$SPILL_TASK" 2> /dev/null && exit 1
exit 0
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two machines and two secrets."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": f"n{number}", "cpu": 1, "memory": "1Gi"} for number in (1, 2)]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(lambda: len(client.agents()) == 2, "the registration of both agents")
        for name, value in (("db", VALUE), ("license", FILE)):
            (folder / "value").write_text(value)
            assert server.spill("secret", "set", name, "--file", "value").returncode == 0
        (folder / "value").unlink()
        yield server
    finally:
        server.clear()


def leaks(folder: Path, *values: str) -> list[str]:
    """Return the files below a folder that have one of the values."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [str(path) for value in values if value.encode() in data]
    return found


def test_a_job_gets_secrets_as_variable_and_as_file_and_they_are_nowhere_else(lab: ServerProcess) -> None:
    work = lab.folder / "work"
    work.mkdir()
    (work / "there").write_text(VALUE)
    (work / "both.sh").write_text(BOTH)
    done = lab.spill("submit", str(work / "both.sh"), "--workdir", str(work))
    assert done.returncode == 0, done
    job = done.stdout.strip()
    wait_until((work / "running").exists, "the start of the job")
    lines = command_lines(processes_of(lab.folder)).values()
    said = [
        lab.spill(*words).stdout
        for words in (
            *(("show", job, "--json"), ("show", job), ("why", job, "--json"), ("events", "--job", job)),
            *(("events", "--all", "--json"), ("audit", "--json"), ("secret", "ls", "--json")),
        )
    ]
    beside = lab.spill("exec", job, "--", "sh", "-c", "echo ${DB%%-*}")
    (work / "over").touch()
    assert lab.spill("wait", job, timeout=60).returncode == 0, lab.spill("logs", job)
    mode, path = lab.spill("logs", job).stdout.split()
    assert mode == "600"
    assert not Path(path).exists(), "it ended"
    expected = subprocess.run(["sha256sum"], input=FILE.encode(), capture_output=True, check=True).stdout
    assert (work / "sum").read_bytes() == expected
    assert leaks(lab.folder, VALUE) == [str(work / "there")], "the search finds what is there"
    (work / "there").unlink()
    assert all(said), "each of them printed something"
    for text in (*said, *lines):
        assert VALUE not in text
        assert FILE[:100] not in text
    assert json.loads(said[0])["spec"]["spec"]["secrets"] == [
        {"name": "db", "as": "DB"},
        {"name": "license", "as": "LICENSE_FILE", "file": True},
    ]
    assert beside.stdout.strip() == VALUE.partition("-")[0], "a command beside a task has its environment"
    # The database with its log, the server's log, and folders, spools, outputs and logs of agents.
    assert leaks(lab.folder, VALUE, FILE[:100]) == []


def test_a_variable_that_is_larger_than_a_message_gets_there_too(lab: ServerProcess) -> None:
    done = lab.spill("run", "--wait", "--secret", "license=L", "--", "sh", "-c", "echo ${#L}", timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(FILE)))
    assert leaks(lab.folder, FILE[:100]) == []


def test_each_task_of_a_gang_gets_them_also_when_it_starts_again(lab: ServerProcess) -> None:
    folder = lab.folder / "gang"
    folder.mkdir()
    (folder / "gang.sh").write_text(GANG)
    done = lab.spill("submit", "--wait", str(folder / "gang.sh"), "--workdir", str(folder), timeout=90)
    assert done.returncode == 0, (done, lab.spill("why", "gang.sh"))


def seen() -> tuple[str | None, int]:
    return os.environ.get("DB"), os.getpid()


def test_a_call_gets_them_and_the_next_one_does_not(lab: ServerProcess) -> None:
    seen.__module__ = "__main__"  # so that it travels with the call
    own: CallOptions = {"secrets": ["db"], "workdir": str(lab.folder)}
    with lab.client() as client:
        first, process = client.call(seen, options=own).result(timeout=60)
        assert first == VALUE
        again, other = client.call(seen, options=own).result(timeout=60)
        assert (again, other == process) == (VALUE, False)
        plain, third = client.call(seen, options={"workdir": str(lab.folder)}).result(timeout=60)
        assert (plain, third in {process, other}) == (None, False)


def test_a_job_whose_secret_is_gone_when_it_starts_ends_with_that_reason(lab: ServerProcess) -> None:
    (lab.folder / "value").write_text("short-lived")
    assert lab.spill("secret", "set", "token", "--file", "value").returncode == 0
    (lab.folder / "value").unlink()
    job = lab.spill("run", "--detach", "--hold", "--secret", "token", "--", "env").stdout.strip()
    assert lab.spill("secret", "rm", "token").returncode == 0
    lab.spill("release", job)
    assert lab.spill("wait", job, timeout=60).returncode != 0
    why = lab.spill("why", job)
    assert "could not get its secrets: project default has no secret token" in why.stdout, why
    refused = lab.spill("rerun", job)
    assert refused.returncode == 2
    assert "project default has no secret token; `spill secret ls` lists secrets" in refused.stderr
