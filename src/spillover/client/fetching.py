"""What jobs brought back, written to a folder: nothing outside of it, and nothing over what is there and differs."""

import os
from dataclasses import dataclass
from pathlib import Path

from spillover.client.errors import Refused
from spillover.model.files import wrong_path
from spillover.ports.blobs import digest_of
from spillover.wire.api import FilesView, FileView

PROGRAM = 0o111


class InTheWay(Refused):
    """Files are there and differ."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; give another folder, or force=True", status=409, kind="conflict")
        self.what = what
        """Without what to do, which is another thing for a program than for a command."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Which files are to be written."""

    folder: Path
    wanted: tuple[FileView, ...]
    """Those that are not there yet."""
    total: int
    """Bytes of these."""

    def path(self, file: FileView) -> Path:
        """Where a file goes, with the folders on the way there."""
        path = self.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def plan(view: FilesView, folder: Path, *, force: bool) -> FetchPlan:
    """Look at what is there; raises Refused with all that stands in the way."""
    in_the_way: list[str] = []
    wanted: list[FileView] = []
    for file in view.files:
        wrong = wrong_path(file.path)
        if wrong is not None:
            raise Refused(f"the server names a file {file.path!r}, which {wrong}", status=400, kind="invalid")
        path = folder / file.path
        _check_inside(path, folder)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise Refused(f"{path} is there and no file; move it away", status=400, kind="conflict")
        if not path.exists():
            wanted.append(file)
        elif path.stat().st_size != file.size or digest_of(path) != file.digest:
            wanted.append(file)
            in_the_way.append(str(path))
    if in_the_way and not force:
        more = f" and {len(in_the_way) - 1} more" if len(in_the_way) > 1 else ""
        raise InTheWay(f"{in_the_way[0]}{more} would be written over")
    return FetchPlan(folder, tuple(wanted), sum(file.size for file in wanted))


def landed(path: Path, file: FileView) -> None:
    """A file is there: a program may be run."""
    if file.executable:
        path.chmod(path.stat().st_mode | PROGRAM)


def _check_inside(path: Path, folder: Path) -> None:
    """Refuse a path that goes through a link out of the folder."""
    root, parent = os.path.realpath(folder), os.path.realpath(path.parent)
    if parent != root and not parent.startswith(root.rstrip("/") + "/"):
        raise Refused(
            f"{path.parent} leads out of {folder}; move that link away", status=400, kind="conflict"
        )
    at = path.parent
    while at != folder:
        if at.exists() and not at.is_dir():
            raise Refused(f"{at} is there and no folder; move it away", status=400, kind="conflict")
        at = at.parent
