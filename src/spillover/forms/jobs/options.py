"""The options of a job as flags: one table for `spill run` and for `#SPILL` lines of scripts."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.wire.jobfile import API_VERSION


class OptionKind(StrEnum):
    """The kind of value that a flag takes."""

    TEXT = "text"
    """One word; quantities stay as written."""
    NUMBER = "number"
    """One whole number."""
    RANGE = "range"
    """One whole number, or two with `..` between them."""
    LIST = "list"
    """A word; repeatable."""
    PAIRS = "pairs"
    """`NAME=VALUE`; repeatable."""
    FLAG = "flag"
    """No value."""


class Option(Struct, frozen=True):
    """A flag, and the field of the job file that it sets."""

    flag: str
    """With its dashes."""
    path: tuple[str, ...]
    """Path of the field in the job file."""
    metavar: str
    help: str
    kind: OptionKind = OptionKind.TEXT

    @property
    def dest(self) -> str:
        """Name of the parsed value, as argparse derives it."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def repeatable(self) -> bool:
        """Whether it may be given more than once."""
        return self.kind in {OptionKind.LIST, OptionKind.PAIRS}


OPTIONS: Final = (
    Option(
        "--name", ("metadata", "name"), "NAME", "name of the job (default: the first word of the command)"
    ),
    Option("--project", ("metadata", "project"), "NAME", "project that pays for the job (default: default)"),
    Option("--queue", ("spec", "queue"), "NAME", "name of the queue; `spill queues` lists them"),
    Option("--cpu", ("spec", "resources", "cpu"), "N", "CPUs of each task: 2, 1.5 or 500m (default: 1)"),
    Option("--memory", ("spec", "resources", "memory"), "SIZE", "memory of each task: 512Mi, 2Gi"),
    Option("--gpu", ("spec", "resources", "gpu"), "N", "GPUs of each task (default: 0)", OptionKind.NUMBER),
    Option(
        "--tasks",
        ("spec", "tasks"),
        "N|N..M",
        "tasks that start together (default: 1); with 2..8, as many as fit",
        OptionKind.RANGE,
    ),
    Option("--walltime", ("spec", "walltime"), "TIME", "time limit, such as 90s, 10m or 1h30m"),
    Option(
        "--signal-before",
        ("spec", "signal_before"),
        "TIME",
        "how long before the walltime tasks get a signal, to save their work",
    ),
    Option("--signal", ("spec", "signal"), "NAME", "that signal, such as USR1 (default: TERM)"),
    Option("--estimate", ("spec", "estimate"), "TIME", "expected runtime (default: walltime)"),
    Option("--deadline", ("spec", "deadline"), "WHEN", "latest end, such as 2027-01-31T18:00:00Z"),
    Option("--not-before", ("spec", "not_before"), "WHEN", "earliest start, such as 2027-01-30T00:00:00Z"),
    Option(
        "--priority",
        ("spec", "priority"),
        "N",
        "jobs with a higher priority go first (default: 0)",
        OptionKind.NUMBER,
    ),
    Option("--burst", ("spec", "burst"), "auto|never|always", "whether the job may run on rented capacity"),
    Option("--max-cost", ("spec", "max_cost"), "AMOUNT", "the most the job may cost on rented capacity"),
    Option(
        "--egress",
        ("spec", "data"),
        "SIZE",
        "data transferred out of a rented cluster when the job ends: 20G",
    ),
    Option(
        "--need",
        ("spec", "needs"),
        "WORD",
        "word that the machine must offer, such as gpu:a100; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--cluster",
        ("spec", "where", "cluster"),
        "NAME",
        "cluster that the job may run on; repeatable (default: any)",
        OptionKind.LIST,
    ),
    Option(
        "--avoid",
        ("spec", "where", "avoid"),
        "NAME",
        "cluster that the job must not run on; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--region",
        ("spec", "where", "region"),
        "NAME",
        "region that the job may run in; repeatable (default: any)",
        OptionKind.LIST,
    ),
    Option(
        "--where",
        ("spec", "where", "labels"),
        "NAME=VALUE",
        "label that the cluster must have; repeatable",
        OptionKind.PAIRS,
    ),
    Option("--within", ("spec", "within"), "LEVEL", "all tasks in one part of this level, such as one rack"),
    Option(
        "--spread", ("spec", "spread"), "LEVEL", "no two tasks in one part of this level, such as one node"
    ),
    Option("--exclusive", ("spec", "exclusive"), "node", "have the nodes of the job for itself"),
    Option(
        "--pin",
        ("spec", "pin"),
        "PART",
        "whole cores for each task alone: anywhere on its node (core), or in one numa node or socket",
    ),
    Option("--gpu-link", ("spec", "gpu_link"), "KIND", "link between the GPUs of a task, such as nvlink"),
    Option(
        "--reservation",
        ("spec", "reservation"),
        "NAME",
        "advance reservation that the job runs in, and nowhere else",
    ),
    Option("--env", ("spec", "env"), "NAME=VALUE", "environment variable; repeatable", OptionKind.PAIRS),
    Option(
        "--workdir", ("spec", "workdir"), "DIR", "working directory of the job (default: the current folder)"
    ),
    Option(
        "--environment",
        ("spec", "environment", "name"),
        "NAME",
        "Python environment of the agent that the job runs in",
    ),
    Option(
        "--requirements",
        ("spec", "environment", "requirements"),
        "FILE",
        "packages of a Python environment that the agent builds for the job",
    ),
    Option(
        "--keep-state",
        ("spec", "keep_state"),
        "",
        "have a folder, SPILL_STATE, that later attempts get with what is in it",
        OptionKind.FLAG,
    ),
    Option(
        "--secret",
        ("spec", "secrets"),
        "NAME[=VARIABLE]",
        "secret of the project as a variable (default: its name in capitals); repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--secret-file",
        ("spec", "secrets"),
        "NAME[=VARIABLE]",
        "secret as a file, with its path in a variable (default: its name in capitals and _FILE); repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--retry-exit",
        ("spec", "retry", "exit"),
        "N",
        "retries after an exit code other than 0 (default: 0)",
        OptionKind.NUMBER,
    ),
    Option(
        "--retry-lost",
        ("spec", "retry", "lost"),
        "N",
        "retries after its machine was lost (default: 3)",
        OptionKind.NUMBER,
    ),
    Option(
        "--on-cluster-failure",
        ("spec", "on_cluster_failure"),
        "wait|requeue|cancel",
        "what to do when its cluster fails (default: wait)",
    ),
    Option(
        "--on-task-failure",
        ("spec", "on_task_failure"),
        "fail|ignore|restart",
        "when a task of several fails: stop the others, let them go on, or start it again (default: fail)",
    ),
    Option(
        "--on-task-success",
        ("spec", "on_task_success"),
        "wait|end",
        "when the first task succeeds: wait for the others, or stop them (default: wait)",
    ),
    Option(
        "--lost-after",
        ("spec", "lost_after"),
        "TIME",
        "how long the job keeps running while the server is unreachable",
    ),
    Option("--grace", ("spec", "grace"), "TIME", "time between TERM and KILL (default: 10s)"),
    Option(
        "--array",
        ("spec", "array"),
        "RANGES",
        "submit an array with these indexes: 1-100 or 1-10,20; with 1-100%4, 4 members at a time",
    ),
    Option(
        "--after",
        ("spec", "after"),
        "JOB[:any|:failure][:same]",
        "job that must succeed (with :any, end; with :failure, fail) first; with :same, each member waits for that of the other array with its index alone; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--singleton",
        ("spec", "singleton"),
        "",
        "start when all your earlier jobs with the same name have ended",
        OptionKind.FLAG,
    ),
    Option("--hold", ("spec", "hold"), "", "hold the job until `spill release`", OptionKind.FLAG),
    Option(
        "--input",
        ("spec", "inputs"),
        "PATH[:AS]",
        "file, folder or pattern to copy to where the job runs; from:JOB:PATH[:AS] of the outputs of a job; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--output",
        ("spec", "outputs"),
        "PATH",
        "file, folder or pattern to copy back when the job has ended; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--pty",
        ("spec", "terminal"),
        "",
        "run it in a terminal: `spill run` connects yours, and `spill attach` comes back to it",
        OptionKind.FLAG,
    ),
    Option(
        "--stdin",
        ("spec", "stdin"),
        "FILE",
        "file here that the job reads as standard input; `spill run` also sends what is piped to it",
    ),
    Option(
        "--stdout",
        ("spec", "stdout"),
        "PATH",
        "file for output where the job runs: res_%A_%a.out (job or array, index), %j, %x (name), %N (node)",
    ),
    Option("--stderr", ("spec", "stderr"), "PATH", "the same for errors; it may be the same file"),
    Option(
        "--open-mode",
        ("spec", "open_mode"),
        "truncate|append",
        "what happens to these files when the job starts (default: truncate)",
    ),
    Option(
        "--notify",
        ("spec", "notify"),
        "WHEN:TO",
        "mail address or webhook to tell of its end, as in end:ada@example.org or begin,fail:chat; repeatable",
        OptionKind.LIST,
    ),
    Option("--key", ("spec", "key"), "TEXT", "idempotency key: repeated submissions create one job"),
    Option(
        "--label", ("metadata", "labels"), "NAME=VALUE", "label of your choice; repeatable", OptionKind.PAIRS
    ),
)

