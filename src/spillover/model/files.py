"""Files that travel with jobs: where each is put, and which bytes it has."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

MOST_FILES: Final = 5_000
"""Inputs of a job, and outputs of a task."""
MOST_PATH: Final = 1024
"""Bytes."""
MOST_PART: Final = 255
"""Bytes between two slashes: no file system takes more."""
PATH_RULE: Final = "a path below the folder that the job runs in, without `..`, as data/train.csv"
DIGEST_RULE: Final = "64 hexadecimal digits, in lower case: the SHA-256 of its bytes"
KEPT_STREAMS: Final = (".spillover/stdout", ".spillover/stderr")
"""Where the output of a task is listed among the files that it brought back, where the server keeps it."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAGIC = re.compile(r"[*?\[]")


class File(Struct, frozen=True):
    """One file."""

    path: str
    """Relative, with slashes, below the folder that the job runs in."""
    digest: str
    """SHA-256 of its bytes, hexadecimal."""
    size: int
    executable: bool = False


def is_digest(text: str) -> bool:
    """Whether this could be the SHA-256 of something."""
    return _DIGEST.fullmatch(text) is not None


def is_pattern(path: str) -> bool:
    """Whether a path may mean several files."""
    return _MAGIC.search(path) is not None


def wrong_path(path: str) -> str | None:
    """What is wrong with a path or a pattern; None if it stays below the folder that it is seen from."""
    if not path:
        return "is empty"
    if "\0" in path:
        return "holds a NUL character"
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if ".." in parts:
        return "leads out of the folder"
    if "." in parts or "" in parts:
        return "has a part without a name"
    if len(raw) > MOST_PATH or any(len(part.encode()) > MOST_PART for part in parts):
        return f"is too long; the most is {MOST_PATH} bytes, {MOST_PART} between two slashes"
    return None


def clash(paths: Iterable[str]) -> str | None:
    """A path that is there twice, or that would have to be a file and a folder; None if all can be there together."""
    files = set()
    for path in paths:
        if path in files:
            return path
        files.add(path)
    for path in sorted(files):
        parent = path
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in files:
                return parent
    return None
