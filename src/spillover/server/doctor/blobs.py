"""Checks that needed files of jobs exist, and that the folder holds nothing else."""

import hashlib
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from spillover.core.records.jobs import Ended
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model.files import File, is_digest
from spillover.model.ids import is_name
from spillover.model.units import format_memory
from spillover.server.doctor.findings import MOST, Finding, count, ok, problem, some, warning
from spillover.server.doctor.inspection import Inspection

_EMPTY: Final = hashlib.sha256().hexdigest()
_list: Final = msgspec.json.Decoder(list[File])


def needed(inspection: Inspection) -> Iterator[Finding]:
    """Check that blobs that jobs in the state refer to exist with their full size."""
    state = inspection.state
    if state is None or inspection.data is None:
        return
    folder = inspection.data / "blobs"
    inputs = [*_inputs(inspection, state)]
    lost = sorted({job for job, digest, size in inputs if not _there(folder, digest, size)})
    if lost:
        told = f"files that {count(len(lost), 'job needs', 'jobs need')} are missing or have the wrong size: {some(lost)}"
        yield problem("files", told, f"`spill cancel {' '.join(lost[:MOST])}`, and submit again")
    gone = sorted(
        {job for job, digest in _outputs(state) if not _listed(folder, digest)}
        | {job for job, digest in _values(state) if not _there(folder, digest)}
    )
    if gone:
        told = f"some outputs of {count(len(gone), 'job')} are missing: {some(gone)}"
        yield problem("files", told, "restore the folder blobs from a backup, or run the jobs again")
    if not lost and not gone:
        yield ok("files", f"{count(len(inputs), 'input')} of jobs that have not ended")


def _inputs(inspection: Inspection, state: State) -> Iterator[tuple[str, str, int | None]]:
    """Yield jobs that have not ended, each with a needed blob and its size; None if unknown."""
    needing: dict[bytes, str] = {}
    for job in state.jobs.values():
        if job.extra.blobs and job.state not in TERMINAL:
            needing[job.spec] = job.id
    for digest, spec in inspection.specs(list(needing)).items():
        if spec is not None:
            sizes = {file.digest: file.size for file in spec.files}
            yield from ((needing[digest], each, sizes.get(each)) for each in spec.digests)


def _outputs(state: State) -> Iterator[tuple[str, str]]:
    """Yield jobs in the state, each with the digest of a list of output files."""
    for job in state.jobs.values():
        yield from ((job.id, listed) for _, listed in job.extra.outputs)


def _values(state: State) -> Iterator[tuple[str, str]]:
    """Yield ended Python calls in the state, each with the digest of a large returned value."""
    for job in state.jobs.values():
        if isinstance(job.phase, Ended) and job.phase.value_digest:
            yield job.id, job.phase.value_digest


def _there(folder: Path, digest: str, size: int | None = None) -> bool:
    """Return whether a blob exists, with this size if given."""
    try:
        found = (folder / digest[:2] / digest).stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and size in {None, found.st_size}


def _listed(folder: Path, digest: str) -> bool:
    """Return whether a list of files exists, with all files in it."""
    if not is_digest(digest):
        return False
    try:
        files = _list.decode((folder / digest[:2] / digest).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return all(is_digest(file.digest) and _there(folder, file.digest, file.size) for file in files)


def odd(inspection: Inspection) -> Iterator[Finding]:
    """Check that the folder of blobs holds only valid blobs."""
    if inspection.data is None or not (folder := inspection.data / "blobs").exists():
        return
    if not folder.is_dir():
        yield problem(
            "blobs",
            f"{folder} is not a folder",
            "move or delete it; the server cannot store files of jobs until then",
        )
        return
    strange: list[str] = []
    damaged: list[str] = []
    blobs = size = 0
    for path in _files(folder):
        found = path.lstat()
        if _is_mark(path.name) and stat.S_ISREG(found.st_mode) and not found.st_size:
            continue
        if not (stat.S_ISREG(found.st_mode) and is_digest(path.name) and path.parent.name == path.name[:2]):
            strange.append(str(path.relative_to(folder)))
        elif not found.st_size and path.name != _EMPTY:
            damaged.append(path.name)
        else:
            blobs, size = blobs + 1, size + found.st_size
            if not blobs % 1_000:
                inspection.tell(f"checking blobs: {blobs:,}")
    if strange:
        told = (
            f"{count(len(strange), 'entry is not a blob', 'entries are not blobs')}: {some(sorted(strange))}"
        )
        yield warning(
            "blobs",
            told,
            f"move them out of {folder}; a folder there keeps the server from deleting old blobs",
        )
    if damaged:
        told = f"{count(len(damaged), 'blob is empty', 'blobs are empty')} that should not be: {some(sorted(damaged))}"
        yield problem(
            "blobs",
            told,
            "restore them from a backup, or delete them and submit again the jobs that need them",
        )
    if not strange and not damaged:
        yield ok("blobs", f"{count(blobs, 'blob')}{f', {format_memory(size)}' if size else ''}")


def _is_mark(name: str) -> bool:
    """Return whether a name is DIGEST.PROJECT, an empty file that assigns the blob to a project."""
    digest, _, project = name.partition(".")
    return is_digest(digest) and is_name(project)


def _files(folder: Path) -> Iterable[Path]:
    """Yield everything in the folder of blobs, except unfinished uploads."""
    for entry in sorted(folder.iterdir()):
        if entry.name == "new":
            continue
        if entry.is_dir() and not entry.is_symlink() and len(entry.name) == 2:
            yield from sorted(entry.iterdir())
        else:
            yield entry
