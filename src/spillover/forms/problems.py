"""What is wrong with something that a person wrote: every problem is one line, and all are told at once."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

Path: TypeAlias = tuple[str | int, ...]
"""Where in a document: keys and list indexes from its root."""

Lines: TypeAlias = Mapping[Path, int]
"""The line on which each value of a document starts, counted from 1."""

MOST_SHOWN: Final = 50
"""Problems told of one submission; the rest are counted."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class FormProblem(Struct, frozen=True):
    """One thing that is wrong."""

    source: str
    """File that it is in; empty for what did not come from a file."""
    line: int | None
    """Counted from 1; None if there is no line to name."""
    path: str
    """Where in the document, such as `spec.resources.cpu`; empty for the whole."""
    message: str
    """What is wrong and what to do."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.source and self.line else self.source
        return ": ".join(part for part in (place, self.path, self.message) if part)


class BadForm(Exception):
    """What a person wrote cannot be taken; holds everything that is wrong with it."""

    def __init__(self, problems: Iterable[FormProblem], more: int = 0) -> None:
        every = tuple(problems)
        self.problems = every[:MOST_SHOWN]
        """The first of them, in the order they were found."""
        self.more = more + len(every) - len(self.problems)
        """How many there are beyond those."""
        super().__init__(self.problems, self.more)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.more:
            lines.append(f"and {self.more} more problem{'s' if self.more != 1 else ''}")
        return "\n".join(lines)


class Findings:
    """Problems while they are being found, by their place in the document."""

    __slots__ = ("found", "kept")

    def __init__(self) -> None:
        self.found: list[tuple[Path, str]] = []
        """Where, and what."""
        self.kept: dict[Path, list[int]] = {}
        """Of each list from which wrong items were left out: where the others had been."""

    def add(self, path: Path, message: str) -> None:
        """Note one."""
        self.found.append((path, message))

    def written(self, path: Path) -> Path:
        """A path into what is right of a value, as a path into the value as it was written."""
        whole: Path = ()
        for part in path:
            kept = self.kept.get(whole) if isinstance(part, int) else None
            whole = (*whole, kept[part] if kept and isinstance(part, int) else part)
        return whole

    def located(self, source: str = "", lines: Lines | None = None) -> list[FormProblem]:
        """Each with its line, in the order of lines."""
        problems = [
            FormProblem(source, line_of(path, lines) if lines else None, path_text(path), message)
            for path, message in self.found
        ]
        return sorted(problems, key=lambda problem: problem.line or 0)

    def check(self, source: str = "", lines: Lines | None = None) -> None:
        """Raise if there are any."""
        if self.found:
            raise BadForm(self.located(source, lines))


def line_of(path: Path, lines: Lines) -> int | None:
    """The line of the value, or of the nearest one around it that has a line."""
    for end in range(len(path), -1, -1):
        if (line := lines.get(path[:end])) is not None:
            return line
    return None


def path_text(path: Path) -> str:
    """A path as people read it: `spec.after[0].job`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object) -> str:
    """A value as it was written, shortened so that a problem stays one line."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "a mapping"
    return "nothing" if value is None else f"a {type(value).__name__}"
