"""Standard input of jobs: sent as a whole, and read from its beginning by every attempt, member and task."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess, clean_environment, wait_until, write_config


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one machine of two CPUs."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": "n1", "cpu": 2, "memory": "1Gi"}]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(
        folder,
        *write_config(folder, clusters=clusters, files={"max_inputs": "20Mi"}, agents={"heartbeat": "500ms"}),
    )
    try:
        server.up()
        with server.client() as client:
            wait_until(client.agents, "the registration of the agent")
        yield server
    finally:
        server.clear()


def piped(
    lab: ServerProcess, data: bytes, *words: str, wrapper: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[bytes]":
    """Run `spill run` with bytes in a pipe."""
    return subprocess.run(
        [*wrapper, sys.executable, "-m", "spillover.cli", "run", *words],
        cwd=lab.folder,
        env=clean_environment() | {"SPILL_DATA": str(lab.data)},
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_what_is_piped_is_the_standard_input_of_the_job(lab: ServerProcess) -> None:
    done = piped(lab, b"pear\napple\n", "--wait", "--", "sort")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"apple\npear\n", b"")
    large = bytes(range(256)) * 32_768  # 8 MiB
    assert piped(lab, large, "--wait", "--", "wc", "-c").stdout == b"%d\n" % len(large)
    assert piped(lab, b"", "--wait", "--", "wc", "-c").stdout == b"0\n"


def test_programs_that_only_start_another_one_are_no_shell(lab: ServerProcess) -> None:
    done = piped(lab, b"pear\napple\n", "--wait", "--", "sort", wrapper=("timeout", "50"))
    assert (done.returncode, done.stdout) == (0, b"apple\npear\n")
    loop = f"while read line; do timeout 50 {sys.executable} -m spillover.cli run --wait -- wc -c; echo $line; done"
    done = piped(lab, b"a\nb\n", wrapper=("sh", "-c", loop))
    assert done.stdout == b"0\na\n0\nb\n"


def test_every_attempt_reads_all_of_it(lab: ServerProcess) -> None:
    line = 'if [ "$SPILL_ATTEMPT" = 1 ]; then head -c 3 > /dev/null; exit 1; fi; cat'
    assert (
        piped(lab, b"abcdef\n", "--wait", "--retry-exit", "1", "--", "sh", "-c", line).stdout == b"abcdef\n"
    )


def test_every_member_and_every_task_reads_all_of_it(lab: ServerProcess) -> None:
    array = piped(lab, b"abc", "--detach", "--array", "1-2", "--", "cat").stdout.decode().strip()
    assert lab.spill("wait", array).returncode == 0
    assert [lab.spill("logs", f"{array}.{index}").stdout for index in (1, 2)] == ["abc", "abc"]
    gang = piped(lab, b"abc\n", "--wait", "--tasks", "2", "--", "cat")
    assert sorted(gang.stdout.splitlines()) == [b"[0] abc", b"[1] abc"]


def test_it_goes_along_with_inputs_and_files_for_output(lab: ServerProcess) -> None:
    (lab.folder / "other.txt").write_text("other\n")
    done = piped(lab, b"given\n", "--wait", "--input", "other.txt", "--", "cat", "other.txt", "-")
    assert (done.returncode, done.stdout) == (0, b"other\ngiven\n")
    done = piped(lab, b"given\n", "--wait", "--stdout", "copy.txt", "--", "cat")
    assert (lab.folder / "copy.txt").read_bytes() == done.stdout == b"given\n"


def test_a_file_may_be_named(lab: ServerProcess) -> None:
    (lab.folder / "words.txt").write_text("from a file\n")
    assert piped(lab, b"", "--wait", "--stdin", "words.txt", "--", "cat").stdout == b"from a file\n"
    (lab.folder / "job.yaml").write_text(
        "apiVersion: spillover/v1\nkind: Job\nspec: {command: [cat], stdin: words.txt}\n"
    )
    job = lab.spill("submit", "job.yaml").stdout.strip()
    assert lab.spill("wait", job).returncode == 0
    assert lab.spill("logs", job).stdout == "from a file\n"
    assert "words.txt" in lab.spill("show", job).stdout
    missing = lab.spill("run", "--stdin", "none.txt", "--", "cat")
    assert (missing.returncode, missing.stderr) == (
        2,
        f"spill: spec.stdin: {lab.folder}/none.txt: No such file or directory\n",
    )


def test_too_much_is_refused_with_the_limit(lab: ServerProcess) -> None:
    done = piped(lab, bytes(21 << 20), "--", "wc", "-c")
    assert done.returncode == 2
    assert b"standard input has more than 20Mi, the maximum (files.max_inputs of the server)" in done.stderr


def test_what_a_shell_reads_its_commands_from_is_not_sent(lab: ServerProcess, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"{sys.executable} -m spillover.cli run --wait -- wc -c\necho after\n")
    with script.open() as commands:
        done = subprocess.run(
            ["/bin/sh"],
            cwd=lab.folder,
            env=clean_environment() | {"SPILL_DATA": str(lab.data)},
            stdin=commands,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.stdout == b"0\nafter\n"
