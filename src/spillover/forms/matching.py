"""Which files of a folder a path or a pattern means, without ever leaving that folder.

`*`, `?` and `[...]` match within a name, `**` any number of folders; names that begin with a dot only what says so. A folder means all
files below it. A link is followed if it leads to something in the same folder; one to a folder only where the pattern names it, not on
the way through `**` or all that is below a folder, which would find the same files again and again. What is no file (a socket, a pipe)
is passed over.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from spillover.model.files import MOST_PATH, is_pattern, wrong_path

_ANY: Final = "**"
MOST_DEPTH: Final = 200
"""Folders within folders: whoever made more did so by mistake, or to see what happens."""


class Folder:
    """A folder to look for files in."""

    def __init__(self, root: Path, odd: Callable[[str, str], None]) -> None:
        self._root = os.path.realpath(root)
        self._odd = odd
        """Told of each path that matches and cannot be taken, and why."""
        self._looked: set[tuple[str, int]] = set()
        """Folders that were looked into, each with how much of the pattern was left."""

    def files(self, pattern: str) -> Iterator[str]:
        """Paths of all files that are meant, each once, in order."""
        seen: set[str] = set()
        self._looked.clear()
        for path in self._match("", pattern.split("/"), (self._root,)):
            if path in seen:
                continue
            seen.add(path)
            wrong = wrong_path(path)
            if wrong is None:
                yield path
            else:
                self._odd(path.encode(errors="replace").decode(), wrong)

    def _match(self, base: str, parts: Sequence[str], chain: tuple[str, ...]) -> Iterator[str]:
        """Files below a folder that match what is left of a pattern; `chain` are the real folders on the way there."""
        part, rest = parts[0], parts[1:]
        if (base, len(parts)) in self._looked:
            return
        self._looked.add((base, len(parts)))
        if part == _ANY:
            if not rest:
                yield from self._below(base, chain)
                return
            yield from self._match(base, rest, chain)
            for name in self._names(base):
                if name.startswith(".") or self._is_link(base + name):
                    continue
                if (inner := self._enter(base + name, chain)) is not None:
                    yield from self._match(f"{base}{name}/", parts, inner)
            return
        for name in self._names(base) if is_pattern(part) else [part]:
            if is_pattern(part) and not _like(name, part):
                continue
            if not rest:
                yield from self._take(base + name, chain)
            elif (inner := self._enter(base + name, chain)) is not None:
                yield from self._match(f"{base}{name}/", rest, inner)

    def _take(self, path: str, chain: tuple[str, ...]) -> Iterator[str]:
        """A path that matched: itself, or all below it."""
        if not self._inside(path):
            return
        if os.path.isfile(os.path.join(self._root, path)):  # noqa: PTH113, PTH118 - what cannot be looked at is none
            yield path
        elif (inner := self._enter(path, chain)) is not None:
            yield from self._below(f"{path}/", inner)

    def _below(self, base: str, chain: tuple[str, ...]) -> Iterator[str]:
        """All files below a folder."""
        for name in self._names(base):
            whole = os.path.join(self._root, base, name)  # noqa: PTH118
            if not (self._is_link(base + name) and os.path.isdir(whole)):  # noqa: PTH112
                yield from self._take(base + name, chain)

    def _is_link(self, path: str) -> bool:
        return os.path.islink(os.path.join(self._root, path))  # noqa: PTH114, PTH118

    def _enter(self, path: str, chain: tuple[str, ...]) -> tuple[str, ...] | None:
        """The way into a folder; None if it is none, or one that we are in already."""
        whole = os.path.join(self._root, path)  # noqa: PTH118 - a name that is not UTF-8 stays as it is
        if not os.path.isdir(whole) or not self._inside(path):  # noqa: PTH112
            return None
        if len(chain) > MOST_DEPTH or len(os.fsencode(path)) > MOST_PATH:
            self._odd(path, "is a folder too deep to look into")
            return None
        real = os.path.realpath(whole)
        return None if real in chain else (*chain, real)

    def _inside(self, path: str) -> bool:
        """Whether what a path leads to is in this folder; told if it is not."""
        real = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118
        if real == self._root or real.startswith(self._root.rstrip("/") + "/"):
            return True
        self._odd(path, "is a link that leads out of the folder")
        return False

    def _names(self, base: str) -> list[str]:
        """What a folder holds, in order; nothing of what cannot be read."""
        try:
            return sorted(os.listdir(os.path.join(self._root, base)))  # noqa: PTH118, PTH208
        except OSError:
            return []


def _like(name: str, part: str) -> bool:
    """Whether a name matches a part of a pattern."""
    if name.startswith(".") and not part.startswith("."):
        return False
    return re.fullmatch(fnmatch.translate(part), name) is not None


def fixed(pattern: str) -> str:
    """The folder that all matches of a pattern are in, with a slash behind it; empty for the one that it is seen from."""
    parts = pattern.split("/")
    at = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts) - 1)
    return "".join(f"{part}/" for part in parts[:at])
