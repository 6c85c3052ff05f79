"""Converts a decoded job file to the model, and checks its meaning.

Every submission passes through here, so a typical small job must take only a few microseconds: quantities and shapes
are cached, and nothing is copied without need.
"""

import re
from functools import lru_cache
from posixpath import basename, join, normpath
from typing import Final, Self

from msgspec import Struct, msgpack
from msgspec.structs import replace

from spillover.forms.jobs.arrays import ArrayError, parse_throttled
from spillover.forms.jobs.groups import Grouped, read_groups, read_resources, read_tasks
from spillover.forms.jobs.inputs import Files, Unpacked, read_files, read_stdin
from spillover.forms.jobs.notifying import read_notify
from spillover.forms.jobs.on_agents import read_on_agents
from spillover.forms.jobs.srun import srun_word
from spillover.forms.jobs.where import constrained, located
from spillover.forms.jobs.work import check_env, check_text, work_of
from spillover.forms.problems import Findings, FormProblem, shown
from spillover.forms.quantities import (
    MOST_CPU,
    MOST_GRACE,
    MOST_LOST_AFTER,
    check_name,
    duration,
    money,
    quantity,
    read_memory,
    read_words,
)
from spillover.model.admission import STDIN, STREAMS, TASK_RULES, TERMINAL
from spillover.model.files import File
from spillover.model.ids import is_name
from spillover.model.job import (
    Argv,
    Burst,
    Container,
    GroupWork,
    JobSpec,
    On,
    OnFailure,
    OnTaskFailure,
    OnTaskSuccess,
    PythonCall,
    Range,
    Retry,
    Shape,
    Shell,
    Terms,
    Work,
)
from spillover.model.resources import Others, Resources
from spillover.model.units import parse_time
from spillover.wire.jobfile import Metadata, ResourcesDoc, SpecDoc

MOST_JOB: Final = 1 << 20
"""Most bytes of a job's work, variables and file list, because they are sent with every task."""

_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
PATTERNS: Final = ("%A", "%a", "%j", "%J", "%x", "%N", "%n", "%t", "%u", "%%")
"""Patterns in the names of output files; a number before the letter fills up with zeros."""
_PATTERN = re.compile(r"%[0-9]{0,2}(.?)", re.DOTALL)
_DEFAULT_TERMS: Final = Terms()
_ONE_CPU: Final = ResourcesDoc()
_COMMAND: Final = ("command",)
_PYTHON: Final = ("python",)
_FILES: Final = ("files",)
_COMMAND_FILES: Final = ("command", "files")
_FILES_PYTHON: Final = ("files", "python")
_DEFAULT_RULES: Final = (_DEFAULT_TERMS.on_task_failure, _DEFAULT_TERMS.on_task_success)
_ANYWHERE: Final = (None,) * 5
_NO_FILES: Final = Files()
_encoder: Final = msgpack.Encoder()


class AfterRef(Struct, frozen=True):
    """A job to wait for, as the user named it."""

    ref: str
    """Id, prefix of an id, or name."""
    on: On = On.SUCCESS
    same: bool = False
    """Whether each member of the array waits for the member of that one with its index alone."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what a spec has for display."""
        ref, on, *members = text.split(" ")
        return cls(ref, On(on), bool(members))

    def __str__(self) -> str:
        return f"{self.ref} {self.on} same" if self.same else f"{self.ref} {self.on}"


class JobForm(Struct, frozen=True):
    """A submitted job, with references that are not resolved yet."""

    spec: JobSpec
    after: tuple[AfterRef, ...] = ()
    key: str | None = None
    """Idempotency key; None if every submission is a new job."""
    unpacked: tuple[Unpacked, ...] = ()
    """Inputs that the client must still find; the server accepts none."""
    warnings: tuple[FormProblem, ...] = ()
    """What is ignored, and the job runs without it."""
    stdin: str | None = None
    """The path of a standard input that the client must still read; the server accepts none."""
    saved: tuple[str, ...] = ()
    saved_by: str = ""
    """What another job left in its folders, by rank, and that job; only the server sets them, for jobs that run again."""


