"""Checks that input files of jobs are uploaded, and finds the output files of attempts."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from spillover.control.requests.lookup import Found, id_of
from spillover.core.records.jobs import Job
from spillover.forms.jobs.reading import JobForm
from spillover.model.files import MOST_FILES, File, clash, is_digest, is_kept_stream, kept_stream, wrong_path
from spillover.model.units import format_memory
from spillover.ports.archive import Finished
from spillover.ports.blobs import GIB, Blobs, NoBlob, TooLarge, whole
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, FilesView, FileView

MOST_LIST: Final = 8 << 20
"""Most bytes in the list of one attempt's output files."""
_list: Final = msgspec.json.Decoder(list[File])


class Unlisted(Exception):
    """A blob is not a valid list of output files; the message says why."""


async def files_in(blobs: Blobs, listed: str) -> list[File]:
    """Return the files that a blob lists; raise NoBlob or Unlisted."""
    try:
        files = _list.decode(await whole(blobs.get(listed), MOST_LIST))
    except (msgspec.DecodeError, UnicodeDecodeError, TooLarge) as error:
        raise Unlisted(f"{listed} is not a list of files: {error}") from None
    for file in files:
        if wrong_path(file.path) is not None or not is_digest(file.digest) or file.size < 0:
            raise Unlisted(f"{listed} lists {file.path[:100]!r}, which is not a stored file")
    if len(files) > MOST_FILES or clash(file.path for file in files) is not None:
        raise Unlisted(f"{listed} lists too many files, or a file twice")
    return files


