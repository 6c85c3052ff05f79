"""`inputs` and `outputs` of a job: which files travel with it.

People write paths and patterns; the client looks what files those are, and the server is told each with its digest. So an entry is
either still to be packed, and kept beside the spec, or a file of the spec.
"""

from msgspec import Struct

from spillover.forms.problems import Findings, Path, shown
from spillover.model.files import MOST_FILES, PATH_RULE, File, clash, is_digest, is_pattern, wrong_path
from spillover.wire.jobfile import InputDoc, SpecDoc


class Unpacked(Struct, frozen=True):
    """An input as it was written."""

    path: str
    """From the working directory; may be a pattern, or a folder."""
    to: str | None = None
    """What it is called where the job runs, or, with a slash behind it, the folder that it is put into; None: as it is called here."""


def read_files(
    doc: SpecDoc, found: Findings
) -> tuple[tuple[File, ...], tuple[Unpacked, ...], tuple[str, ...]]:
    """Files that are packed, those that are not, and patterns of outputs."""
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
        found.add(("spec", "inputs"), f"{shown(twice)} would be there twice; give one another name with `as`")
    if len(files) > MOST_FILES:
        found.add(
            ("spec", "inputs"), f"has {len(files):,} files; the most is {MOST_FILES:,}: pack them into one"
        )
    for at, pattern in enumerate(doc.outputs):
        _check(pattern, ("spec", "outputs", at), found)
    return tuple(files), tuple(rest), tuple(dict.fromkeys(one.removesuffix("/") for one in doc.outputs))


def _unpacked(entry: InputDoc, path: Path, found: Findings) -> list[Unpacked]:
    """An entry that says where its files go."""
    source, to = entry.path.removesuffix("/"), entry.to
    if to is not None and not _check(to, (*path, "as"), found):
        return []
    if to is not None and is_pattern(to):
        found.add((*path, "as"), f"{shown(to)} is a pattern; write one path")
    if to is not None and is_pattern(source) and not to.endswith("/"):
        found.add((*path, "as"), f"{shown(to)} would be several files; write {shown(to + '/')} for a folder")
    return [Unpacked(source, to)]


def _packed(entry: InputDoc, path: Path, found: Findings) -> list[File]:
    """An entry that names the bytes of a file."""
    to, digest = entry.to if entry.to is not None else entry.path, entry.digest or ""
    if not _check(to, (*path, "path"), found):
        return []
    if to.endswith("/"):
        found.add(path, f"{shown(to)} is a folder; name the file, which has a `digest`")
        return []
    if not is_digest(digest):
        found.add((*path, "digest"), f"{shown(digest)} is not the SHA-256 of a file: 64 hexadecimal digits")
    if entry.size is None:
        found.add((*path, "size"), "is missing; a file with a `digest` has a `size` too")
    return [File(to, digest, entry.size or 0, entry.executable)]


def _check(text: str, path: Path, found: Findings) -> bool:
    """Note a path that leads elsewhere."""
    wrong = wrong_path(text.removesuffix("/"))
    if wrong is not None:
        found.add(path, f"{shown(text)} {wrong}; write {PATH_RULE}")
    return wrong is None
