"""Problems with user input: one line each, all reported together."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

Path: TypeAlias = tuple[str | int, ...]
"""Position in a document: keys and list indexes from its root."""

Lines: TypeAlias = Mapping[Path, int]
"""The line on which each value of a document starts, from 1."""

MOST_SHOWN: Final = 50
"""Most problems to report for one submission; the rest are only counted."""

_JOB: Final = re.compile(r"jobs\[([0-9]+)\]\.?", re.ASCII)
"""Matches the place of a job in a request."""
_LAST: Final = re.compile(r"(?:\[[^\[\]]*\]|\.?[^.\[\]]+)\Z")
"""Matches the last part of a path."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class FormProblem(Struct, frozen=True):
    """One problem."""

    source: str
    """The file; empty if the input did not come from a file."""
    line: int | None
    """Counted from 1; None if unknown."""
    path: str
    """Position in the document, such as `spec.resources.cpu`; empty for the whole."""
    message: str
    """What is wrong, and what to do."""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.source and self.line else self.source
        return ": ".join(part for part in (place, self.path, self.message) if part)


class BadForm(Exception):
    """Invalid user input, with all of its problems."""

    def __init__(self, problems: Iterable[FormProblem], more: int = 0) -> None:
        every = tuple(problems)
        self.problems = every[:MOST_SHOWN]
        """The first problems, in the order in which they were found."""
        self.more = more + len(every) - len(self.problems)
        """How many more there are."""
        super().__init__(self.problems, self.more)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.more:
            lines.append(f"and {self.more} more problem{'s' if self.more != 1 else ''}")
        return "\n".join(lines)


class Findings:
    """Collects problems with their positions in a document."""

    __slots__ = ("found", "kept")

    def __init__(self) -> None:
        self.found: list[tuple[Path, str]] = []
        """Position and message of each."""
        self.kept: dict[Path, list[int]] = {}
        """For each list from which invalid items were left out: the original indexes of the others."""

    def add(self, path: Path, message: str) -> None:
        """Add a problem."""
        self.found.append((path, message))

    def written(self, path: Path) -> Path:
        """Convert a path into the valid parts of a value to a path into the original value."""
        whole: Path = ()
        for part in path:
            kept = self.kept.get(whole) if isinstance(part, int) else None
            whole = (*whole, kept[part] if kept and isinstance(part, int) else part)
        return whole

    def located(self, source: str = "", lines: Lines | None = None) -> list[FormProblem]:
        """Return the problems with their lines, ordered by line."""
        problems = [
            FormProblem(source, line_of(path, lines) if lines else None, path_text(path), message)
            for path, message in self.found
        ]
        return sorted(problems, key=lambda problem: problem.line or 0)

    def check(self, source: str = "", lines: Lines | None = None) -> None:
        """Raise BadForm if there are problems."""
        if self.found:
            raise BadForm(self.located(source, lines))


def line_of(path: Path, lines: Lines) -> int | None:
    """Return the line of a value, or of the nearest enclosing value that has one."""
    for end in range(len(path), -1, -1):
        if (line := lines.get(path[:end])) is not None:
            return line
    return None


class Origin(NamedTuple):
    """Where a document was written: its file, and the line of each of its fields."""

    source: str
    lines: Lines


def located_in(path: str, message: str, origins: Sequence[Origin]) -> FormProblem:
    """Locate a problem of a request by the path of its field; a path without a job index belongs to the only job."""
    match = _JOB.match(path)
    at = int(match[1]) if match is not None else 0
    if at >= len(origins) or (match is None and len(origins) > 1):
        return FormProblem("", None, path, message)
    field = path[match.end() :] if match is not None else path
    origin = origins[at]
    return FormProblem(origin.source, _line_of_text(field, origin.lines), field, message)


def _line_of_text(path: str, lines: Lines) -> int | None:
    """Return the line of a value, or of the nearest enclosing value that has one."""
    written = {path_text(each): line for each, line in lines.items()}
    while path and path not in written:
        path = _LAST.sub("", path) if _LAST.search(path) else ""
    return written.get(path)


def path_text(path: Path) -> str:
    """Return a path as text, such as `spec.after[0].job`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def either(words: Sequence[str]) -> str:
    """Return a choice of words, such as `always, auto or never`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def shown(value: object) -> str:
    """Return a value as the user wrote it, shortened to keep messages on one line."""
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
