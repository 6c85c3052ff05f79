"""Commands that a fork server runs do what they do as processes that were started by themselves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.fork_server import COMMON, ForkServer
from tests.support.processes import clean_environment

JOB = "apiVersion: spillover/v1\nkind: Job\nmetadata: {name: train}\nspec: {run: 'true', colour: red}\n"
NOBODY = {"SPILL_SERVER": "http://127.0.0.1:1", "SPILL_TOKEN": "any"}
"""A server that is not there."""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def started(folder: Path, *words: str, typed: str | None = None, **environment: str) -> tuple[int, str, str]:
    """What a command does that is started by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "spillover.cli", *words],
        cwd=folder,
        env=clean_environment() | environment,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "typed", "code"),
    [
        (("version",), None, 0),
        (("lßs",), None, 2),
        (("submit", "-"), JOB, 2),
        (("submit", "-"), None, 2),
        (("ls",), None, 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_ends_and_prints_as_one_that_is_started_by_itself(
    forks: ForkServer, tmp_path: Path, words: tuple[str, ...], typed: str | None, code: int
) -> None:
    done = forks.run(words, folder=tmp_path, environment=clean_environment() | NOBODY, typed=typed)
    assert (done.returncode, done.stdout, done.stderr) == started(tmp_path, *words, typed=typed, **NOBODY)
    assert done.returncode == code


def test_a_command_sees_its_own_environment_alone(forks: ForkServer, tmp_path: Path) -> None:
    # A package on PYTHONPATH and one in the folder: what `python -m` would import.
    for name in ("site", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "yaml.py").write_text(
            f"raise SystemExit('{name}: ' + __import__('os').environ['WORD'])"
        )
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    for folder, path, said in (("here", "", "here"), (".", str(tmp_path / "site"), "site")):
        environment = clean_environment() | {"PYTHONPATH": path, "WORD": "spoken"}
        done = forks.run(("submit", str(job)), folder=tmp_path / folder, environment=environment)
        assert (done.returncode, done.stderr) == (1, f"{said}: spoken\n")


def test_commands_run_side_by_side(forks: ForkServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as people:
        names = [f"c{number}" for number in range(12)]
        all_done = people.map(
            lambda name: forks.run((name,), folder=tmp_path, environment=clean_environment()), names
        )
        assert [done.stderr.split("'")[1] for done in all_done] == names


def test_one_that_takes_too_long_is_killed(forks: ForkServer, tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run(("submit", str(pipe)), folder=tmp_path, environment=clean_environment(), timeout=0.2)
    assert forks.run(("version",), folder=tmp_path, environment=clean_environment()).returncode == 0


def test_one_that_goes_on_shows_its_command_line_until_it_is_ended(forks: ForkServer, tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    words = ("submit", str(pipe))
    process = forks.start(words, folder=tmp_path, environment=clean_environment(), streams=(0, 1, 2))
    assert (process.poll(), process.returncode) == (None, None)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert [word.decode() for word in shown] == [sys.executable, "-m", "spillover.cli", *words]
    process.kill()
    assert process.wait(10) == process.poll() == -signal.SIGKILL
    process.terminate()  # which does nothing any more
    assert process.returncode == -signal.SIGKILL


def test_what_is_loaded_before_is_what_every_command_loads() -> None:
    listed = "print(*sorted(each for each in sys.modules if each.startswith('spillover.')))"
    asks = "import sys; from spillover.cli.main import main; main(['{}', '--server', 'http://127.0.0.1:1'])"
    loads = "import importlib; import sys; [importlib.import_module(each) for each in sys.argv[1:]]"

    def modules(program: str, *words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", f"{program}; {listed}", *words],
            env=clean_environment() | {"SPILL_TOKEN": "any"},
            capture_output=True,
            text=True,
            check=True,
        )
        return set(done.stdout.split())

    before = modules(loads, *COMMON)
    for command in ("ls", "clusters", "events"):
        assert before <= modules(asks.format(command))
