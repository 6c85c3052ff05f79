"""Files of jobs: whether those that a job needs are there, and which ones it brought back."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from spillover.control.lookup import Found, id_of
from spillover.core.jobs import Job
from spillover.forms.jobs import JobForm
from spillover.model.files import KEPT_STREAMS, MOST_FILES, File, clash, is_digest, wrong_path
from spillover.model.units import format_memory
from spillover.ports.archive import Finished
from spillover.ports.blobs import GIB, Blobs, NoBlob, TooLarge, whole
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, FilesView, FileView

MOST_LIST: Final = 8 << 20
"""Bytes of the list of what one attempt brought back."""
_list: Final = msgspec.json.Decoder(list[File])


class Unlisted(Exception):
    """What an agent says that a task brought back is no list of files; the message says why."""


async def files_in(blobs: Blobs, listed: str) -> list[File]:
    """The files that a blob lists; raises NoBlob or Unlisted."""
    try:
        files = _list.decode(await whole(blobs.get(listed), MOST_LIST))
    except (msgspec.DecodeError, UnicodeDecodeError, TooLarge) as error:
        raise Unlisted(f"{listed} is no list of files: {error}") from None
    for file in files:
        if wrong_path(file.path) is not None or not is_digest(file.digest) or file.size < 0:
            raise Unlisted(f"{listed} lists {file.path[:100]!r}, which is no file of ours")
    if len(files) > MOST_FILES or clash(file.path for file in files) is not None:
        raise Unlisted(f"{listed} lists too many files, or one twice")
    return files


class FileDesk:
    """What is asked of files."""

    def __init__(self, blobs: Blobs, max_inputs: int = GIB, max_outputs: int = GIB) -> None:
        self._blobs = blobs
        self.max_inputs = max_inputs
        """Bytes that all inputs of a job may have."""
        self.max_outputs = max_outputs
        """Bytes that all outputs of a task may have."""

    async def check(self, forms: Sequence[JobForm], project: str | None = None) -> None:
        """Raise CommandError unless all that jobs need is there; it stays for a day from now on.

        For whoever is let in for a project, nothing is there but what is of the project.
        """
        needing = [(at, form) for at, form in enumerate(forms) if form.unpacked or form.spec.digests]
        if not needing:
            return
        there = await self._blobs.sizes(
            list(dict.fromkeys(digest for _, form in needing for digest in form.spec.digests)), project
        )
        problems = [problem for at, form in needing for problem in self._problems(at, form, there)]
        if problems:
            raise CommandError(ErrorKind.INVALID, problems[0].message, problems)

    def _problems(self, at: int, form: JobForm, there: dict[str, int]) -> Iterable[FieldProblem]:
        """What is wrong with the inputs of one job."""
        name, where = form.spec.name, f"jobs[{at}].spec.inputs"
        if form.unpacked:
            told = f"{name}: {form.unpacked[0].path!r} has no digest; submit it with `spill` or from Python, which upload it"
            yield FieldProblem(where, told)
        total = sum(file.size for file in form.spec.inputs)
        if total > self.max_inputs:
            largest = max(form.spec.inputs, key=lambda file: file.size)
            yield FieldProblem(
                where,
                f"{name}: its inputs have {format_memory(total)}, the largest is {largest.path} with "
                f"{format_memory(largest.size)}; the most is {format_memory(self.max_inputs)} (files.max_inputs)",
            )
        for place, file in enumerate(form.spec.inputs):
            size = there.get(file.digest)
            if size is None:
                yield FieldProblem(
                    f"{where}[{place}]", f"{name}: {file.path} is not on the server; upload it first"
                )
            elif size != file.size:
                told = f"{name}: {file.path} has {size} bytes, not {file.size}"
                yield FieldProblem(f"{where}[{place}].size", told)
        for digest in form.spec.digests[len(form.spec.inputs) :]:
            if digest not in there:
                told = f"{name}: {digest} is not on the server; upload it first"
                yield FieldProblem(f"jobs[{at}].spec.python", told)

    async def give(self, digests: Iterable[str], project: str | None) -> None:
        """Let whoever is let in for a project read some blobs, as they are told of them by a job of the project."""
        if project is not None:
            await self._blobs.give(digests, project)

    async def brought_back(self, found: Found, attempt: int | None, project: str | None = None) -> FilesView:
        """The files that an attempt of a job brought back; None is the last that brought any.

        From then on, those who are let in for the project of the job may read them.
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
                    ErrorKind.UNKNOWN,
                    f"the files of attempt {chosen} of {id_of(found)} are not kept any more",
                ) from None
            except Unlisted as error:
                raise CommandError(ErrorKind.UNKNOWN, str(error)) from None
        await self.give([file.digest for file in files], project)
        views = [
            FileView(file.path, file.digest, file.size, file.executable)
            for file in files
            if file.path not in KEPT_STREAMS
        ]
        return FilesView(id_of(found), chosen, sorted(outputs), views)

    async def output(self, found: Found, attempt: int, *, stderr: bool) -> File | None:
        """What an attempt wrote, if it was kept here."""
        outputs = dict(found.outputs if isinstance(found, Finished) else _of_job(found))
        if attempt in outputs:
            with contextlib.suppress(NoBlob, Unlisted):
                for file in await files_in(self._blobs, outputs[attempt]):
                    if file.path == KEPT_STREAMS[stderr] and await self._blobs.sizes([file.digest]):
                        return file
        return None

    def pieces(self, file: File, offset: int) -> AsyncIterator[bytes]:
        """A file that is kept here, from an offset on."""
        return self._blobs.get(file.digest, offset)


def _of_job(found: Found) -> tuple[tuple[int, str], ...]:
    return found.extra.outputs if isinstance(found, Job) else ()