def understand(meta: Metadata, doc: SpecDoc, found: Findings, directory: str | None = None) -> JobForm | None:
    """Convert a document to a job; None if a problem was added to `found`."""
    before = len(found.found)
    grouped: Grouped | None = None
    if doc.groups is None:
        work, needs = work_of(doc, found)
    else:
        grouped = read_groups(doc, found)
        work, needs = grouped.works[0].work if grouped.works else None, grouped.needs
    name = meta.name if meta.name is not None else default_name(work)
    _check_names(name, meta, doc, found)
    shape = _shape(doc, needs, found)
    if grouped is not None:
        shape = grouped.shaped(shape)
    if doc.where is not None or doc.container is not None or doc.constraints is not None:
        shape = constrained(shape, doc, found)
    if (doc.within, doc.spread, doc.exclusive, doc.pin, doc.gpu_link) != _ANYWHERE:
        shape = located(shape, doc, found)
    if doc.reservation is not None:
        check_name(doc.reservation, ("spec", "reservation"), found)
        shape = replace(shape, reservation=doc.reservation)
    terms = _terms(doc, found, shape)
    after = tuple(_after(doc, found)) if doc.after or doc.python is not None else ()
    deadline = _time(doc.deadline, "deadline", found)
    not_before = _time(doc.not_before, "not_before", found)
    if deadline is not None and not_before is not None and not_before >= deadline:
        found.add(("spec", "deadline"), "must be later than `not_before`")
    if meta.labels:
        _check_labels(meta.labels, found)
    if doc.env:
        check_env(doc.env, found)
        shape = _with_srun(doc, shape)
    if doc.workdir is not None:
        check_text(doc.workdir, ("spec", "workdir"), found)
    files = read_files(doc, found) if doc.inputs or doc.outputs else _NO_FILES
    array, throttle = _array(doc.array, found)
    shape = _with_streams(doc, shape, found)
    own, shape = read_on_agents(doc, shape, terms, found)
    shape, stdin, unread = _with_stdin(doc, shape, found)
    shape = _with_terminal(doc, shape, found)
    if doc.key is not None and not doc.key.isprintable():
        found.add(("spec", "key"), "contains characters that cannot be printed")
    notify = read_notify(doc.notify, found) if doc.notify else ()
    groups = () if grouped is None else grouped.works
    if work is None or len(found.found) > before or not _fits(work, doc.env, files.packed, groups, found):
        return None
    spec = JobSpec(
        work=work,
        name=name,
        project=meta.project,
        queue=doc.queue,
        shape=shape,
        terms=terms,
        labels=meta.labels,
        env=doc.env,
        workdir=_workdir(doc.workdir, directory),
        priority=doc.priority,
        deadline=deadline,
        not_before=not_before,
        array=array,
        after=tuple(map(str, after)),
        inputs=files.packed,
        outputs=files.outputs,
        groups=groups,
        hold=doc.hold,
        throttle=throttle,
        singleton=doc.singleton,
        stdout=doc.stdout or "",
        stderr=doc.stderr or "",
        append=doc.open_mode == "append",
        signal=own.signal,
        signal_before=own.signal_before,
        stdin=stdin,
        keep_state=own.keep_state,
        terminal=doc.terminal,
        environment=own.environment,
        taken=files.taken,
        secrets=own.secrets,
        notify=notify,
    )
    return JobForm(spec, after, doc.key, files.unpacked, stdin=unread)


def default_name(work: Work | None) -> str:
    """Return the name of a job without one."""
    match work:
        case Shell(run=run):
            return clean_name(first_word(run))
        case Argv(command=command):
            return clean_name(command[0])
        case PythonCall(call=call):
            return clean_name(call.partition(":")[2] or "call")
        case Container(image=image):
            return clean_name(basename(image).partition("@")[0].partition(":")[0])
    return "job"


