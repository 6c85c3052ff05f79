"""Reads `inputs` and `outputs` of a job: the files that are copied with it.

Users write paths and patterns. The client finds the files and sends each to the server with its digest. So an entry is
either not packed yet, and kept beside the spec, or a file of the spec.
"""

from msgspec import Struct

from spillover.forms.problems import Findings, Path, shown
from spillover.model.files import MOST_FILES, PATH_RULE, File, clash, is_digest, is_pattern, wrong_path
from spillover.wire.jobfile import InputDoc, SpecDoc, StdinDoc


class Unpacked(Struct, frozen=True):
    """An input as the user wrote it."""

    path: str
    """Relative to the working directory; may be a pattern or a folder."""
    to: str | None = None
    """Path where the job runs; with a trailing slash, the folder to put it into. None keeps `path`."""


def read_files(
    doc: SpecDoc, found: Findings
) -> tuple[tuple[File, ...], tuple[Unpacked, ...], tuple[str, ...]]:
    """Return packed files, inputs to pack, and patterns of outputs."""
    files: list[File] = []
    rest: list[Unpacked] = []
    for at, entry in enumerate(doc.inputs):
        path: Path = ("spec", "inputs", at)
        if isinstance(entry, str):
            if _check(entry, path, found):
                rest.append(Unpacked(entry.removesuffix("/")))
        elif entry.digest is not None:
            files += _packed(entry, path, found)
        elif _check(entry.path, (*path, "path"), found):
            rest += _unpacked(entry, path, found)
    if files and (twice := clash(file.path for file in files)) is not None:
        found.add(("spec", "inputs"), f"{shown(twice)} would be written twice; rename one with `as`")
    if len(files) > MOST_FILES:
        found.add(
            ("spec", "inputs"),
            f"has {len(files):,} files; the maximum is {MOST_FILES:,}; pack them into an archive",
        )
    for at, pattern in enumerate(doc.outputs):
        _check(pattern, ("spec", "outputs", at), found)
    return tuple(files), tuple(rest), tuple(dict.fromkeys(one.removesuffix("/") for one in doc.outputs))


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
    source, to = entry.path.removesuffix("/"), entry.to
    if to is not None and not _check(to, (*path, "as"), found):
        return []
    if to is not None and is_pattern(to):
        found.add((*path, "as"), f"{shown(to)} is a pattern; write a path")
    if to is not None and is_pattern(source) and not to.endswith("/"):
        found.add((*path, "as"), f"{shown(to)} matches several files; write {shown(to + '/')} for a folder")
    return [Unpacked(source, to)]


def _packed(entry: InputDoc, path: Path, found: Findings) -> list[File]:
    """Read an entry with a digest."""
    to, digest = entry.to if entry.to is not None else entry.path, entry.digest or ""
    if not _check(to, (*path, "path"), found):
        return []
    if to.endswith("/"):
        found.add(path, f"{shown(to)} is a folder; an input with a `digest` must be a file")
        return []
    if not is_digest(digest):
        found.add((*path, "digest"), f"{shown(digest)} is not a SHA-256; write 64 hexadecimal digits")
    if entry.size is None:
        found.add((*path, "size"), "is required with `digest`")
    return [File(to, digest, entry.size or 0, entry.executable)]


def _check(text: str, path: Path, found: Findings) -> bool:
    """Add a problem if a path leaves the working directory; return whether it is valid."""
    wrong = wrong_path(text.removesuffix("/"))
    if wrong is not None:
        found.add(path, f"{shown(text)} {wrong}; write {PATH_RULE}")
    return wrong is None
