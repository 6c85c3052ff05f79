"""Job files to jobs: one from a plain value, all of a file, or one that is already decoded."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from spillover.forms.meaning import AfterRef, JobForm, understand
from spillover.forms.problems import BadForm, Findings, FormProblem, Lines, Path, shown
from spillover.forms.work import WORKS
from spillover.forms.writing import to_doc
from spillover.wire.jobfile import API_VERSION, JobDoc, Metadata, SpecDoc

__all__ = [
    "AfterRef",
    "BadForm",
    "JobForm",
    "from_doc",
    "is_manifest",
    "read_job",
    "read_jobs",
    "read_with_lines",
    "to_doc",
]

MOST_JOBS = 100_000
"""Of one file."""

_WHAT: Final = "a job, or the manifest of a Kubernetes Job"
_SPEC_FIELDS = frozenset(SpecDoc.__struct_fields__)


def from_doc(doc: JobDoc) -> JobForm:
    """The job of a decoded document; raises BadForm with all that is absurd in it."""
    found = Findings()
    form = understand(doc.metadata, doc.spec, found)
    if form is None:
        raise BadForm(found.located())
    return form


def read_job(
    value: object, *, source: str = "", lines: Lines | None = None, directory: str | None = None
) -> JobForm:
    """The job of a plain value, our own form or a Kubernetes Job; raises BadForm with all that is wrong with it."""
    found = Findings()
    if is_manifest(value):
        from spillover.forms.manifests import understand_manifest  # noqa: PLC0415 - few job files need it

        form = understand_manifest(value, found)
    else:
        form = _read(value, found, directory)
    if form is None:
        raise BadForm(found.located(source, lines))
    return form


def read_jobs(text: bytes | str, source: str, directory: str | None = None) -> list[JobForm]:
    """The jobs of a file or a script; raises BadForm with all that is wrong with any of them."""
    return [form for form, _ in read_with_lines(text, source, directory)]


def read_with_lines(
    text: bytes | str, source: str, directory: str | None = None
) -> list[tuple[JobForm, Lines]]:
    """The jobs of a file or a script, each with the lines that it was written on; a script has none."""
    # Reading YAML takes longer to load than all of this module; `spill run` has no file.
    from spillover.forms.documents import read_documents  # noqa: PLC0415 - see above
    from spillover.forms.scripts import is_script, read_script  # noqa: PLC0415 - see above

    if is_script(text):
        return [(read_script(text, source, directory), {})]
    forms: list[tuple[JobForm, Lines]] = []
    problems: list[FormProblem] = []
    more = 0
    for document in read_documents(text, source, _WHAT):
        if document.problems:
            problems += document.problems
        try:
            form = read_job(document.value, source=source, lines=document.lines, directory=directory)
            forms.append((form, document.lines))
        except BadForm as error:
            told = {problem.path for problem in document.problems}
            problems += [problem for problem in error.problems if problem.path not in told]
            more += error.more
    if len(forms) > MOST_JOBS:
        problems.append(FormProblem(source, None, "", f"has {len(forms)} jobs; the most is {MOST_JOBS}"))
    if problems:
        raise BadForm(sorted(problems, key=lambda problem: problem.line or 0), more)
    return forms


def is_manifest(value: object) -> bool:
    """Whether a value means to be a Kubernetes Job."""
    version = value.get("apiVersion") if isinstance(value, Mapping) else None
    return isinstance(version, str) and version.startswith("batch/")


def _read(value: object, found: Findings, directory: str | None) -> JobForm | None:
    """The job of a plain value; None with everything noted that is wrong with it."""
    try:
        doc = msgspec.convert(value, JobDoc)
    except (msgspec.ValidationError, RecursionError) as error:
        _explain(value, found, directory)
        if not found.found:  # it is wrong in a way that the checker has no words for
            found.add((), str(error))
        return None
    return understand(doc.metadata, doc.spec, found, directory)


def _explain(value: object, found: Findings, directory: str | None) -> None:
    """Note everything that is wrong with the form of a value, and with the meaning of what is right of it."""
    from spillover.forms.checking import check  # noqa: PLC0415 - slow to load, and only needed for what is wrong

    if (other := _other_kind(value)) is not None:
        found.add(("kind",), f"{other} is not read; write a Job, of {API_VERSION} or of batch/v1")
        return
    if isinstance(value, Mapping) and value.get("apiVersion", API_VERSION) != API_VERSION:
        found.add(("apiVersion",), f"{shown(value['apiVersion'])} is not {API_VERSION} or batch/v1")
        value = {**value, "apiVersion": API_VERSION}
    right: Any = check(JobDoc, value, found)
    if not isinstance(right, dict) or "spec" not in right:
        return
    form = list(found.found)
    try:
        spec = msgspec.convert(right["spec"], SpecDoc)
        meta = msgspec.convert(right.get("metadata", {}), Metadata)
    except (msgspec.ValidationError, RecursionError):  # a list that is too long: noted, and not mended
        return
    meaning = Findings()
    understand(meta, spec, meaning, directory)
    for path, message in meaning.found:
        if not (path == ("spec",) and _names_work(form)):
            found.add(found.written(path), message)


def _other_kind(value: object) -> str | None:
    """What a value says that it is, if that is something else of Kubernetes, of which no field is one of ours; else None."""
    version, kind = (
        (value.get("apiVersion"), value.get("kind")) if isinstance(value, Mapping) else (None, None)
    )
    if not (isinstance(version, str) and isinstance(kind, str)) or kind == "Job" or version == API_VERSION:
        return None
    return f"{shown(kind)} of {shown(version)}"


def _names_work(form: list[tuple[Path, str]]) -> bool:
    """Whether something wrong was said about the work, so that it is not missing."""
    return any(
        path[0] == "spec" and (path[1] in WORKS or path[1] not in _SPEC_FIELDS)
        for path, _ in form
        if len(path) > 1
    )
