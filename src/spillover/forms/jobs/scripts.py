"""Reads scripts as jobs: `#SPILL --cpu 4 --walltime 2h` lines in the comments at the top replace a job file.

`#SBATCH` lines of Slurm do too, see `sbatch`. If both set a field, `#SPILL` wins.

The job contains the script's text, so that machines without the file can run it. Text for `sh` becomes the job's `run`.
Text for other interpreters that accept a program as an argument becomes `INTERPRETER -c TEXT`, for Python by way of a few
lines that let the text see itself as the file that it was. For all others, and for
scripts too long for one argument, the job names the file by its path, which must then exist on the machine that runs
it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from posixpath import abspath, basename
from typing import Any, Final

from msgspec.structs import replace

from spillover.forms.checking import nearest
from spillover.forms.documents import MOST_BYTES
from spillover.forms.jobs.meaning import JobForm, clean_name
from spillover.forms.jobs.options import BY_FLAG, OPTIONS, OptionKind, as_flags, doc_from_options, merged
from spillover.forms.jobs.reading import read_job
from spillover.forms.jobs.sbatch import NOBODY, PREFIX, Sbatch, Submitter
from spillover.forms.jobs.srun import srun_variable, with_srun
from spillover.forms.jobs.work import MOST_WORD
from spillover.forms.problems import BadForm, FormProblem, Lines, Path, shown
from spillover.model.admission import ON_FIRST_NODE

_PREFIX: Final = "#SPILL"
_SHELLS = frozenset({"bash", "dash", "ash", "zsh", "ksh", "mksh"})
"""Run as `-c TEXT NAME`; the name becomes `$0`."""
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
AS_FILE: Final = """\
import sys
def start(path, text):
    import linecache, os, traceback
    main = sys.modules["__main__"].__dict__
    del main["start"], sys.argv[0], sys.argv[1]
    main["__file__"] = path
    if sys.path[:1] == [""] and os.path.isdir(os.path.dirname(path)):
        sys.path[0] = os.path.dirname(path)
    linecache.cache[path] = len(text), None, text.splitlines(True), path
    sys.excepthook = lambda kind, error, trace: traceback.print_exception(kind, error, trace and trace.tb_next and trace.tb_next.tb_next)
    exec(compile(text, path, "exec", 0, True), main)
start(*sys.argv[1:3])
"""
"""Runs the text of a Python script as `python PATH` would: with `__file__`, `sys.argv[0]`, its folder first in `sys.path`, and
tracebacks that name the file and show its lines, also on a machine that has no such file."""
_EVALUATE = frozenset({"perl", "ruby", "node"})
"""Run as `-e TEXT`."""


def is_script(text: bytes | str) -> bool:
    """Return whether a file is a script: it starts with `#!`, or has a #SPILL line in its first comments."""
    head = text[: 64 * 1024]
    start = head if isinstance(head, str) else head.decode("utf-8", "replace")
    if start.startswith("#!"):
        return True
    return any(line.startswith((_PREFIX, PREFIX)) for _, line in _top(start.removeprefix("\ufeff")))


def read_script(
    text: bytes | str,
    source: str,
    directory: str | None = None,
    submitter: Submitter = NOBODY,
    arguments: Sequence[str] = (),
) -> tuple[JobForm, Lines]:
    """Read the job of a script, which gets these arguments, and the lines of its options; raise BadForm with all problems."""
    plain = _decoded(text, source)
    slurm = _slurm(plain, source, directory, submitter)
    problems = list(slurm.problems)
    values: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for number, line in _top(plain):
        if line.startswith(_PREFIX):
            for flag, value in _flags(line, number, source, problems):
                values.setdefault(BY_FLAG[flag].dest, []).append(value)
                lines[flag] = number
    form: JobForm | None = None
    try:
        work = _work(plain, source, directory, arguments)
        if slurm.is_read:
            work = with_srun(work)
        doc = doc_from_options(values, _on_first_node(work) if slurm.is_gang else work)
        doc = {
            **doc,
            "metadata": merged(slurm.metadata, doc["metadata"]),
            "spec": merged(slurm.spec, doc["spec"]),
        }
        doc["metadata"].setdefault("name", clean_name(source if source != "-" else "script"))
        form = read_job(doc, directory=directory)
    except BadForm as error:
        for problem, flagged in zip(error.problems, as_flags(error).problems, strict=True):
            told: tuple[str, int | None] = flagged.path, lines.get(flagged.path)
            if told[1] is None:
                told = slurm.origin(problem.path) or told
            problems.append(FormProblem(source, told[1], told[0], problem.message))
    if problems or form is None:
        raise BadForm(sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0))
    written: dict[Path, int] = {tuple(path.split(".")): line for path, (_, line) in slurm.origins.items()}
    written |= {BY_FLAG[flag].path: line for flag, line in lines.items()}
    return replace(form, warnings=tuple(slurm.warnings)) if slurm.warnings else form, written


