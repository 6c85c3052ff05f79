"""The page on the first set-up is true: each line is typed in the shell of its machine, in this order, and prints what it shows.

The three machines are three folders. What differs from the page is the server's name, which is that of this machine, its ports, and `scp`.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import clean_environment, free_ports

PAGE = Path(__file__).parents[2] / "docs" / "first-setup.md"
CUT = "[...]"
_BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"(server|node|laptop)\$ (.*)")
_END = "typed, and exited with"
_SCP = """#!/bin/sh
for each; do case $each in .) ;; *) cp "$SERVER_HOME/${each#*:}" . || exit 1 ;; esac; done
"""


class Machine:
    """A person at the prompt of one machine."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment | {"XDG_STATE_HOME": str(folder / "state")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, line: str, shown: int) -> list[str]:
        """Type a command, which must succeed; what it printed, of one in the background so many lines."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(line + "\n")
        if line.endswith("&"):
            self._bash.stdin.flush()
            return [self._line() for _ in range(shown)]
        self._bash.stdin.write(f"echo {_END} $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        while not (last := self._line()).startswith(_END):
            printed.append(last)
        assert last == f"{_END} 0", (line, last, printed)
        return printed

    def ended(self) -> int:
        """Close the shell once what it has in the background has ended; the exit code of that."""
        self._bash.communicate("wait $!\n", timeout=60)
        return self._bash.returncode

    def clear(self) -> None:
        """End what a test left."""
        if self._bash.returncode is None:
            self._bash.communicate("kill %1 2>/dev/null\nwait\n", timeout=60)

    def _line(self) -> str:
        assert self._bash.stdout is not None
        line = self._bash.stdout.readline()
        assert line, "the shell has gone"
        return line.rstrip()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[[str], Machine]]:
    scp = tmp_path / "bin" / "scp"
    scp.parent.mkdir()
    scp.write_text(_SCP)
    scp.chmod(0o755)
    usual = clean_environment()
    environment = usual | {
        "PATH": f"{scp.parent}:{Path(sys.executable).parent}:{usual['PATH']}",
        "SERVER_HOME": str(tmp_path / "server"),
    }
    made: dict[str, Machine] = {}

    def find(name: str) -> Machine:
        if name not in made:
            made[name] = Machine(tmp_path / name / "spill", environment)
        return made[name]

    yield find
    for machine in reversed(made.values()):
        machine.clear()


def matches(shown: str, printed: str) -> bool:
    """Whether a line is as it is shown, but for what is left out and how wide its gaps are."""
    pattern = r"\s+".join(map(re.escape, shown.split())).replace(re.escape(CUT), ".*")
    return re.fullmatch(pattern, printed) is not None


def steps(block: str) -> Iterator[tuple[str, str, list[str]]]:
    """The commands of a block: the machine, what is typed, and what is shown for it."""
    for part in re.split(r"^(?=\w+\$ )", block, flags=re.MULTILINE):
        if part:
            first, *shown = part.splitlines()
            found = _PROMPT.fullmatch(first)
            assert found is not None, first
            yield found[1], found[2], shown


@pytest.mark.slow
def test_every_line_of_the_page_works(machines: Callable[[str], Machine]) -> None:
    http, grpc = free_ports(2)
    text = PAGE.read_text().replace("build.example.org", "localhost")
    text = text.replace(":7070", f":{http}").replace(":7071", f":{grpc}")
    typed: list[str] = []
    for kind, body in _BLOCK.findall(text):
        if kind == "yaml":
            (machines("server").folder / "spill.yaml").write_text(body)
            continue
        for name, line, shown in steps(body):
            printed = machines(name).type(line, len(shown))
            if shown[-1:] == [CUT]:
                shown.pop()
                printed = printed[: len(shown)]
            assert len(shown) == len(printed), (line, printed)
            assert all(map(matches, shown, printed)), (line, printed)
            typed.append(line)
    assert len(typed) > 10
    assert [machines(name).ended() for name in ("node", "server")] == [0, 0]


def test_a_line_that_is_not_as_shown_is_noticed() -> None:
    assert matches("node1  onprem ready [...]", "node1 onprem   ready  0 0")
    assert not matches("node1 onprem ready [...]", "node1 onprem lost 0")
    assert not matches("apple", "apples")
