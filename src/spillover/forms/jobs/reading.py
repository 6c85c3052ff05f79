"""Reads jobs from plain values, from whole files, and from decoded documents."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spillover.forms.jobs.meaning import AfterRef, JobForm, understand
from spillover.forms.jobs.work import WORKS
from spillover.forms.jobs.writing import to_doc
from spillover.forms.problems import BadForm, Findings, FormProblem, Lines, Path, shown
from spillover.wire.jobfile import API_VERSION, JobDoc, Metadata, SpecDoc

if TYPE_CHECKING:
    from spillover.forms.jobs.sbatch import Submitter

__all__ = [
    "AfterRef",
    "BadForm",
    "JobForm",
    "from_doc",
    "is_jobspec",
    "is_manifest",
    "read_job",
    "read_jobs",
    "read_with_lines",
    "to_doc",
]

MOST_JOBS = 100_000
"""Most jobs of one file."""

_WHAT: Final = "a job, the manifest of a Kubernetes Job, or a jobspec"
_SPEC_FIELDS = frozenset(SpecDoc.__struct_fields__)


def from_doc(doc: JobDoc) -> JobForm:
    """Return the job of a decoded document; raise BadForm with all problems."""
    found = Findings()
    form = understand(doc.metadata, doc.spec, found)
    if form is None:
        raise BadForm(found.located())
    return form


def read_job(
    value: object, *, source: str = "", lines: Lines | None = None, directory: str | None = None
) -> JobForm:
    """Read the job of a plain value, in our form or as a Kubernetes Job; raise BadForm with all problems."""
    found = Findings()
    if is_manifest(value):
        from spillover.forms.jobs.manifests import understand_manifest  # noqa: PLC0415 - few job files need it

        form = understand_manifest(value, found)
    elif is_jobspec(value):
        from spillover.forms.jobs.jobspec import understand_jobspec  # noqa: PLC0415 - few job files need it

        form = understand_jobspec(value, found, directory)
    else:
        form = _read(value, found, directory)
    if form is None:
        raise BadForm(found.located(source, lines))
    return form


def read_jobs(text: bytes | str, source: str, directory: str | None = None) -> list[JobForm]:
    """Read the jobs of a file or script; raise BadForm with the problems of all of them."""
    return [form for form, _ in read_with_lines(text, source, directory)]


def read_with_lines(
    text: bytes | str,
    source: str,
    directory: str | None = None,
    submitter: "Submitter | None" = None,
    arguments: Sequence[str] = (),
) -> list[tuple[JobForm, Lines]]:
    """Read the jobs of a file or script, each with its line numbers. A script may have arguments."""
    # The YAML parser takes longer to load than this module, and `spill run` reads no file.
    from spillover.forms.documents import read_documents  # noqa: PLC0415 - see above
    from spillover.forms.jobs.scripts import is_script, read_script  # noqa: PLC0415 - see above

    _check_first_line(text, source, script=is_script(text))
    if is_script(text):
        from spillover.forms.jobs.sbatch import NOBODY  # noqa: PLC0415 - loaded with scripts

        return [read_script(text, source, directory, submitter or NOBODY, arguments)]
    if arguments:
        raise BadForm([FormProblem(source, None, "", "is a job file; only scripts take arguments")])
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
        problems.append(FormProblem(source, None, "", f"has {len(forms)} jobs; the maximum is {MOST_JOBS}"))
    if problems:
        raise BadForm(sorted(problems, key=lambda problem: problem.line or 0), more)
    return forms


_LANGUAGES: Final = {
    ".py": "python3",
    ".pl": "perl",
    ".rb": "ruby",
    ".js": "node",
    ".r": "Rscript",
    ".jl": "julia",
    ".sh": "sh",
    ".bash": "bash",
}
"""Interpreters of files by their suffix."""


def _check_first_line(text: bytes | str, source: str, *, script: bool) -> None:
    """Refuse a program without a `#!` line; only a shell script with options does without one."""
    name = source.lower()
    language = next((word for suffix, word in _LANGUAGES.items() if name.endswith(suffix)), None)
    if language is None or (script and (language in {"sh", "bash"} or text[:2] in {"#!", b"#!"})):
        return
    message = (
        f"has no #! line, so nobody knows what runs it; write #!/usr/bin/env {language} as its first line"
    )
    raise BadForm([FormProblem(source, 1, "", message)])


def is_manifest(value: object) -> bool:
    """Return whether a value looks like a Kubernetes Job."""
    version = value.get("apiVersion") if isinstance(value, Mapping) else None
    return isinstance(version, str) and version.startswith("batch/")


def is_jobspec(value: object) -> bool:
    """Return whether a value looks like a jobspec of Flux."""
    return isinstance(value, Mapping) and "resources" in value and "apiVersion" not in value


def _read(value: object, found: Findings, directory: str | None) -> JobForm | None:
    """Read the job of a plain value; None and problems in `found` if it is invalid."""
    try:
        doc = msgspec.convert(value, JobDoc)
    except (msgspec.ValidationError, RecursionError) as error:
        _explain(value, found, directory)
        if not found.found:  # the checker found no difference that explains the failure
            found.add((), str(error))
        return None
    return understand(doc.metadata, doc.spec, found, directory)


def _explain(value: object, found: Findings, directory: str | None) -> None:
    """Add all problems with the form of a value, and with the meaning of its valid parts."""
    from spillover.forms.checking import check  # noqa: PLC0415 - slow to load, and only needed for problems

    if (other := _other_kind(value)) is not None:
        found.add(("kind",), f"{other} is not supported; write a Job of {API_VERSION} or batch/v1")
        return
    if isinstance(value, Mapping) and value.get("apiVersion", API_VERSION) != API_VERSION:
        found.add(("apiVersion",), f"{shown(value['apiVersion'])} must be {API_VERSION} or batch/v1")
        value = {**value, "apiVersion": API_VERSION}
    right: Any = check(JobDoc, value, found)
    if not isinstance(right, dict) or "spec" not in right:
        return
    form = list(found.found)
    try:
        spec = msgspec.convert(right["spec"], SpecDoc)
        meta = msgspec.convert(right.get("metadata", {}), Metadata)
    except (msgspec.ValidationError, RecursionError):  # a list that is too long: reported, but not shortened
        return
    meaning = Findings()
    understand(meta, spec, meaning, directory)
    for path, message in meaning.found:
        if not (path == ("spec",) and _names_work(form)):
            found.add(found.written(path), message)


def _other_kind(value: object) -> str | None:
    """Return the kind of a value that is another Kubernetes object; else None."""
    version, kind = (
        (value.get("apiVersion"), value.get("kind")) if isinstance(value, Mapping) else (None, None)
    )
    if not (isinstance(version, str) and isinstance(kind, str)) or kind == "Job" or version == API_VERSION:
        return None
    return f"{shown(kind)} of {shown(version)}"


def _names_work(form: list[tuple[Path, str]]) -> bool:
    """Return whether a problem concerns the work, so that the work is not reported as missing too."""
    return any(
        path[0] == "spec" and (path[1] in WORKS or path[1] not in _SPEC_FIELDS)
        for path, _ in form
        if len(path) > 1
    )
