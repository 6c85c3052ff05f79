"""What is offered while somebody types."""

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Self

import pytest

from spillover.cli.command import add_connection
from spillover.cli.commands.completion import SCRIPTS
from spillover.cli.completing import FILES, FOLDERS, complete
from spillover.cli.main import COMMANDS, main
from spillover.client import Client


class _Job:
    def __init__(self, job: str, name: str) -> None:
        self.id, self.name, self.state = job, name, "QUEUED"


class _Jobs:
    """A client that knows three jobs; two of them share a name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def jobs(self, *, limit: int) -> list[_Job]:
        return [_Job("aaaa", "train"), _Job("abbb", "eval"), _Job("cccc", "train")][:limit]


def _texts(*words: str, connect: Any = lambda _: _Jobs()) -> list[str]:
    return [word.text for word in complete(words, connect)]


def test_commands_come_first() -> None:
    assert _texts("") == list(COMMANDS)
    assert _texts("comp") == ["completion"]
    assert _texts("help", "comp") == ["completion"]
    assert _texts("nonsense", "") == []


def test_options_and_their_values() -> None:
    assert "--json" in _texts("ls", "--")
    assert _texts("ls", "--state", "que") == ["QUEUED"]
    assert _texts("ls", "--state=Q") == ["--state=QUEUED"]
    assert _texts("schema", "") == ["job", "config"]
    assert _texts("up", "--config", "") == [FILES]
    assert _texts("up", "--data", "") == [FOLDERS]
    assert "--words" not in _texts("completion", "--")


def test_actions_of_a_command_and_what_follows_them() -> None:
    assert _texts("policy", "s") == ["show", "set"]
    assert "--dry-run" in _texts("policy", "set", "--")
    assert "--dry-run" not in _texts("policy", "show", "--")
    assert _texts("policy", "nonsense", "") == []


def test_a_client_is_made_with_all_that_says_which_server_is_asked() -> None:
    asked: list[Namespace] = []

    def connect(args: Namespace) -> Any:
        asked.append(args)
        return _Jobs()

    parser = ArgumentParser()
    add_connection(parser)
    assert _texts("show", "", connect=connect)
    assert vars(asked[0]) == vars(parser.parse_args([]))
    _texts("show", "--server", "https://h", "--ca", "ca.pem", "", connect=connect)
    assert asked[1] == parser.parse_args(["--server", "https://h", "--ca", "ca.pem"])


def test_jobs_by_id_and_by_a_name_that_only_one_has() -> None:
    assert _texts("show", "") == ["aaaa", "abbb", "cccc", "eval"]
    assert _texts("cancel", "aaaa", "c") == ["cccc"]
    assert _texts("show", "aaaa", "") == []


def test_no_server_is_no_error() -> None:
    def refuse(args: Namespace) -> Client:
        raise OSError("nobody there")

    assert _texts("show", "", connect=refuse) == []


def test_the_command_behind_two_dashes_is_the_shells_business() -> None:
    assert _texts("run", "--", "python", "") == [FILES]


def test_a_shell_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "write bash, zsh or fish" in capsys.readouterr().err


def _spill_on_path(folder: Path) -> str:
    """A folder with the `spill` of this interpreter."""
    script = folder / "spill"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m spillover.cli "$@"\n')
    script.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def _in_bash(path: str, line: str, words: list[str]) -> list[str]:
    typed = " ".join(f"'{word}'" for word in words)
    script = (
        f"{SCRIPTS['bash']}\nCOMP_LINE='{line}'; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}\n"
        '_spill\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_bash_completes(tmp_path: Path) -> None:
    path = _spill_on_path(tmp_path)
    assert _in_bash(path, "spill pol", ["spill", "pol"]) == ["policy"]
    assert _in_bash(path, "spill ls --stat", ["spill", "ls", "--stat"]) == ["--state"]
    assert _in_bash(path, "spill ls --state=Q", ["spill", "ls", "--state", "=", "Q"]) == ["QUEUED"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    subprocess.run([shell, "-n", str(script)], check=True)
