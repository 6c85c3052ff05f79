"""Files that travel with jobs: their paths and digests."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

WHOLE: Final = "."
"""The path of a folder itself, once it is tidy."""
MOST_FILES: Final = 5_000
"""Limit for the inputs of a job, and for the outputs of a task."""
MOST_PATH: Final = 1024
"""Bytes."""
MOST_PART: Final = 255
"""Bytes between two slashes; no file system takes more."""
PATH_RULE: Final = "a path below the folder that the job runs in, without `..`, such as data/train.csv"
DIGEST_RULE: Final = "64 hexadecimal digits, in lower case: the SHA-256 of its bytes"
KEPT_STREAMS: Final = (".spillover/stdout", ".spillover/stderr")
"""Paths under which the output streams of a task are listed among its output files, if the server stores them."""
_KEPT_FOLDER: Final = ".spillover/"

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAGIC = re.compile(r"[*?\[]")


class File(Struct, frozen=True):
    """One file."""

    path: str
    """Relative to the folder that the job runs in, with slashes."""
    digest: str
    """SHA-256 of its bytes, hexadecimal."""
    size: int
    executable: bool = False


def kept_stream(task: int, *, stderr: bool) -> str:
    """Return the path under which an output stream of a task of a job is listed; that of the first is as in any job."""
    path = KEPT_STREAMS[stderr]
    return path if task == 0 else f"{_KEPT_FOLDER}{task}/{path.removeprefix(_KEPT_FOLDER)}"


def is_kept_stream(path: str) -> bool:
    """Return whether a path is that of a stored output stream."""
    first, _, rest = path.removeprefix(_KEPT_FOLDER).partition("/")
    if not path.startswith(_KEPT_FOLDER):
        return False
    return path in KEPT_STREAMS or (first.isdigit() and _KEPT_FOLDER + rest in KEPT_STREAMS)


def is_digest(text: str) -> bool:
    """Return whether this could be a SHA-256 digest."""
    return _DIGEST.fullmatch(text) is not None


def is_pattern(path: str) -> bool:
    """Return whether a path may match several files."""
    return _MAGIC.search(path) is not None


def tidy(path: str) -> str:
    """Return a path or pattern without parts that mean nothing: `./a//b/` is `a/b`, and `./` is `.`."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/"):
        return "/" + "/".join(parts)
    return "/".join(parts) or (WHOLE if path else "")


def pattern_of(path: str) -> str:
    """Return the tidy path or pattern that somebody means. Who names a folder by `.` means what is in it: `**`."""
    found = tidy(path)
    return "**" if found == WHOLE else found


def wrong_path(path: str) -> str | None:
    """Return what is wrong with a path or pattern; None if it stays below its folder."""
    if not path:
        return "is empty"
    if "\0" in path:
        return "contains a NUL character"
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
        return f"is too long; the maximum is {MOST_PATH} bytes, {MOST_PART} between two slashes"
    return None


def clash(paths: Iterable[str]) -> str | None:
    """Return a path that occurs twice, or as both a file and a folder; None if all paths are compatible."""
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
