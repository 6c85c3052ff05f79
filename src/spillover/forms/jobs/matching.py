"""Finds the files of a folder that match a path or pattern, without ever leaving the folder.

`*`, `?` and `[...]` match within a name, `**` any number of folders. Hidden names match only patterns that start with a
dot. A folder that is named stands for all files below it, one that a pattern matches for all that are not hidden: nobody
who writes `*` means `.git` or `.env`. Symbolic links are followed if they lead into the same folder. Links to
folders are followed only where the pattern names them: `**` and whole folders skip them, because they would find the
same files again. Sockets, pipes and the like are ignored.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from spillover.model.files import MOST_PATH, WHOLE, is_pattern, tidy, wrong_path

_ANY: Final = "**"
MOST_DEPTH: Final = 200
"""Most levels of folders; deeper trees are mistakes or attacks."""


class LeavesOut(Protocol):
    """Says whether a path stays behind, unless somebody names it."""

    def __call__(self, path: str, *, folder: bool) -> bool:
        """Return whether a file or folder stays behind."""
        ...


class Folder:
    """A folder to search."""

    def __init__(
        self, root: Path, odd: Callable[[str, str], None], leaves_out: "LeavesOut | None" = None
    ) -> None:
        self._root = os.path.realpath(root)
        self._leaves_out = leaves_out or _nothing
        """Asked about what nobody named: what is below a folder, and folders that a pattern matches."""
        self._odd = odd
        """Called with each matching path that cannot be used, and the reason."""
        self._looked: set[tuple[str, int]] = set()
        """Visited folders, each with the length of the remaining pattern."""

    def files(self, pattern: str) -> Iterator[str]:
        """Yield the paths of all files that a tidy path or pattern means, each once, in order."""
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
        """Yield files below a folder that match the rest of a pattern; `chain` holds the real folders on the way."""
        part, rest = parts[0], parts[1:]
        if (base, len(parts)) in self._looked:
            return
        self._looked.add((base, len(parts)))
        if part == _ANY:
            if not rest:
                yield from self._below(base, chain, hidden=False)
                return
            yield from self._match(base, rest, chain)
            for name in self._names(base):
                if name.startswith(".") or self._is_link(base + name):
                    continue
                inner = self._enter(base + name, chain)
                if inner is not None and not self._leaves_out(base + name, folder=True):
                    yield from self._match(f"{base}{name}/", parts, inner)
            return
        for name in self._names(base) if is_pattern(part) else [part]:
            if is_pattern(part) and not _like(name, part):
                continue
            if not rest:
                if self._is_named(base + name, part):
                    yield from self._take(base + name, chain, hidden=not is_pattern(part))
            elif (inner := self._enter(base + name, chain)) is not None:
                yield from self._match(f"{base}{name}/", rest, inner)

    def _is_named(self, path: str, part: str) -> bool:
        """Return whether a part of a pattern that matched names a path, which then is taken in any case."""
        if not is_pattern(part) or part.startswith("."):
            return True
        folder = os.path.isdir(os.path.join(self._root, path))  # noqa: PTH112, PTH118
        return not folder or not self._leaves_out(path, folder=True)

    def _take(self, path: str, chain: tuple[str, ...], *, hidden: bool) -> Iterator[str]:
        """Yield a path that matched, or all files below it, with or without hidden ones."""
        if not self._inside(path):
            return
        if os.path.isfile(os.path.join(self._root, path)):  # noqa: PTH113, PTH118 - False for what cannot be accessed
            yield path
        elif (inner := self._enter(path, chain)) is not None:
            yield from self._below(f"{path}/", inner, hidden=hidden)

    def _below(self, base: str, chain: tuple[str, ...], *, hidden: bool) -> Iterator[str]:
        """Yield all files below a folder, with or without hidden ones."""
        for name in self._names(base):
            if name.startswith(".") and not hidden:
                continue
            folder = os.path.isdir(os.path.join(self._root, base, name))  # noqa: PTH112, PTH118
            if not (folder and self._is_link(base + name)) and not self._leaves_out(
                base + name, folder=folder
            ):
                yield from self._take(base + name, chain, hidden=hidden)

    def _is_link(self, path: str) -> bool:
        return os.path.islink(os.path.join(self._root, path))  # noqa: PTH114, PTH118

    def _enter(self, path: str, chain: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the chain into a folder; None if it is not a folder, or is in the chain already."""
        whole = os.path.join(self._root, path)  # noqa: PTH118 - keeps names that are not UTF-8
        if not os.path.isdir(whole) or not self._inside(path):  # noqa: PTH112
            return None
        if len(chain) > MOST_DEPTH or len(os.fsencode(path)) > MOST_PATH:
            self._odd(path, "is nested too deeply")
            return None
        real = os.path.realpath(whole)
        return None if real in chain else (*chain, real)

    def _inside(self, path: str) -> bool:
        """Return whether a path leads into this folder; report it if not."""
        real = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118
        if real == self._root or real.startswith(self._root.rstrip("/") + "/"):
            return True
        self._odd(path, "is a symbolic link to outside the folder")
        return False

    def _names(self, base: str) -> list[str]:
        """Return the sorted names in a folder; nothing if it is unreadable."""
        try:
            return sorted(os.listdir(os.path.join(self._root, base)))  # noqa: PTH118, PTH208
        except OSError:
            return []


