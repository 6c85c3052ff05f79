"""Python environments of jobs, on a real server and its agent."""

import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.client import CallFailed, SpillError
from spillover.client.calling import CallOptions
from tests.support.processes import ServerProcess, write_config
from tests.support.wheels import a_wheel, pylock, requirements, wheel_of


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one machine, and a list of packages with one that only its environments have."""
    folder = tmp_path_factory.mktemp("lab")
    a_wheel(folder / "wheels", "tiny_for_tests", "answer = 42")
    (folder / "requirements.txt").write_text(requirements(folder / "wheels", "tiny_for_tests"))
    (folder / "wrong.txt").write_text(requirements(folder / "wheels", "no_such_package"))
    # As `python3 -m venv` makes it, but without pip, which takes seconds.
    venv.create(folder / "named", symlinks=True)
    site = next((folder / "named" / "lib").glob("python3*")) / "site-packages"
    (site / "tiny_for_tests.py").write_text("answer = 43\n")
    agent = {"name": "n1", "cpu": 2, "memory": "1Gi", "environments": {"tiny": "named"}}
    clusters = [{"name": "onprem", "kind": "agents", "local": [agent]}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters))
    # The agent has no uv, and finds a pip that knows lock files here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(wheel_of("pip", folder / "index").parent))
        patch.setenv("PIP_NO_INDEX", "1")
        try:
            server.up()
            yield server
        finally:
            server.clear()


def asks() -> int:
    import tiny_for_tests  # type: ignore[import-not-found] # noqa: PLC0415 - only the environment has it

    answer: int = tiny_for_tests.answer
    return answer


def options(folder: Path, name: str) -> CallOptions:
    return {"environment": {"requirements": folder / name}, "workdir": str(folder)}


def test_commands_and_calls_run_in_an_environment_that_the_agent_builds(lab: ServerProcess) -> None:
    line = "echo $VIRTUAL_ENV; python -c 'import tiny_for_tests; print(tiny_for_tests.answer)'"
    done = lab.spill(
        "run", "--wait", "--requirements", "requirements.txt", "--", "sh", "-c", line, timeout=120
    )
    assert done.returncode == 0, done
    where, answer = done.stdout.split()
    assert answer == "42"
    assert "/environments/" in where
    asks.__module__ = "__main__"  # so that it travels with the call
    with lab.client() as client:
        assert client.call(asks, options=options(lab.folder, "requirements.txt")).result(timeout=120) == 42


def test_an_environment_may_come_from_a_lock_file(lab: ServerProcess) -> None:
    wheels = lab.folder / "wheels"
    (lab.folder / "pylock.toml").write_text(pylock(wheels / "tiny_for_tests-1.0-py3-none-any.whl"))
    line = "import tiny_for_tests; print(tiny_for_tests.answer)"
    locked = ("--requirements", "pylock.toml")
    done = lab.spill("run", "--wait", *locked, "--", "python", "-c", line, timeout=120)
    assert (done.returncode, done.stdout) == (0, "42\n"), done
    asks.__module__ = "__main__"
    with lab.client() as client:
        assert client.call(asks, options=options(lab.folder, "pylock.toml")).result(timeout=120) == 42


def test_an_environment_that_cannot_be_built_fails_the_job_with_the_installers_words(
    lab: ServerProcess,
) -> None:
    with lab.client() as client:
        call = client.call(asks, options=options(lab.folder, "wrong.txt"))
        with pytest.raises(CallFailed, match=r"cannot build its environment: .*no_such_package"):
            call.result(timeout=120)
    assert "no_such_package" in lab.spill("logs", "--stderr", call.job).stdout


def test_commands_and_calls_run_in_an_environment_that_the_agent_has(lab: ServerProcess) -> None:
    line = "echo $VIRTUAL_ENV; python -c 'import tiny_for_tests; print(tiny_for_tests.answer)'"
    done = lab.spill("run", "--wait", "--environment", "tiny", "--", "sh", "-c", line, timeout=60)
    assert done.returncode == 0, done
    assert done.stdout.split() == [str(lab.folder / "named"), "43"]
    asks.__module__ = "__main__"
    with lab.client() as client:
        assert client.call(asks, options={"environment": {"name": "tiny"}}).result(timeout=60) == 43


def test_a_lock_file_is_refused_with_the_command_that_exports_a_list(lab: ServerProcess) -> None:
    (lab.folder / "uv.lock").write_text("version = 1\n")
    done = lab.spill("run", "--requirements", "uv.lock", "--", "true")
    assert done.returncode == 2
    assert "make one with `uv export --format requirements-txt --output-file requirements.txt`" in done.stderr
    with lab.client() as client, pytest.raises(SpillError, match=r"'uv\.lock' is not a list of packages"):
        client.call(asks, options=options(lab.folder, "uv.lock"))


def test_a_job_waits_for_an_environment_that_nobody_has(lab: ServerProcess) -> None:
    job = lab.spill("run", "--detach", "--environment", "ml", "--", "true").stdout.strip()
    assert "environment:ml" in lab.spill("why", job).stdout
    lab.spill("cancel", job)
