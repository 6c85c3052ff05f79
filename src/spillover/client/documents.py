"""Converts the arguments of `submit` to job documents: documents, forms, files, or keyword fields."""

import os
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname
from typing import Any, Final, TypeAlias, cast

from spillover.client.errors import NoEffect, Refused
from spillover.client.handles import CallHandle, MapHandle
from spillover.forms.jobs.reading import BadForm, JobForm, is_manifest, read_with_lines, to_doc
from spillover.forms.jobs.sbatch import Submitter
from spillover.wire.api import FieldProblem, Patch
from spillover.wire.jobfile import API_VERSION

Job: TypeAlias = Mapping[str, Any] | JobForm | Path
"""A job document as plain values, a parsed job, or the path of a file with jobs."""

_METADATA: Final = ("name", "project", "labels")
_RESOURCES: Final = ("cpu", "memory", "gpu")


def documents(jobs: Job | Iterable[Job] | None, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the documents of all arguments, in order."""
    if jobs is None and not fields:
        raise TypeError('give a job: a document, a path, a list of them, or fields such as run="echo hi"')
    docs = [doc for job in _each(jobs) for doc in _documents_of(job)]
    return [*docs, from_fields(fields)] if fields else docs


def from_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Build a document from fields: metadata and resources by their names, all others in the spec."""
    spec: dict[str, Any] = {
        name: _plain(value) for name, value in fields.items() if name not in (*_METADATA, *_RESOURCES)
    }
    if resources := {name: fields[name] for name in _RESOURCES if fields.get(name) is not None}:
        spec["resources"] = {**spec.get("resources", {}), **resources}
    metadata = {name: fields[name] for name in _METADATA if fields.get(name) is not None}
    return _here({"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec})


def change_of(fields: Mapping[str, Any]) -> Patch:
    """Return the change that fields mean, by the names of `from_fields`; None removes a limit."""
    if fields.keys() == {"priority"}:
        return Patch(fields["priority"])  # servers of earlier releases know this form alone
    spec = {name: _plain(value) for name, value in fields.items() if name not in (*_METADATA, *_RESOURCES)}
    if resources := {name: fields[name] for name in _RESOURCES if name in fields}:
        spec["resources"] = {**spec.get("resources", {}), **resources}
    return Patch(metadata={name: fields[name] for name in _METADATA if name in fields}, spec=spec)


def _each(jobs: Job | Iterable[Job] | None) -> Iterable[Job]:
    """Return one or many jobs as an iterable."""
    if jobs is None:
        return ()
    if callable(cast("object", jobs)):
        raise TypeError("submit takes jobs; write client.call(function, ...) to call a function")
    if isinstance(jobs, str):
        raise TypeError(f"give pathlib.Path({jobs!r}) for a file, or run={jobs!r} for a command")
    return (jobs,) if isinstance(jobs, Mapping | JobForm | Path) else jobs


def _documents_of(job: Job) -> list[dict[str, Any]]:
    """Return the documents of one argument."""
    if isinstance(job, JobForm):
        return [_here(to_doc(job))]
    if isinstance(job, Mapping):
        return [_here(dict(job))]
    if not isinstance(job, Path):
        raise TypeError(f"a job is a document, a JobForm or a path, not {type(job).__name__}")
    try:
        submitter = Submitter(os.environ, datetime.now(UTC).astimezone(), gethostname())
        forms = read_with_lines(job.read_bytes(), str(job), str(Path.cwd()), submitter)
    except OSError as error:
        raise Refused(f"{job} cannot be read: {error.strerror}", status=400, kind="invalid") from None
    except BadForm as bad:
        problems = [
            FieldProblem(f"{job}:{one.line}" if one.line else str(job), _said(one.path, one.message))
            for one in bad.problems
        ]
        raise Refused(str(bad).split("\n", 1)[0], status=400, kind="invalid", problems=problems) from None
    docs = []
    for form, lines in forms:
        for warning in form.warnings:
            warnings.warn(str(warning), stacklevel=2)
        docs.append(to_doc(form))
        if not lines:  # a script
            from spillover.forms.jobs.ignored import ignored_in  # noqa: PLC0415 - loaded with scripts

            for note in ignored_in(docs[-1]["spec"], str(job)):
                warnings.warn(note, NoEffect, stacklevel=2)
    return docs


def _here(doc: dict[str, Any]) -> dict[str, Any]:
    """Return the document with an absolute working directory."""
    spec = doc.get("spec")
    if is_manifest(doc) or not isinstance(spec, Mapping):
        return doc
    given = spec.get("workdir")
    if given is not None and not isinstance(given, str | os.PathLike):
        return doc
    return {**doc, "spec": {**spec, "workdir": str(Path.cwd() / (given or "."))}}


def _plain(value: Any) -> Any:
    """Convert a value to plain data."""
    if isinstance(value, timedelta):
        return f"{value / timedelta(microseconds=1):.0f}us"
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, CallHandle | MapHandle):  # in `from` and `after`
        return value.job
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _said(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message
