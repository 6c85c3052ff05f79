"""The tour in the README is true: its commands are typed in their order, and print what it shows.

A block of `yaml` or `python` that begins with `# NAME` is a file. In a block of `console`, `$` begins a command, and what follows is
its output, in which numbers, times and ids may differ. `[...]` stands for what is left out: lines, or the rest of one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
CUT = "[...]"
_BLOCK = re.compile(r"^```(console|yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:yaml|py))\n")
_VARIES = re.compile(
    r"(?P<cut>\[\.\.\.\])"
    r"|(?P<id>\b[a-z2-7]{12}\b)"
    r"|(?P<user>\broot\b)"
    r"|(?P<time>\b\d[\d.]*(?:ms|[smhd])\b)"
    r"|(?P<number>\d[\d.:-]*)"
    r"|(?P<gap> +)"
)
_PATTERNS = {
    "id": r"[a-z2-7]{12}",
    "user": r"\S+",
    "time": r"[\d.]+(?:ms|[smhd\d])*",
    "number": r"[\d.:-]+",
    "gap": r" +",
    "cut": r".*",
}


class Shell:
    """A person at a prompt, who has at most one server in the background."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen[str] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}
        self.environment = kept | {
            "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
            "TZ": "UTC",
        }

    def type(self, line: str) -> str:
        """Type a command, which must succeed; returns all that it printed."""
        if line == "kill %1":
            return self.stop()
        if line.startswith("spill up") and line.endswith("&"):
            command, _, log = line.removesuffix("&").partition(" 2> ")
            return self.up(command.split(), log.strip())
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line} exited with {done.returncode}: {done.stdout}"
        return done.stdout

    def up(self, words: list[str], log_name: str) -> str:
        """Start the server on ports of its own; returns the line that says it is ready."""
        with (self.folder / log_name).open("a") as log:
            self.server = subprocess.Popen(
                [*words, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.server.stdout is not None
        return self.server.stdout.readline()

    def stop(self) -> str:
        """Stop the server, which leaves in good order."""
        assert self.server is not None
        server, self.server = self.server, None
        server.terminate()
        out, _ = server.communicate(timeout=20)
        assert server.returncode == 0
        return out


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    one = Shell(tmp_path)
    yield one
    if one.server is not None:
        one.server.terminate()
        one.server.communicate(timeout=20)


def pattern_of(line: str) -> str:
    """What a line of output may look like another time."""
    parts, at = [], 0
    for found in _VARIES.finditer(line):
        parts += [re.escape(line[at : found.start()]), _PATTERNS[found.lastgroup or ""]]
        at = found.end()
    return "".join([*parts, re.escape(line[at:])])


def output_of(shown: list[str]) -> re.Pattern[str]:
    """What the output of a command may look like another time, from its first line to its last."""
    return re.compile(
        "".join(r"(?:.*\n)*?" if line == CUT else rf" *{pattern_of(line)} *\n" for line in shown)
    )


def steps(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the lines that are shown for it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line.strip())
    return found


def test_the_tour_prints_what_the_readme_shows(shell: Shell) -> None:
    typed = 0
    for kind, body in _BLOCK.findall(README.read_text()):
        if (name := _FILE.match(body)) is not None:
            (shell.folder / name[1]).write_text(body)
        if kind != "console":
            continue
        for command, shown in steps(body):
            printed = shell.type(command)
            assert output_of(shown).fullmatch(printed), f"{command} is not shown as it printed:\n{printed}"
            typed += 1
    assert typed > 20
    assert shell.server is None


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("67mjpu5c2yjw is 0.7s old", "lqvgietivyet  is 11ms old", True),
        ("ready http://127.0.0.1:7070", "ready http://127.0.0.1:41234", True),
        ("state SUCCEEDED", "state FAILED", False),
    ],
)
def test_only_numbers_times_and_ids_may_differ(shown: str, printed: str, same: bool) -> None:
    assert (re.fullmatch(pattern_of(shown), printed) is not None) is same


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        (["a 1", "b", "c"], True),
        (["a 2", CUT], True),
        ([CUT, "b", "c"], True),
        (["a [...]", CUT, "c"], True),
        (["a 1", "c"], False),
        (["a 1", "b"], False),
    ],
)
def test_only_what_says_so_is_left_out(shown: list[str], same: bool) -> None:
    assert (output_of(shown).fullmatch("a 3\nb\nc\n") is not None) is same
