"""Plans which output files to write to a folder, never outside it, and without overwriting files that differ."""

import os
from dataclasses import dataclass
from pathlib import Path

from spillover.client.errors import Refused
from spillover.model.files import wrong_path
from spillover.ports.blobs import digest_of
from spillover.wire.api import FilesView, FileView

PROGRAM = 0o111


class InTheWay(Refused):
    """Existing files differ."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; give another folder, or force=True", status=409, kind="conflict")
        self.what = what
        """The problem without advice, which differs between programs and the command line."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The files to write."""

    folder: Path
    wanted: tuple[FileView, ...]
    """Files that are missing or differ."""
    total: int
    """Bytes of the wanted files."""

    def path(self, file: FileView) -> Path:
        """Return the path of a file, and create its folders."""
        path = self.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def plan(view: FilesView, folder: Path, *, force: bool) -> FetchPlan:
    """Compare with existing files; raise Refused if a file is in the way."""
    in_the_way: list[str] = []
    wanted: list[FileView] = []
    for file in view.files:
        wrong = wrong_path(file.path)
        if wrong is not None:
            raise Refused(
                f"the server sent the path {file.path!r}, which {wrong}", status=400, kind="invalid"
            )
        path = folder / file.path
        _check_inside(path, folder)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise Refused(f"{path} exists and is not a file; move or delete it", status=400, kind="conflict")
        if not path.exists():
            wanted.append(file)
        elif path.stat().st_size != file.size or digest_of(path) != file.digest:
            wanted.append(file)
            in_the_way.append(str(path))
    if in_the_way and not force:
        more = f" and {len(in_the_way) - 1} more" if len(in_the_way) > 1 else ""
        raise InTheWay(f"{in_the_way[0]}{more} would be overwritten")
    return FetchPlan(folder, tuple(wanted), sum(file.size for file in wanted))


def landed(path: Path, file: FileView) -> None:
    """Make a program executable after it was written."""
    if file.executable:
        path.chmod(path.stat().st_mode | PROGRAM)


def _check_inside(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of the folder through a link."""
    root, parent = os.path.realpath(folder), os.path.realpath(path.parent)
    if parent != root and not parent.startswith(root.rstrip("/") + "/"):
        raise Refused(
            f"{path.parent} is a link to outside {folder}; remove the link", status=400, kind="conflict"
        )
    at = path.parent
    while at != folder:
        if at.exists() and not at.is_dir():
            raise Refused(f"{at} exists and is not a folder; move or delete it", status=400, kind="conflict")
        at = at.parent
