"""Works on the folders of tasks: copies inputs into them, finds outputs in them, and deletes them."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from spillover.forms.jobs.matching import Folder
from spillover.model.files import MOST_FILES, is_kept_stream
from spillover.model.units import format_memory

_FICLONE: Final = 0x40049409


def size_of(paths: Iterable[Path]) -> int:
    """Return the total size of the files that exist, in bytes."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def find_outputs(folder: Path, patterns: Iterable[str], limit: int) -> tuple[list[str], str]:
    """Return the sorted paths of all outputs that fit, and a problem with the others."""
    problem = ""

    def odd(path: str, why: str) -> None:
        nonlocal problem
        problem = problem or f"{path!r} {why}"

    looking = Folder(folder, odd)
    found: set[str] = set()
    for path in (path for pattern in patterns for path in looking.files(pattern)):
        if is_kept_stream(path):
            continue  # the server would mistake it for an output stream of the task
        if path not in found and len(found) == MOST_FILES:
            problem = f"there are more than {MOST_FILES:,} files; pack them into one"
            break
        found.add(path)
    paths = sorted(found)
    fitting: list[str] = []
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size = (folder / path).stat().st_size
            if total + size > limit:
                problem = (
                    f"{path} has {format_memory(size)}, which makes {format_memory(total + size)} in total; "
                    f"the maximum is {format_memory(limit)} (files.max_outputs of the server)"
                )
                continue
            total += size
            fitting.append(path)
    return fitting, problem


def copy_file(source: Path, target: Path, *, executable: bool) -> None:
    """Copy a file, as a clone where the file system supports that."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with source.open("rb") as old, open(os.open(target, flags, 0o700 if executable else 0o600), "wb") as new:  # noqa: PTH123
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)


def remove_folder(folder: Path) -> None:
    """Delete a folder, whatever a task did to it.

    Inner folders are moved up to this one before their content is listed. So neither the depth of the tree nor the
    length of a path can stop the deletion, as they would stop a recursive one.
    """
    progress = True
    while progress:
        progress = False
        for entry in _entries(folder):
            if not _is_folder(entry):
                progress |= _try(os.unlink, entry)
                continue
            for inner in _entries(entry.path):
                if _is_folder(inner):
                    _restore_access(inner.path)
                    _try(os.rename, inner, folder / secrets.token_hex(16))
                else:
                    _try(os.unlink, inner)
            progress |= _try(os.rmdir, entry)
    _try(os.rmdir, folder)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """List a folder, even if a task removed its permissions; return nothing if it cannot be read."""
    _restore_access(folder)
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _restore_access(folder: Path | str) -> None:
    """Restore our permissions on a folder."""
    _try(os.chmod, folder, 0o700)


def _try(change: Callable[..., None], *what: Any) -> bool:
    """Try a change; return whether it succeeded."""
    try:
        change(*what)
    except OSError:
        return False
    return True
