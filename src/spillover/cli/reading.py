"""Reads and checks job files before anything is sent, with line numbers in every error.

Errors that only the client or the server can find get the file and line of their field too.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any, Final

from spillover.cli.command import UsageError
from spillover.client import Refused
from spillover.forms.files import read_file
from spillover.forms.jobs.options import as_flags, doc_from_options, merged
from spillover.forms.jobs.reading import read_job, read_with_lines, to_doc
from spillover.forms.jobs.sbatch import Submitter
from spillover.forms.problems import BadForm, FormProblem, Origin, located_in

STDIN: Final = "-"


def read_files(
    names: Sequence[str],
    *,
    options: Mapping[str, str | Sequence[str] | None] | None = None,
    arguments: Sequence[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> tuple[list[dict[str, Any]], list[Origin]]:
    """Read the jobs of all files in order, with their origins; raise BadForm with the problems of every file.

    Options of the command line replace those of the files. A script gets the arguments.
    """
    if names.count(STDIN) > 1:
        raise UsageError("- (standard input) is given twice; it can be read only once")
    directory = str(Path.cwd())
    submitter = Submitter(os.environ, datetime.now(UTC).astimezone(), gethostname())
    given = _given(options or {})
    documents: list[dict[str, Any]] = []
    origins: list[Origin] = []
    problems: list[FormProblem] = []
    more = 0
    for name in names:
        try:
            for form, lines in read_with_lines(read_file(name), name, directory, submitter, arguments):
                documents.append(_changed(to_doc(form), given, directory))
                origins.append(Origin(name, lines))
                for warning in form.warnings:
                    warn(str(warning))
        except BadForm as error:
            problems += error.problems
            more += error.more
    if problems:
        raise BadForm(problems, more)
    return documents, origins


def from_options(options: Mapping[str, str | Sequence[str] | None]) -> dict[str, Any]:
    """Return the fields that options set; raise BadForm with each problem named by its flag."""
    given = _given(options)
    if (workdir := given.get("spec", {}).get("workdir")) is not None:
        given["spec"]["workdir"] = str(Path.cwd() / workdir)
    return given


def _given(options: Mapping[str, str | Sequence[str] | None]) -> dict[str, Any]:
    """Return the fields that options set; raise BadForm with each problem named by its flag."""
    document = doc_from_options(options, {})
    return {name: fields for name in ("metadata", "spec") if (fields := document[name])}


def _changed(document: dict[str, Any], given: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return a document with the fields of options; raise BadForm with each problem named by its flag."""
    if not given:
        return document
    changed = merged(document, given)
    if (workdir := given.get("spec", {}).get("workdir")) is not None:
        changed["spec"]["workdir"] = str(Path(directory, workdir))
    try:
        return to_doc(read_job(changed))
    except BadForm as error:
        raise as_flags(error) from None


@contextmanager
def located(origins: Sequence[Origin]) -> Iterator[None]:
    """Convert a Refused error with problems in fields into BadForm, with the file and line of each."""
    try:
        yield
    except Refused as error:
        if not error.problems:
            raise
        raise BadForm([located_in(each.path, each.message, origins) for each in error.problems]) from None
