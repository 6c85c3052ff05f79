"""Runs the tours of the README and the docs: executes their commands in order and compares the output.

A block of `yaml` or `python` that begins with `# NAME` is a file. In a block of `console`, `$` begins a command and its
output follows. Numbers, times and ids in the output may differ. `[...]` stands for omitted lines, or the rest of a
line.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

CUT: Final = "[...]"
_BLOCK: Final = re.compile(r"^```(console|yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# (\S+\.(?:yaml|py))\n")
_VARIES: Final = re.compile(
    r"(?P<cut>\[\.\.\.\])"
    r"|(?P<id>\b[a-z2-7]{12}\b)"
    r"|(?P<user>\broot\b)"
    r"|(?P<time>\b\d[\d.]*(?:ms|[smhd])\b)"
    r"|(?P<number>\d[\d.:-]*)"
    r"|(?P<gap> +)"
)
_PATTERNS: Final = {
    "id": r"[a-z2-7]{12}",
    "user": r"\S+",
    "time": r"[\d.]+(?:ms|[smhd\d])*",
    "number": r"[\d.:-]+",
    "gap": r" +",
    "cut": r".*",
}


class Shell:
    """A user at a prompt, with at most one server in the background."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.server: subprocess.Popen[str] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        self.environment = kept | {"PATH": path, "TZ": "UTC"} | dict(more or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=20)

    def tour(self, text: str) -> int:
        """Write the files of a text and run its commands; each must print what is shown. Return their number."""
        typed = 0
        for kind, body in _BLOCK.findall(text):
            if (name := _FILE.match(body)) is not None:
                (self.folder / name[1]).write_text(body)
            if kind != "console":
                continue
            for command, shown in steps(body):
                printed = self.type(command)
                assert output_of(shown).fullmatch(printed), (
                    f"{command} is not shown as it printed:\n{printed}"
                )
                typed += 1
        return typed

    def type(self, line: str) -> str:
        """Run a command, which must succeed; return its output."""
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
        """Start the server on free ports; return its ready line."""
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
        """Stop the server, which must exit in order."""
        assert self.server is not None
        server, self.server = self.server, None
        server.terminate()
        out, _ = server.communicate(timeout=20)
        assert server.returncode == 0
        return out


def section(text: str, heading: str) -> str:
    """Return the section below a heading of a page."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no heading {heading!r}"
    return rest.partition("\n## ")[0] + "\n"


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with its expected output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line.strip())
    return found


def output_of(shown: list[str]) -> re.Pattern[str]:
    """Return a pattern for the output of a command."""
    return re.compile(
        "".join(r"(?:.*\n)*?" if line == CUT else rf" *{pattern_of(line)} *\n" for line in shown)
    )


def pattern_of(line: str) -> str:
    """Return a pattern for a line of output."""
    return "".join(_parts(line))


def _parts(line: str) -> Iterator[str]:
    at = 0
    for found in _VARIES.finditer(line):
        yield re.escape(line[at : found.start()])
        yield _PATTERNS[found.lastgroup or ""]
        at = found.end()
    yield re.escape(line[at:])
