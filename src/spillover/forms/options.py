"""Options of a job as flags: one table for `spill run` and for the `#SPILL` lines of scripts."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.wire.jobfile import API_VERSION


class OptionKind(StrEnum):
    """What a flag takes."""

    TEXT = "text"
    """A word, once; quantities stay as they were written."""
    NUMBER = "number"
    """A whole number, once."""
    LIST = "list"
    """A word, as often as one likes."""
    PAIRS = "pairs"
    """`NAME=VALUE`, as often as one likes."""


class Option(Struct, frozen=True):
    """One flag and the field of the job file that it stands for."""

    flag: str
    """With its dashes."""
    path: tuple[str, ...]
    """Where in the job file."""
    metavar: str
    help: str
    kind: OptionKind = OptionKind.TEXT

    @property
    def dest(self) -> str:
        """Its name among parsed values, as argparse makes it."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def repeatable(self) -> bool:
        """Whether it may be given more than once."""
        return self.kind in {OptionKind.LIST, OptionKind.PAIRS}


OPTIONS: Final = (
    Option(
        "--name", ("metadata", "name"), "NAME", "what it is called (default: the first word of the command)"
    ),
    Option("--project", ("metadata", "project"), "NAME", "who pays for it (default: default)"),
    Option("--queue", ("spec", "queue"), "NAME", "the queue it waits in (default: default)"),
    Option("--cpu", ("spec", "resources", "cpu"), "N", "CPUs of each task: 2, 1.5 or 500m (default: 1)"),
    Option("--memory", ("spec", "resources", "memory"), "SIZE", "memory of each task: 512Mi, 2Gi"),
    Option("--gpu", ("spec", "resources", "gpu"), "N", "GPUs of each task (default: 0)", OptionKind.NUMBER),
    Option("--tasks", ("spec", "tasks"), "N", "tasks that start together (default: 1)", OptionKind.NUMBER),
    Option("--walltime", ("spec", "walltime"), "TIME", "limit such as 90s, 10m, 1h30m; then it is stopped"),
    Option("--estimate", ("spec", "estimate"), "TIME", "how long it is expected to run (default: walltime)"),
    Option("--deadline", ("spec", "deadline"), "WHEN", "latest finish, as 2027-01-31T18:00:00Z"),
    Option("--not-before", ("spec", "not_before"), "WHEN", "earliest start, as 2027-01-30T00:00:00Z"),
    Option("--priority", ("spec", "priority"), "N", "higher first (default: 0)", OptionKind.NUMBER),
    Option("--burst", ("spec", "burst"), "auto|never|always", "whether it may run on rented capacity"),
    Option("--max-cost", ("spec", "max_cost"), "AMOUNT", "the most that renting it may cost"),
    Option("--egress", ("spec", "data"), "SIZE", "data that leave a rented cluster at its end: 20G"),
    Option(
        "--need",
        ("spec", "needs"),
        "WORD",
        "what its cluster must offer, as gpu:a100; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--cluster",
        ("spec", "where", "cluster"),
        "NAME",
        "a cluster that it may run on; repeatable (default: any)",
        OptionKind.LIST,
    ),
    Option(
        "--avoid",
        ("spec", "where", "avoid"),
        "NAME",
        "a cluster that it must not run on; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--region",
        ("spec", "where", "region"),
        "NAME",
        "a region that its cluster may be in; repeatable (default: any)",
        OptionKind.LIST,
    ),
    Option(
        "--where",
        ("spec", "where", "labels"),
        "NAME=VALUE",
        "a label that its cluster must have; repeatable",
        OptionKind.PAIRS,
    ),
    Option("--env", ("spec", "env"), "NAME=VALUE", "an environment variable; repeatable", OptionKind.PAIRS),
    Option("--workdir", ("spec", "workdir"), "DIR", "where it runs (default: here)"),
    Option(
        "--retry-exit",
        ("spec", "retry", "exit"),
        "N",
        "tries after a bad exit code (default: 0)",
        OptionKind.NUMBER,
    ),
    Option(
        "--retry-lost",
        ("spec", "retry", "lost"),
        "N",
        "tries after a lost machine (default: 3)",
        OptionKind.NUMBER,
    ),
    Option(
        "--on-cluster-failure",
        ("spec", "on_cluster_failure"),
        "wait|requeue|cancel",
        "what becomes of it when its cluster fails (default: wait)",
    ),
    Option("--lost-after", ("spec", "lost_after"), "TIME", "how long it outlives an unreachable server"),
    Option("--grace", ("spec", "grace"), "TIME", "between TERM and KILL (default: 10s)"),
    Option("--array", ("spec", "array"), "RANGES", "one member for each index: 1-100 or 1-10,20"),
    Option(
        "--after",
        ("spec", "after"),
        "JOB[:any]",
        "a job that must succeed (or end) first; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--input",
        ("spec", "inputs"),
        "PATH[:AS]",
        "a file, folder or pattern to bring to where it runs; repeatable",
        OptionKind.LIST,
    ),
    Option(
        "--output",
        ("spec", "outputs"),
        "PATH",
        "a file, folder or pattern to bring back when it ended; repeatable",
        OptionKind.LIST,
    ),
    Option("--key", ("spec", "key"), "TEXT", "submitted once, however often it is repeated under this key"),
    Option(
        "--label", ("metadata", "labels"), "NAME=VALUE", "a label of your own; repeatable", OptionKind.PAIRS
    ),
)

