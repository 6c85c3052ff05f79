"""Reads `inputs` and `outputs` of a job: the files that are copied with it.

Users write paths and patterns. The client finds the files and sends each to the server with its digest. So an entry is
either not packed yet, and kept beside the spec, or a file of the spec. Outputs of other jobs stay references.
"""

from typing import NamedTuple

from msgspec import Struct

from spillover.forms.problems import Findings, Path, shown
from spillover.model.files import (
    MOST_FILES,
    PATH_RULE,
    WHOLE,
    File,
    clash,
    is_digest,
    is_pattern,
    pattern_of,
    tidy,
    wrong_path,
)
from spillover.model.ids import is_name
from spillover.model.job import FromJob, FromMembers
from spillover.wire.jobfile import InputDoc, SpecDoc, StdinDoc


class Unpacked(Struct, frozen=True):
    """An input as the user wrote it."""

    path: str
    """Tidy, and relative to the working directory; may be a pattern or a folder."""
    to: str | None = None
    """Path where the job runs; with a trailing slash, the folder to put it into. None keeps `path`."""


class Files(NamedTuple):
    """The files that are copied with a job."""

    packed: tuple[File, ...] = ()
    unpacked: tuple[Unpacked, ...] = ()
    taken: tuple[FromJob, ...] = ()
    outputs: tuple[str, ...] = ()
    """Paths and patterns."""


def read_files(doc: SpecDoc, found: Findings) -> Files:
    """Return packed files, inputs to pack, outputs of other jobs, and patterns of outputs."""
    files: list[File] = []
    rest: list[Unpacked] = []
    taken: list[FromJob] = []
    for at, entry in enumerate(doc.inputs):
        path: Path = ("spec", "inputs", at)
        if isinstance(entry, str):
            if _check(pattern_of(entry), path, found):
                rest.append(Unpacked(pattern_of(entry)))
        elif entry.source is not None:
            taken += _taken(entry, entry.source, path, found, is_array=doc.array is not None)
        elif entry.members is not None:
            found.add((*path, "members"), "is only for outputs of another job; add `from`, or remove it")
        elif entry.digest is not None:
            files += _packed(entry, path, found)
        elif _check(pattern_of(entry.path), (*path, "path"), found):
            rest += _unpacked(entry, path, found)
    if files and (twice := clash(file.path for file in files)) is not None:
        found.add(("spec", "inputs"), f"{shown(twice)} would be written twice; rename one with `as`")
    if len(files) > MOST_FILES:
        found.add(
            ("spec", "inputs"),
            f"has {len(files):,} files; the maximum is {MOST_FILES:,}; pack them into an archive",
        )
    outputs = dict.fromkeys(map(pattern_of, doc.outputs))
    for at, pattern in enumerate(doc.outputs):
        _check(pattern_of(pattern), ("spec", "outputs", at), found)
    return Files(tuple(files), tuple(rest), tuple(taken), tuple(outputs))


def read_stdin(doc: SpecDoc, found: Findings) -> tuple[File | None, str | None]:
    """Return the packed file that is the standard input, and the path of one that the client must still pack."""
    given, path = doc.stdin, ("spec", "stdin")
    works = [doc, *(doc.groups or ())]
    if any(each.python is not None for each in works):
        found.add(path, "is not for Python calls; give them the data as an argument")
    if isinstance(given, StdinDoc):
        if given.digest is not None:
            files = _packed(InputDoc(given.path, None, given.digest, given.size), path, found)
            return (files[0] if files else None), None
        given = given.path
    if not given or "\0" in given or given.endswith("/"):
        found.add(path, f"{shown(given)} is not a file; write a path such as data/table.csv")
    return None, given


def _unpacked(entry: InputDoc, path: Path, found: Findings) -> list[Unpacked]:
    """Read an entry with a destination."""
    return [Unpacked(pattern_of(entry.path), entry.to)] if _check_to(entry, path, found) else []


def _taken(entry: InputDoc, job: str, path: Path, found: Findings, *, is_array: bool) -> list[FromJob]:
    """Read an entry that names outputs of another job."""
    before = len(found.found)
    if not is_name(job):
        found.add((*path, "from"), f"{shown(job)} is not a job name or id")
    for name, value in (("digest", entry.digest), ("size", entry.size), ("executable", entry.executable)):
        if value:
            found.add((*path, name), "does not go with `from`; remove one of them")
    _check(pattern_of(entry.path), (*path, "path"), found)
    _check_to(entry, path, found)
    members = None if entry.members is None else FromMembers(entry.members)
    if members is FromMembers.SAME and not is_array:
        found.add((*path, "members"), "same is for arrays; write `all`, or add `array`")
    if members is FromMembers.ALL and entry.to is not None and not entry.to.endswith("/"):
        found.add(
            (*path, "as"), f"{shown(entry.to)} is one path for all members; write {shown(entry.to + '/')}"
        )
    if len(found.found) > before:
        return []
    return [FromJob(job, pattern_of(entry.path), entry.to or "", members)]


def _check_to(entry: InputDoc, path: Path, found: Findings) -> bool:
    """Add a problem if files cannot go where an entry says; return whether they can, as far as is known."""
    to = entry.to
    if to is None:
        return True
    if tidy(to) != WHOLE and not _check(tidy(to), (*path, "as"), found):
        return False
    if is_pattern(to):
        found.add((*path, "as"), f"{shown(to)} is a pattern; write a path")
    if is_pattern(pattern_of(entry.path)) and not to.endswith("/") and tidy(to) != WHOLE:
        found.add((*path, "as"), f"{shown(to)} matches several files; write {shown(to + '/')} for a folder")
    return True


def _packed(entry: InputDoc, path: Path, found: Findings) -> list[File]:
    """Read an entry with a digest."""
    given, digest = entry.to if entry.to is not None else entry.path, entry.digest or ""
    to = tidy(given)
    if not _check(to, (*path, "path"), found):
        return []
    if given.endswith("/") or to == WHOLE:
        found.add(path, f"{shown(given)} is a folder; an input with a `digest` must be a file")
        return []
    if not is_digest(digest):
        found.add((*path, "digest"), f"{shown(digest)} is not a SHA-256; write 64 hexadecimal digits")
    if entry.size is None:
        found.add((*path, "size"), "is required with `digest`")
    return [File(to, digest, entry.size or 0, entry.executable)]


def _check(text: str, path: Path, found: Findings) -> bool:
    """Add a problem if a tidy path leaves the working directory; return whether it is valid."""
    wrong = wrong_path(text)
    if wrong is not None:
        found.add(path, f"{shown(text)} {wrong}; write {PATH_RULE}")
    return wrong is None