def first_word(script: str) -> str:
    """Return the program that a script runs first, after assignments; empty if there is none."""
    return next((word for word in script[:256].split() if "=" not in word), "")


@lru_cache(maxsize=1024)
def clean_name(word: str) -> str:
    """Turn a word, or the file name of a path, into a valid name."""
    return _NOT_NAME.sub("-", basename(word)[:256]).strip("._-")[:63].rstrip("._-") or "job"


def _check_names(name: str, meta: Metadata, doc: SpecDoc, found: Findings) -> None:
    """Check the names of the job, its project and its queue."""
    if meta.name is not None:
        check_name(name, ("metadata", "name"), found)
    if meta.project != "default":
        check_name(meta.project, ("metadata", "project"), found)
    if doc.queue != "default":
        check_name(doc.queue, ("spec", "queue"), found)


def _shape(doc: SpecDoc, implied: tuple[str, ...], found: Findings) -> Shape:
    """Return what the job asks of machines."""
    asked = doc.resources
    needs = implied
    if doc.needs:
        needs = tuple(sorted({*implied, *read_words(doc.needs, ("spec", "needs"), found)}))
    runs, (tasks, most) = _runs(doc), (doc.tasks, 0) if type(doc.tasks) is int else read_tasks(doc, found)
    if asked is _ONE_CPU or (
        asked.memory is None
        and type(asked.cpu) is int
        and 0 < asked.cpu <= MOST_CPU // 1000
        and not asked.other
    ):
        return _shared_shape(int(asked.cpu) * 1000, 0, asked.gpu, needs, tasks, doc.burst, runs, (), most)
    each = read_resources(asked, ("spec", "resources"), found)
    return _shared_shape(each.cpu, each.memory, each.gpu, needs, tasks, doc.burst, runs, each.other, most)


def _runs(doc: SpecDoc) -> tuple[str, ...]:
    """Return what a cluster must be able to run; containers are a need instead."""
    if (doc.on_task_failure, doc.on_task_success) != _DEFAULT_RULES:
        return tuple(sorted((*_work_runs(doc), TASK_RULES)))
    return _work_runs(doc)


def _work_runs(doc: SpecDoc) -> tuple[str, ...]:
    """Return what a cluster must be able to run because of the kind of work; groups add theirs."""
    if doc.groups is not None:
        return _FILES if doc.inputs or doc.outputs else ()
    if doc.container is not None:
        return _FILES if doc.inputs or doc.outputs else ()
    if doc.inputs or doc.outputs:
        return _FILES_PYTHON if doc.python is not None else _COMMAND_FILES
    return _PYTHON if doc.python is not None else _COMMAND


@lru_cache(maxsize=4096)
def _shared_shape(
    cpu: int,
    memory: int,
    gpu: int,
    needs: tuple[str, ...],
    tasks: int,
    burst: str,
    runs: tuple[str, ...],
    other: Others = (),
    most: int = 0,
) -> Shape:
    """Return one shared shape for all jobs that have it."""
    return Shape(Resources(cpu, memory, gpu, other), needs, tasks, Burst(burst), None, runs, most=most)