BY_FLAG: Final[Mapping[str, Option]] = {option.flag: option for option in OPTIONS}
_BY_PATH = {".".join(option.path): option.flag for option in OPTIONS}


def doc_from_options(
    values: Mapping[str, str | Sequence[str] | None], work: Mapping[str, Any]
) -> dict[str, Any]:
    """A job file of parsed flags, by `Option.dest`, and the fields that say what runs; raises BadForm."""
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


def as_flags(error: BadForm) -> BadForm:
    """The same problems, named by the flags that they came from where there are such."""
    return BadForm([_renamed(problem) for problem in error.problems], error.more)


def _renamed(problem: FormProblem) -> FormProblem:
    """A problem at its flag."""
    for path, flag in _BY_PATH.items():
        if problem.path == path or problem.path.startswith((f"{path}.", f"{path}[")):
            return FormProblem(problem.source, problem.line, flag, problem.message)
    return problem


def _value(option: Option, given: str | Sequence[str]) -> object:
    """What the job file has for a flag; raises ValueError with what to write."""
    words = [given] if isinstance(given, str) else list(given)
    match option.kind:
        case OptionKind.TEXT:
            return words[-1]
        case OptionKind.NUMBER:
            return _number(words[-1])
        case OptionKind.PAIRS:
            return dict(_pair(word) for word in words)
        case OptionKind.LIST if option.flag == "--after":
            return [_after(word) for word in words]
        case OptionKind.LIST if option.flag == "--input":
            return [_input(word) for word in words]
        case OptionKind.LIST:
            return words


def _number(word: str) -> int:
    """A whole number."""
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(f"{shown(word)} is not a whole number")
    return int(word)


def _pair(word: str) -> tuple[str, str]:
    """A name and its value."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise ValueError(f"{shown(word)} is not NAME=VALUE")
    return name, value


def _after(word: str) -> dict[str, str]:
    """A job to wait for."""
    job, _, on = word.partition(":")
    return {"job": job, "on": on or "success"}


def _input(word: str) -> str | dict[str, str]:
    """A file, and what it is called there if that is something else."""
    path, colon, to = word.partition(":")
    return {"path": path, "as": to} if colon else path


def _put(doc: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set a field, with the mappings that it is in."""
    for name in path[:-1]:
        doc = doc.setdefault(name, {})
    doc[path[-1]] = value
