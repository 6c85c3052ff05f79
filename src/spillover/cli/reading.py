"""Files to job documents: everything is read and checked here, with line numbers, before anything is sent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spillover.cli.command import Usage
from spillover.forms.files import read_file
from spillover.forms.jobs import read_jobs, to_doc
from spillover.forms.problems import BadForm, Problem

STDIN: Final = "-"


def read_files(names: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs of all files, in their order; raises BadForm with what is wrong in any of them."""
    if names.count(STDIN) > 1:
        raise Usage("standard input can be read once; write - once")
    directory = str(Path.cwd())
    documents: list[dict[str, Any]] = []
    problems: list[Problem] = []
    more = 0
    for name in names:
        try:
            documents += map(to_doc, read_jobs(read_file(name), name, directory))
        except BadForm as error:
            problems += error.problems
            more += error.more
    if problems:
        raise BadForm(problems, more)
    return documents