def _terms(doc: SpecDoc, found: Findings, shape: Shape) -> Terms:
    """Read time limits, cost limit and retries."""
    walltime = estimate = max_cost = None
    grace, lost_after = _DEFAULT_TERMS.grace, _DEFAULT_TERMS.lost_after
    if doc.walltime is not None:
        walltime = duration(doc.walltime, ("spec", "walltime"), found, least=1)
    if doc.estimate is not None:
        estimate = duration(doc.estimate, ("spec", "estimate"), found, least=1)
        if estimate is not None and walltime is not None and estimate > walltime:
            found.add(("spec", "estimate"), f"{shown(doc.estimate)} is longer than the walltime")
    if doc.grace is not None:
        grace = duration(doc.grace, ("spec", "grace"), found, most=MOST_GRACE) or 0
    if doc.lost_after is not None:
        lost_after = (
            duration(doc.lost_after, ("spec", "lost_after"), found, least=1, most=MOST_LOST_AFTER) or 0
        )
    if doc.max_cost is not None:
        max_cost = money(doc.max_cost, ("spec", "max_cost"), found)
    retry = Retry(doc.retry.exit, doc.retry.lost)
    data = 0 if doc.data is None else read_memory(doc.data, ("spec", "data"), found) or 0
    failure, tasks = OnFailure(doc.on_cluster_failure), _DEFAULT_RULES
    if (doc.on_task_failure, doc.on_task_success) != _DEFAULT_RULES:  # a member is found slowly by its value
        tasks = OnTaskFailure(doc.on_task_failure), OnTaskSuccess(doc.on_task_success)
    if tasks is not _DEFAULT_RULES and not shape.is_gang:
        field = "on_task_failure" if tasks[0] is not OnTaskFailure.FAIL else "on_task_success"
        found.add(("spec", field), "is for jobs with several tasks; set `tasks`, or remove it")
    elif tasks[0] is OnTaskFailure.RESTART:
        works = [doc, *(doc.groups or ())]
        if any(each.python is not None or each.container is not None for each in works):
            found.add(("spec", "on_task_failure"), "restart works with `run` and `command` only")
        elif not doc.retry.exit:
            found.add(
                ("spec", "on_task_failure"),
                "restart needs `retry.exit`, the number of restarts; set it to 1 or more",
            )
    terms = Terms(walltime, estimate, grace, lost_after, retry, max_cost, data, failure, *tasks)
    return _DEFAULT_TERMS if terms == _DEFAULT_TERMS else terms


def _time(value: str | None, name: str, found: Findings) -> int | None:
    """Read a time; None if it is missing or invalid."""
    if value is None:
        return None
    return quantity(parse_time, value, ("spec", name), found)


def _array(value: str | int | None, found: Findings) -> tuple[tuple[Range, ...], int]:
    """Read the ranges of an array, and how many members may be placed at a time."""
    if value is None:
        return (), 0
    path = ("spec", "array")
    if isinstance(value, int):
        found.add(
            path, f"{shown(value)} is ambiguous (an index, or a number of members); write 1-{shown(value)}"
        )
        return (), 0
    try:
        return parse_throttled(value)
    except ArrayError as error:
        found.add(path, str(error))
        return (), 0


def _with_streams(doc: SpecDoc, shape: Shape, found: Findings) -> Shape:
    """Check the files for output; return the shape of a job that has some, which not every cluster can run."""
    if doc.stdout is None and doc.stderr is None:
        return shape
    for name, path in (("stdout", doc.stdout), ("stderr", doc.stderr)):
        if path is None:
            continue
        where = ("spec", name)
        if doc.run is None and doc.command is None:
            found.add(where, "is only for `run` and `command`; `spill logs` has the output of others")
        check_text(path, where, found)
        wrong = [f"%{letter}" for letter in _PATTERN.findall(path) if f"%{letter}" not in PATTERNS]
        if not path or path.endswith("/"):
            found.add(where, f"{shown(path)} is not a file; write a path such as out_%j.txt")
        elif wrong:
            known = ", ".join(PATTERNS)
            found.add(where, f"{shown(wrong[0])} in {shown(path)} is not a pattern; write one of {known}")
        elif (doc.inputs or doc.outputs) and normpath(path).startswith("../"):
            rule = "leads out of the folder that the job gets for its files; write an absolute path"
            found.add(where, f"{shown(path)} {rule}")
    return replace(shape, runs=tuple(sorted({*shape.runs, STREAMS})))