def _slurm(text: str, source: str, directory: str | None, submitter: Submitter) -> Sbatch:
    """Read the `#SBATCH` lines of a script."""
    slurm = Sbatch(source, submitter)
    top = _top(text)
    if any(line.startswith(PREFIX) for _, line in top):
        slurm.read(top)
        slurm.spec["env"] = {**srun_variable(text), **slurm.spec.get("env", {})}
        if directory is not None and "workdir" in slurm.spec:
            slurm.spec["env"] = {"SLURM_SUBMIT_DIR": directory, **slurm.spec.get("env", {})}
        if submitter.host:
            slurm.spec["env"] = {"SLURM_SUBMIT_HOST": submitter.host, **slurm.spec.get("env", {})}
    return slurm


def _on_first_node(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return work that only the first task of a gang does, while the others serve remote shells to it."""
    words = work["command"] if "command" in work else ["/bin/sh", "-c", work["run"]]
    return {"command": [*ON_FIRST_NODE, *words]}


def _top(text: str) -> list[tuple[int, str]]:
    """Return the comment and blank lines before the first other line, with their numbers."""
    top: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n", 2000)[:2000], 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        top.append((number, stripped))
    return top


def _decoded(text: bytes | str, source: str) -> str:
    """Decode the text of a script."""
    if len(text) > MOST_BYTES:
        raise BadForm([FormProblem(source, None, "", f"is larger than {MOST_BYTES // 2**20} MiB")])
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8-sig")
        plain.encode()
    except UnicodeError:
        raise BadForm([FormProblem(source, None, "", "is not UTF-8 text; save it as UTF-8")]) from None
    if "\0" in plain:
        raise BadForm([FormProblem(source, None, "", "contains a NUL byte; this is not a text file")])
    return plain


def _flags(line: str, number: int, source: str, problems: list[FormProblem]) -> list[tuple[str, str]]:
    """Return the known flags of a line with their values."""
    known = [option.flag for option in OPTIONS]

    def note(path: str, message: str) -> None:
        problems.append(FormProblem(source, number, path, message))

    if line.removeprefix(_PREFIX)[:1].strip():
        note("", f"{shown(line.split(maxsplit=1)[0])} is not {_PREFIX}; add a space after {_PREFIX}")
        return []
    try:
        words = shlex.split(line.removeprefix(_PREFIX), comments=True)
    except ValueError as error:
        note("", f"cannot be parsed: {str(error).lower()}")
        return []
    flags: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        flag, equals, value = words[at].partition("=")
        at += 1
        if flag not in BY_FLAG:
            if flag.startswith("-"):
                note("", f"unknown option {shown(flag)}{nearest(flag, known)}")
                at += not equals and at < len(words) and not words[at].startswith("--")
            else:
                note("", f"{shown(flag)} does not belong to an option; put values with spaces in quotes")
            continue
        if BY_FLAG[flag].kind is OptionKind.FLAG:
            if equals:
                note(flag, f"takes no value; remove {shown(value)}")
                continue
        elif not equals:
            if at >= len(words) or words[at].startswith("--"):
                note(flag, f"needs a value; write {flag} {BY_FLAG[flag].metavar}")
                continue
            value = words[at]
            at += 1
        flags.append((flag, value))
    return flags


def _work(text: str, source: str, directory: str | None, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the field that runs a script with its arguments."""
    first = text.partition("\n")[0]
    interpreter = _interpreter(first) if first.startswith("#!") else []
    program = _program(interpreter)
    fits = len(text.encode()) <= MOST_WORD
    if fits and not arguments and (not interpreter or (program == "sh" and len(interpreter) == 1)):
        return {"run": text}
    if fits and (not interpreter or program in _SHELLS | {"sh"}):
        shell = interpreter or ["/bin/sh"]
        return {"command": [*shell, "-c", text, basename(source), *arguments]}
    if fits and _PYTHON.fullmatch(program):
        if source == "-":
            return {"command": [*interpreter, "-c", text, *arguments]}
        return {"command": [*interpreter, "-c", AS_FILE, abspath(source), text, *arguments]}
    if fits and program in _EVALUATE:
        return {"command": [*interpreter, "-e", text, *(["--", *arguments] if arguments else [])]}
    return {"command": [*(interpreter or ["/bin/sh"]), _path(source, directory, fits=fits), *arguments]}


def _path(source: str, directory: str | None, *, fits: bool) -> str:
    """Return the path of the script, for an interpreter that must open it."""
    if source == "-" or directory is None:
        why = "its interpreter needs a file" if fits else f"it is longer than {MOST_WORD} bytes"
        raise BadForm(
            [
                FormProblem(
                    source,
                    1,
                    "",
                    f"cannot run without a file: {why}; save the script to a file and submit it",
                )
            ]
        )
    return abspath(source)


def _program(interpreter: Sequence[str]) -> str:
    """Return the name of an interpreter, also after `env`."""
    if [basename(word) for word in interpreter[:1]] != ["env"]:
        return basename(interpreter[0]) if interpreter else ""
    words = (word for word in interpreter[1:] if not word.startswith("-") and "=" not in word)
    return basename(next(words, ""))


def _interpreter(first: str) -> Sequence[str]:
    """Return the words of a `#!` line."""
    words = first.removeprefix("#!").split()
    return [word for at, word in enumerate(words) if not (at == 1 and word in {"-S", "--split-string"})]