class JobFiles:
    """Input and output files of jobs."""

    def __init__(self, blobs: Blobs, max_inputs: int = GIB, max_outputs: int = GIB) -> None:
        self._blobs = blobs
        self.max_inputs = max_inputs
        """Most bytes of all inputs of a job."""
        self.max_outputs = max_outputs
        """Most bytes of all outputs of a task."""

    async def check(self, forms: Sequence[JobForm], project: str | None = None) -> None:
        """Raise CommandError unless all files that jobs need are uploaded; they then stay for at least a day.

        A caller who is limited to a project can use only blobs of that project.
        """
        needing = [
            (at, form)
            for at, form in enumerate(forms)
            if form.unpacked or form.stdin or form.spec.digests or _unread(form)
        ]
        if not needing:
            return
        there = await self._blobs.sizes(
            list(dict.fromkeys(digest for _, form in needing for digest in form.spec.digests)), project
        )
        problems = [problem for at, form in needing for problem in self._problems(at, form, there)]
        if problems:
            raise CommandError(ErrorKind.INVALID, problems[0].message, problems)

    async def gone(self, forms: Sequence[JobForm], project: str | None = None) -> dict[int, list[str]]:
        """Return by position the inputs of jobs that are no longer stored: paths, or what the call is made of."""
        digests = dict.fromkeys(digest for form in forms for digest in form.spec.digests)
        there = await self._blobs.sizes(list(digests), project) if digests else {}
        lost = {
            at: [
                *(file.path for file in form.spec.files if file.digest not in there),
                *(
                    "the function or its arguments"
                    for digest in form.spec.digests[len(form.spec.files) :]
                    if digest not in there
                ),
            ]
            for at, form in enumerate(forms)
        }
        return {at: names for at, names in lost.items() if names}

    async def stored(self, digests: Sequence[str]) -> set[str]:
        """Return those of these blobs that are stored, which are kept for another day."""
        return set(await self._blobs.sizes(digests))

    def _problems(self, at: int, form: JobForm, there: dict[str, int]) -> Iterable[FieldProblem]:
        """Yield what is wrong with the inputs of one job."""
        name, where = form.spec.name, f"jobs[{at}].spec.inputs"
        if form.unpacked:
            message = f"{name}: {form.unpacked[0].path!r} has no digest; submit the job with `spill` or the Python client, which upload files"
            yield FieldProblem(where, message)
        if form.stdin is not None:
            message = f"{name}: {form.stdin!r} has no digest; submit the job with `spill` or the Python client, which upload files"
            yield FieldProblem(f"jobs[{at}].spec.stdin", message)
        if _unread(form):
            message = f"{name}: it has no text; submit the job with `spill` or the Python client, which read the file"
            yield FieldProblem(f"jobs[{at}].spec.environment.requirements", message)
        files = form.spec.files
        total = sum(file.size for file in files)
        if total > self.max_inputs:
            largest = max(files, key=lambda file: file.size)
            yield FieldProblem(
                where,
                f"{name}: its inputs total {format_memory(total)}, above the maximum of "
                f"{format_memory(self.max_inputs)} (files.max_inputs); the largest is {largest.path} with "
                f"{format_memory(largest.size)}",
            )
        for place, file in enumerate(files):
            at_file = f"jobs[{at}].spec.stdin" if file is form.spec.stdin else f"{where}[{place}]"
            size = there.get(file.digest)
            if size is None:
                yield FieldProblem(at_file, f"{name}: {file.path} is not on the server; upload it first")
            elif size != file.size:
                message = f"{name}: {file.path} has {size} bytes, not {file.size}"
                yield FieldProblem(f"{at_file}.size", message)
        for digest in form.spec.digests[len(files) :]:
            if digest not in there:
                message = f"{name}: {digest} is not on the server; upload it first"
                yield FieldProblem(f"jobs[{at}].spec.python", message)

    async def give(self, digests: Iterable[str], project: str | None) -> None:
        """Allow a project to read blobs, after one of its jobs refers to them; without a project, do nothing."""
        if project is not None:
            await self._blobs.give(digests, project)

    async def brought_back(self, found: Found, attempt: int | None, project: str | None = None) -> FilesView:
        """Return the output files of an attempt; None means the last attempt that has any.

        Callers who are limited to the job's project may read these files from then on.
        """
        outputs = dict(found.outputs if isinstance(found, Finished) else _of_job(found))
        had = found.attempt if isinstance(found, Job | Finished) else 1
        if attempt is not None and attempt > had:
            raise CommandError(
                ErrorKind.UNKNOWN, f"{id_of(found)} has no attempt {attempt}; it has had {had}"
            )
        chosen = attempt if attempt is not None else max(outputs, default=None)
        files: list[File] = []
        if chosen is not None and chosen in outputs:
            try:
                files = await files_in(self._blobs, outputs[chosen])
            except NoBlob:
                raise CommandError(
                    ErrorKind.UNKNOWN, f"the files of attempt {chosen} of {id_of(found)} were deleted"
                ) from None
            except Unlisted as error:
                raise CommandError(ErrorKind.UNKNOWN, str(error)) from None
        await self.give([file.digest for file in files], project)
        views = [
            FileView(file.path, file.digest, file.size, file.executable)
            for file in files
            if not is_kept_stream(file.path)
        ]
        return FilesView(id_of(found), chosen, sorted(outputs), views)

    async def output(self, found: Found, attempt: int, task: int, *, stderr: bool) -> File | None:
        """Return the saved output of a task of an attempt; None if it was not saved."""
        outputs = dict(found.outputs if isinstance(found, Finished) else _of_job(found))
        if attempt in outputs:
            with contextlib.suppress(NoBlob, Unlisted):
                path = kept_stream(task, stderr=stderr)
                for file in await files_in(self._blobs, outputs[attempt]):
                    if file.path == path and await self._blobs.sizes([file.digest]):
                        return file
        return None

    def pieces(self, file: File, offset: int) -> AsyncIterator[bytes]:
        """Stream a stored file from an offset."""
        return self._blobs.get(file.digest, offset)


def _of_job(found: Found) -> tuple[tuple[int, str], ...]:
    return found.extra.outputs if isinstance(found, Job) else ()


def _unread(form: JobForm) -> bool:
    """Return whether the list of packages of a job was not read yet."""
    asked = form.spec.environment
    return asked is not None and not asked.name and not asked.image and asked.text is None