def _with_stdin(doc: SpecDoc, shape: Shape, found: Findings) -> tuple[Shape, File | None, str | None]:
    """Read the standard input; return the shape of a job that has one, which not every cluster can run."""
    if doc.stdin is None:
        return shape, None, None
    return replace(shape, runs=tuple(sorted({*shape.runs, STDIN}))), *read_stdin(doc, found)


def _with_srun(doc: SpecDoc, shape: Shape) -> Shape:
    """Return the shape of a job whose script may call srun, which not every cluster can run."""
    word = srun_word(doc.env)
    return replace(shape, runs=tuple(sorted({*shape.runs, *word}))) if word else shape


def _with_terminal(doc: SpecDoc, shape: Shape, found: Findings) -> Shape:
    """Check a job with a terminal; return its shape, which not every cluster can run."""
    if not doc.terminal:
        return shape
    where = ("spec", "terminal")
    if doc.run is None and doc.command is None:
        found.add(where, "is only for `run` and `command`")
    if shape.is_gang or doc.array is not None:
        found.add(where, "is for jobs with one task; remove `tasks` and `array`")
    if doc.stdin is not None or doc.stdout is not None or doc.stderr is not None:
        found.add(where, "takes the place of `stdin`, `stdout` and `stderr`; remove them, or the terminal")
    return replace(shape, runs=tuple(sorted({*shape.runs, TERMINAL})))


def _after(doc: SpecDoc, found: Findings) -> list[AfterRef]:
    """Read the jobs to wait for, without duplicates."""
    seen: dict[str, AfterRef] = {}
    for at, one in enumerate(doc.after):
        ref, on = (one, On.SUCCESS) if isinstance(one, str) else (one.job, On(one.on))
        same = not isinstance(one, str) and one.members == "same"
        if not is_name(ref):
            found.add(("spec", "after", at), f"{shown(ref)} is not a job name or id")
        elif ref in seen:
            found.add(("spec", "after", at), f"lists {shown(ref)} twice; remove one")
        elif same and not doc.array:
            found.add(
                ("spec", "after", at, "members"),
                "same (aftercorr) is for arrays; add `array`, or write `all` (afterok)",
            )
        seen[ref] = AfterRef(ref, on, same)
    for job in doc.python.values if doc.python is not None else ():
        # A member is not a job that others can wait for before it is placed, so wait for its array.
        ref = job.partition(".")[0]
        seen[ref] = AfterRef(ref, On.SUCCESS)
    return list(seen.values())


def _check_labels(labels: dict[str, str], found: Findings) -> None:
    """Check that labels are short and printable."""
    for name, value in labels.items():
        if not name or len(name) > 256 or not name.isprintable():
            found.add(
                ("metadata", "labels", name), "is not a valid label name; write 1 to 256 printable characters"
            )
        if len(value) > 1024 or not value.isprintable():
            found.add(
                ("metadata", "labels", name), "has an invalid value; write up to 1024 printable characters"
            )


def size_of(work: Work, env: dict[str, str], files: tuple[File, ...], groups: tuple[GroupWork, ...]) -> int:
    """Return how many bytes of a job are sent with every task."""
    return len(_encoder.encode((groups or work, env, files) if files else (groups or work, env)))


def _fits(
    work: Work,
    env: dict[str, str],
    files: tuple[File, ...],
    groups: tuple[GroupWork, ...],
    found: Findings,
) -> bool:
    """Return whether a job is small enough to send; add a problem if not."""
    size = size_of(work, env, files, groups)
    if size > MOST_JOB:
        tenths = -(-size * 10 // MOST_JOB)  # round up, so that a job that is too large never shows as 1.0 MiB
        found.add(
            ("spec",),
            f"the job has {tenths // 10}.{tenths % 10} MiB; the maximum is 1 MiB; put data in files",
        )
    return size <= MOST_JOB


def _workdir(workdir: str | None, directory: str | None) -> str:
    """Return the working directory, relative to where the job was submitted."""
    if workdir is None or workdir in {".", ""}:
        return directory or "."
    return join(directory, workdir) if directory else workdir
