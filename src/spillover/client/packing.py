"""Packs inputs of jobs: finds the files of patterns, and computes their digests."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spillover.client.errors import Refused
from spillover.client.leaving_out import LeftOut
from spillover.forms.jobs.inputs import Unpacked
from spillover.forms.jobs.matching import Folder, landing
from spillover.forms.jobs.on_agents import MOST_TEXT, not_a_list
from spillover.model.files import (
    MOST_FILES,
    PATH_RULE,
    WHOLE,
    clash,
    is_pattern,
    pattern_of,
    tidy,
    wrong_path,
)
from spillover.model.units import format_memory
from spillover.ports.blobs import digest_of
from spillover.wire.api import FieldProblem


class InputSizes(NamedTuple):
    """How much there is to upload."""

    files: int
    size: int
    """Bytes of all files."""
    missing: int
    """Bytes that the server does not have yet."""


@dataclass(slots=True)
class Packed:
    """Documents whose inputs have digests, and the files with these digests."""

    documents: list[dict[str, Any]]
    sources: dict[str, Path] = field(default_factory=dict)
    """A file for each digest."""
    sizes: dict[str, int] = field(default_factory=dict)
    files: dict[Path, int] = field(default_factory=dict)
    """The size of each file that was read."""

    def told(self, unsent: Iterable[str]) -> InputSizes:
        """Return the sizes to tell, if the server lacks these files."""
        return InputSizes(len(self.files), sum(self.files.values()), self.bytes_of(unsent))

    def bytes_of(self, digests: Iterable[str]) -> int:
        """Return the total size of some of the files."""
        return sum(self.sizes[digest] for digest in digests)


class _Problems:
    """Collects all problems with inputs."""

    def __init__(self) -> None:
        self.found: list[FieldProblem] = []

    def add(self, path: str, message: str) -> None:
        self.found.append(FieldProblem(path, message))

    def raise_if_any(self) -> None:
        if self.found:
            first = self.found[0]
            raise Refused(f"{first.path}: {first.message}", status=400, kind="invalid", problems=self.found)


def needs_packing(document: Mapping[str, Any]) -> bool:
    """Return whether a document has inputs, or a standard input, that are not packed yet."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return False
    if _entry(spec.get("stdin")) is not None or _unread(spec):
        return True
    inputs = spec.get("inputs")
    return isinstance(inputs, list | tuple) and any(_entry(each) is not None for each in inputs)


def pack(documents: Sequence[dict[str, Any]], most: int) -> Packed:
    """Read all input files of documents; raise Refused with all problems.

    `most` is the most bytes that the inputs of one job may have.
    """
    packed = Packed([])
    problems = _Problems()
    seen: dict[Path, tuple[str, int, bool]] = {}
    for at, document in enumerate(documents):
        if not needs_packing(document):
            packed.documents.append(document)
            continue
        where = "spec" if len(documents) == 1 else f"jobs[{at}].spec"
        spec = dict(document["spec"])
        if spec.get("inputs"):
            spec["inputs"] = _inputs(spec, f"{where}.inputs", most, seen, packed, problems)
        if (given := _entry(spec.get("stdin"))) is not None:
            spec["stdin"] = _stdin(spec, given, f"{where}.stdin", most, packed, problems)
        if _unread(spec):
            spec["environment"] = _environment(spec, f"{where}.environment.requirements", problems)
        packed.documents.append({**document, "spec": spec})
    problems.raise_if_any()
    return packed


def _inputs(
    spec: Mapping[str, Any],
    where: str,
    most: int,
    seen: dict[Path, tuple[str, int, bool]],
    packed: Packed,
    problems: _Problems,
) -> list[dict[str, Any]]:
    """Return all inputs of one job as files with digests."""
    root = Path(spec.get("workdir") or ".")
    entries: list[dict[str, Any]] = []
    total = 0
    for at, each in enumerate(spec["inputs"]):
        wanted = _entry(each)
        if wanted is None:
            entries.append(each)
            continue
        for source, to in _files(root, wanted, f"{where}[{at}]", problems):
            try:
                digest, size, executable = seen[source] if source in seen else _look(source)
            except OSError as error:
                problems.add(f"{where}[{at}]", f"{source}: {error.strerror or error}")
                continue
            seen[source] = digest, size, executable
            packed.sources[digest], packed.sizes[digest] = source, size
            packed.files[source] = size
            total += size
            entry = {"path": to, "digest": digest, "size": size}
            entries.append(entry | {"executable": True} if executable else entry)
            if total > most:
                problems.add(
                    where,
                    f"{to} ({format_memory(size)}) makes the inputs {format_memory(total)}; "
                    f"the maximum is {format_memory(most)} (files.max_inputs of the server)",
                )
                return entries
    if len(entries) > MOST_FILES:
        problems.add(
            where, f"has {len(entries):,} files; the maximum is {MOST_FILES:,}; pack them into an archive"
        )
    elif (twice := clash(entry["path"] for entry in entries)) is not None:
        problems.add(where, f"{twice!r} would be written twice; rename one with `as`")
    return entries


