"""`.ci/run` in a project whose tests fail once, always or in great number."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TARGETS = "check tools test test-browser kube test-kube test-stories test-faults"
TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({many}))
def test_race(number):
    once = Path(f"raced-{{number}}")
    raced, _ = once.exists(), once.touch()
    assert raced

def test_other():
    assert {passes}
"""


def a_project(folder: Path, *, races: int = 0, passes: bool = True, crashes: bool = False) -> Path:
    """A project whose `make test` has so many tests that fail the first time."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "tests").mkdir()
    ending = "\n\ndef pytest_sessionfinish():\n    raise RuntimeError\n" if crashes else ""
    (folder / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text() + ending)
    (folder / "tests" / "test_all.py").write_text(TESTS.format(many=races, passes=passes))
    (folder / "Makefile").write_text(
        f".PHONY: {TARGETS}\n{TARGETS.replace('test ', '', 1)}:\n\t@echo did $@\n"
        "test:\n\t@.venv/bin/python -m pytest -q -p xdist -n 1 --dist loadfile\n"
    )
    return folder


def run(project: Path) -> tuple[int, list[str]]:
    """How `.ci/run` ends there, and the lines it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [project / ".ci" / "run"],
        cwd=project,
        env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # which is quicker
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_a_test_that_fails_once_is_named_at_the_end_and_stops_nothing(tmp_path: Path) -> None:
    code, lines = run(a_project(tmp_path, races=1))
    assert code == 0
    assert "did test-faults" in lines
    assert lines[-1] == "FLAKY: tests/test_all.py::test_race[0]"


def test_without_a_failure_nothing_is_run_again(tmp_path: Path) -> None:
    code, lines = run(a_project(tmp_path))
    assert code == 0
    assert lines[-1] == "did test-faults"


@pytest.mark.parametrize(
    ("races", "passes", "crashes"),
    [
        pytest.param(0, False, False, id="one fails always"),
        pytest.param(1, False, False, id="one of two fails always"),
        pytest.param(4, True, False, id="too many to be rare"),
        pytest.param(1, True, True, id="the run itself breaks"),
    ],
)
def test_other_failures_stop_it(tmp_path: Path, races: int, passes: bool, crashes: bool) -> None:
    code, lines = run(a_project(tmp_path, races=races, passes=passes, crashes=crashes))
    assert code != 0
    assert "did kube" not in lines
    assert not any(line.startswith("FLAKY") for line in lines)
