"""Decides which files of a folder stay behind, by the rules of `.gitignore`, as git reads them.

A rule file speaks of the files of its folder and below. In it the last rule that matches decides; a deeper file goes
before a higher one. What is in a folder that is left out is never looked at.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t-\\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NEVER: Final = "(?!)"


class Rule(NamedTuple):
    """One line of a rule file."""

    matches: re.Pattern[str]
    whole: bool
    """Whether it is about the path below the folder of its file; otherwise about the name alone."""
    folders: bool
    """Whether it is about folders only."""
    leaves_out: bool
    """Whether what matches is left out; otherwise it is taken again."""


class RuleFiles:
    """The rule files of one name in a tree of folders."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        """Returns the text of the rule file in a folder, such as `a/b`; empty for the root, and if there is none."""
        self._rules: dict[str, list[Rule]] = {}

    def leave_out(self, path: str, *, folder: bool) -> bool | None:
        """Return whether a path is left out, apart from the folders around it; None if no rule says."""
        name = path.rpartition("/")[2]
        at = path
        while at:
            at = at.rpartition("/")[0]
            below = path.removeprefix(f"{at}/") if at else path
            for rule in reversed(self._of(at)):
                if (folder or not rule.folders) and rule.matches.fullmatch(
                    _bytes(below if rule.whole else name)
                ):
                    return rule.leaves_out
        return None

    def _of(self, folder: str) -> list[Rule]:
        """Return the rules of the file in a folder."""
        if folder not in self._rules:
            self._rules[folder] = read_rules(self._read(folder))
        return self._rules[folder]


def read_rules(text: str) -> list[Rule]:
    """Return the rules of a file, in order."""
    return [
        rule for line in text.removeprefix("\ufeff").split("\n") for rule in _rule(line.removesuffix("\r"))
    ]


def _rule(line: str) -> Iterable[Rule]:
    """Yield the rule of a line, if it has one."""
    if line.startswith("#"):
        return
    pattern = _trimmed(line)
    leaves_out = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    folders, pattern = pattern.endswith("/"), pattern.removesuffix("/")
    if pattern:
        whole = "/" in pattern
        expression = _expression(_bytes(pattern.removeprefix("/") if whole else pattern), paths=whole)
        yield Rule(re.compile(expression, re.DOTALL), whole, folders, leaves_out)


def _trimmed(line: str) -> str:
    """Return a line without the spaces at its end, except one behind a backslash."""
    short = line.rstrip(" ")
    slashes = len(short) - len(short.rstrip("\\"))
    return f"{short} " if slashes % 2 and len(short) < len(line) else short


def _bytes(text: str) -> str:
    """Return a text with one character for each of its bytes, as git compares bytes."""
    return text.encode(errors="surrogateescape").decode("latin-1")


def _expression(pattern: str, *, paths: bool) -> str:
    """Return the regular expression of a pattern: for whole paths, or for names."""
    found: list[str] = []
    at, end = 0, len(pattern)
    while at < end:
        letter = pattern[at]
        if letter == "*":
            first = at
            while at < end and pattern[at] == "*":
                at += 1
            bounded = (first == 0 or pattern[first - 1] == "/") and (at == end or pattern[at] == "/")
            if at - first == 1 or not paths or not bounded:
                found.append("[^/]*")
            elif at == end:
                found.append(".*")
            else:
                found.append("(?:.*/)?")
                at += 1  # the slash behind it
        elif letter == "?":
            found.append("[^/]")
            at += 1
        elif letter == "[":
            part, at = _class(pattern, at + 1)
            found.append(part)
        elif letter == "\\":
            if at + 1 == end:
                return _NEVER
            found.append(re.escape(pattern[at + 1]))
            at += 2
        else:
            found.append(re.escape(letter))
            at += 1
    return "".join(found)


def _class(pattern: str, at: int) -> tuple[str, int]:  # noqa: C901, PLR0912 - the cases of git's wildmatch, in its order
    """Return the expression of a set of characters, and the position behind it; one that is not closed matches nothing."""
    never, end = (_NEVER, len(pattern)), len(pattern)
    negated = at < end and pattern[at] in "!^"
    at += negated
    parts: list[str] = []
    before = ""
    """The character that a range may begin with."""
    first = True
    while first or at >= end or pattern[at] != "]":
        first = False
        if at >= end:
            return never
        letter = pattern[at]
        if letter == "\\":
            at += 1
            if at >= end:
                return never
            letter = pattern[at]
            parts.append(_escaped(letter))
        elif letter == "-" and before and at + 1 < end and pattern[at + 1] != "]":
            at += 1
            if pattern[at] == "\\":
                at += 1
                if at >= end:
                    return never
            if before <= pattern[at]:
                parts.append(f"{_escaped(before)}-{_escaped(pattern[at])}")
            letter = ""
        elif letter == "[" and pattern.startswith(":", at + 1):
            close = pattern.find("]", at + 2)
            if close < 0:
                return never
            if close > at + 2 and pattern[close - 1] == ":":
                named = _CLASSES.get(pattern[at + 2 : close - 1])
                if named is None:
                    return never
                parts.append(named)
                at, letter = close, ""
            else:
                parts.append(_escaped(letter))
        else:
            parts.append(_escaped(letter))
        before = letter
        at += 1
    body = "".join(parts)
    if negated:
        return (f"(?!/)[^{body}]" if body else "[^/]"), at + 1
    return (f"(?!/)[{body}]" if body else _NEVER), at + 1


def _escaped(letter: str) -> str:
    """Return a character as it is written in a set of a regular expression."""
    return f"\\x{ord(letter):02x}"