BY_FLAG: Final[Mapping[str, Option]] = {option.flag: option for option in OPTIONS}
_FROM: Final = "from:"
"""Begins an input that is an output of another job. Of a file with such a name, write `./from:x`."""
_BY_PATH = {".".join(option.path): option.flag for option in reversed(OPTIONS)}
"""The flag for each field; the first one if several set it."""


def doc_from_options(
    values: Mapping[str, str | Sequence[str] | None], work: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the job file for parsed flags (by `Option.dest`) and the fields of the work; raise BadForm."""
    doc: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {}, "spec": dict(work)}
    problems: list[FormProblem] = []
    for option in OPTIONS:
        given = values.get(option.dest)
        if given is None or (option.repeatable and not given):
            continue
        try:
            _put(doc, option.path, _value(option, given))
        except ValueError as error:
            problems.append(FormProblem("", None, option.flag, str(error)))
    if problems:
        raise BadForm(problems)
    return doc


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of both, with mappings joined; `above` wins."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            both[name] = merged(below[name], above[name])
    return both


def as_flags(error: BadForm) -> BadForm:
    """Return the same problems with flags in place of paths, where a flag set the field."""
    return BadForm([_renamed(problem) for problem in error.problems], error.more)


def _renamed(problem: FormProblem) -> FormProblem:
    """Return a problem with its flag in place of its path."""
    for path, flag in _BY_PATH.items():
        if problem.path == path or problem.path.startswith((f"{path}.", f"{path}[")):
            return FormProblem(problem.source, problem.line, flag, problem.message)
    return problem


def _value(option: Option, given: str | Sequence[str]) -> object:
    """Return the field value for a flag; raise ValueError with advice."""
    words = [given] if isinstance(given, str) else list(given)
    match option.kind:
        case OptionKind.TEXT:
            return words[-1]
        case OptionKind.NUMBER:
            return _number(words[-1])
        case OptionKind.RANGE:
            # Other text goes on to the form, which says how to write a range.
            return _number(words[-1]) if _is_number(words[-1]) else words[-1]
        case OptionKind.PAIRS:
            return dict(_pair(word) for word in words)
        case OptionKind.LIST:
            return [_ENTRIES[option.flag](word) for word in words] if option.flag in _ENTRIES else words
        case OptionKind.FLAG:
            return True


def _number(word: str) -> int:
    """Parse a whole number."""
    if not _is_number(word):
        raise ValueError(f"{shown(word)} is not a whole number")
    return int(word)


def _is_number(word: str) -> bool:
    """Return whether a word is a whole number of at most 18 digits."""
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 18


def _pair(word: str) -> tuple[str, str]:
    """Parse a name and its value."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise ValueError(f"{shown(word)} is not NAME=VALUE")
    return name, value


def _after(word: str) -> dict[str, str]:
    """Parse a job to wait for."""
    job, *words = word.split(":")
    members = {"members": "same"} if "same" in words else {}
    on = [each for each in words if each != "same"]
    return {"job": job, "on": ":".join(on) or "success"} | members


def _input(word: str) -> str | dict[str, str]:
    """Parse an input, of a job if it says so, with its destination if there is one."""
    job = ""
    if word.startswith(_FROM):
        job, colon, word = word.removeprefix(_FROM).partition(":")
        if not colon or not word:
            raise ValueError(
                f"{shown(_FROM + job)} names no files; write {_FROM}JOB:PATH or {_FROM}JOB:PATH:AS"
            )
    path, colon, to = word.partition(":")
    if job:
        return {"from": job, "path": path} | ({"as": to} if colon else {})
    return {"path": path, "as": to} if colon else path


def _secret_file(word: str) -> dict[str, Any]:
    """Parse a secret that is wanted as a file."""
    name, equals, variable = word.partition("=")
    return {"name": name, "file": True} | ({"as": variable} if equals else {})


_ENTRIES: Final[Mapping[str, Callable[[str], object]]] = {
    "--after": _after,
    "--input": _input,
    "--secret-file": _secret_file,
}
"""Flags whose values are more than words."""


def _put(doc: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set a field, or add to one that another flag has set, and create the mappings around it."""
    for name in path[:-1]:
        doc = doc.setdefault(name, {})
    known = doc.get(path[-1])
    doc[path[-1]] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value