def _unread(spec: Mapping[str, Any]) -> bool:
    """Return whether a job names a list of packages that was not read yet."""
    asked = spec.get("environment")
    if not isinstance(asked, Mapping) or asked.get("text") is not None:
        return False
    return isinstance(asked.get("requirements"), str | os.PathLike)


def _environment(spec: Mapping[str, Any], where: str, problems: _Problems) -> dict[str, Any]:
    """Return the environment of a job with the text of its list of packages."""
    asked = dict(spec["environment"])
    if (wrong := not_a_list(os.fspath(asked["requirements"]))) is not None:
        problems.add(where, wrong)
        return asked
    path = Path(spec.get("workdir") or ".") / asked["requirements"]
    try:
        with path.open("rb") as file:
            data = file.read(MOST_TEXT + 1)
        asked |= {"requirements": str(asked["requirements"]), "text": data.decode()}
    except OSError as error:
        problems.add(where, f"{path}: {error.strerror or error}")
    except UnicodeDecodeError:
        problems.add(where, f"{path} is not UTF-8 text")
    else:
        if len(data) > MOST_TEXT:
            problems.add(where, f"{path} is larger than {format_memory(MOST_TEXT)}, the maximum")
    return asked


def _stdin(
    spec: Mapping[str, Any],
    given: Unpacked,
    where: str,
    most: int,
    packed: Packed,
    problems: _Problems,
) -> dict[str, Any]:
    """Return the standard input of one job as a file with its digest. It may be anywhere on this machine."""
    source = Path(spec.get("workdir") or ".") / given.path
    try:
        if not stat.S_ISREG(source.stat().st_mode):
            problems.add(where, f"{source} is not a file; write the path of one, or pipe it to `spill run`")
            return {}
        digest, size, _ = _look(source)
    except OSError as error:
        problems.add(where, f"{source}: {error.strerror or error}")
        return {}
    if size > most:
        told = f"{source} has {format_memory(size)}; the maximum is {format_memory(most)} (files.max_inputs of the server)"
        problems.add(where, told)
    packed.sources[digest], packed.sizes[digest] = source, size
    packed.files[source] = size
    return {"path": source.name, "digest": digest, "size": size}


def changed(source: Path, error: Refused) -> Refused:
    """Explain why the server refused a file under its digest."""
    if error.kind != "invalid":
        return error
    return Refused(
        f"{source} changed while it was uploaded; submit again", status=error.status, kind=error.kind
    )


def _files(root: Path, wanted: Unpacked, where: str, problems: _Problems) -> list[tuple[Path, str]]:
    """Return the files of an entry, each with its path where the job runs."""
    pattern = pattern_of(wanted.path)
    for given, text in ((wanted.path, pattern), (wanted.to, tidy(WHOLE if wanted.to is None else wanted.to))):
        if text != WHOLE and (wrong := wrong_path(text)) is not None:
            problems.add(where, f"{given!r} {wrong}; write {PATH_RULE}")
            return []
    before = len(problems.found)
    left_out = LeftOut(root)
    folder = Folder(root, lambda path, why: problems.add(where, f"{path!r} {why}"), left_out)
    paths = []
    for path in folder.files(pattern):
        paths.append(path)
        if len(paths) > MOST_FILES:
            problems.add(where, f"{pattern!r} matches more than {MOST_FILES:,} files; pack them into one")
            return []
    if not paths and len(problems.found) == before:
        what = f"{'matches no file' if is_pattern(pattern) else 'does not exist'} in {root}"
        if left_out.count:
            what = f"has only files in {root} that .gitignore or .spillignore leave out; name a file, or change these"
        problems.add(where, f"{wanted.path!r} {what}")
    named = (root / pattern).is_dir()
    return [(root / path, to) for path, to in landing(paths, pattern, wanted.to, folder=named)]


def _look(source: Path) -> tuple[str, int, bool]:
    """Return digest and size of a file, and whether it is executable."""
    found = os.stat(source)  # noqa: PTH116 - one call for both
    return digest_of(source), found.st_size, bool(found.st_mode & stat.S_IXUSR)


def _entry(entry: Any) -> Unpacked | None:
    """Return an entry of files to pack; None if it is packed, names outputs of a job, or is invalid (the server reports that)."""
    if isinstance(entry, str | os.PathLike):
        return Unpacked(os.fspath(entry))
    if (
        isinstance(entry, Mapping)
        and not entry.keys() & {"digest", "from"}
        and isinstance(entry.get("path"), str)
    ):
        to = entry.get("as")
        return Unpacked(entry["path"], to) if to is None or isinstance(to, str) else None
    return None