def _nothing(_: str, *, folder: bool) -> bool:  # noqa: ARG001 - as LeavesOut
    """Leave nothing out."""
    return False


def _like(name: str, part: str) -> bool:
    """Return whether a name matches a part of a pattern."""
    if name.startswith(".") and not part.startswith("."):
        return False
    return re.fullmatch(fnmatch.translate(part), name) is not None


def among(paths: Iterable[str], pattern: str) -> list[str]:
    """Return those paths of files that a tidy path or pattern means, as `Folder` finds files in a folder."""
    if not is_pattern(pattern):
        return [path for path in paths if path == pattern or path.startswith(f"{pattern}/")]
    parts = pattern.split("/")
    return [path for path in paths if _means(parts, path.split("/"))]


def _means(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a pattern means a file, or a folder around it. Takes the product of both lengths at most."""
    count = len(names)
    shown = [True] * (count + 1)
    """Whether no name from here on is hidden."""
    for at in reversed(range(count)):
        shown[at] = shown[at + 1] and not names[at].startswith(".")
    rest: list[bool] = []
    """For each position in the names, whether the rest of the pattern means what follows."""
    for place, part in reversed(list(enumerate(parts))):
        last, here = place == len(parts) - 1, [False] * (count + 1)
        for at in reversed(range(count + 1)):
            if part == _ANY:
                within = at < count and not names[at].startswith(".") and here[at + 1]
                here[at] = at < count and shown[at] if last else rest[at] or within
            elif at < count and (_like(names[at], part) if is_pattern(part) else names[at] == part):
                here[at] = at == count - 1 or not is_pattern(part) or shown[at + 1] if last else rest[at + 1]
        rest = here
    return rest[0]


def landing(paths: Sequence[str], pattern: str, to: str | None, *, folder: bool) -> list[tuple[str, str]]:
    """Return each path that a tidy path or pattern found, with its path where the job runs.

    `to` is that path, or with a trailing slash a folder; None keeps the path. `folder` says whether the pattern is one.
    """
    if to is None:
        return [(path, path) for path in paths]
    into = tidy(to)
    if list(paths) == [pattern] and into != WHOLE and not to.endswith("/"):
        return [(pattern, into)]
    base = f"{pattern}/" if folder else fixed(pattern)
    return [(path, tidy(f"{into}/{path.removeprefix(base)}")) for path in paths]


def fixed(pattern: str) -> str:
    """Return the folder that holds all matches of a pattern, with a trailing slash; empty for the root."""
    parts = pattern.split("/")
    at = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts) - 1)
    return "".join(f"{part}/" for part in parts[:at])
