"""Reads the `#SBATCH` lines of a script as fields of a job file, so that scripts for Slurm run as they are.

As in Slurm, the script runs once, on the first of its nodes, and has all CPUs, GPUs and memory of the job there. A job
for several nodes is a gang with one task for each of them, and the first task runs the script, which starts the others
by `srun` or `mpirun`.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from spillover.forms.checking import nearest
from spillover.forms.jobs.meaning import clean_name
from spillover.forms.jobs.on_agents import signal_name
from spillover.forms.jobs.sbatch_options import BY_LETTER, BY_NAME, SbatchOption, Takes, Use
from spillover.forms.jobs.sbatch_values import (
    ALL_MEMORY,
    SbatchError,
    both_ends,
    features,
    moment,
    number,
    read_gres,
    read_mail_types,
    read_memory,
    read_nodes,
    read_signal,
    read_span,
)
from spillover.forms.problems import FormProblem, shown
from spillover.model.ids import is_name
from spillover.model.notifications import is_address

PREFIX: Final = "#SBATCH"
_ON: Final = {"afterok": "success", "aftercorr": "success", "afterany": "any", "afternotok": "failure"}
_HET: Final = frozenset({"hetjob", "packjob"})


class Submitter(NamedTuple):
    """What the reader knows of the shell that submits a script."""

    environ: Mapping[str, str] = {}
    """Its variables, for --export."""
    now: datetime | None = None
    """Its time with its zone, for --begin; None if unknown."""
    host: str = ""
    """The name of its machine; empty if unknown."""


NOBODY: Final = Submitter()
"""A submitter of whom nothing is known."""


class Directive(NamedTuple):
    """One option of a script."""

    option: SbatchOption
    value: str
    line: int


class Sbatch:
    """The options of one script, as fields of a job file."""

    def __init__(self, source: str, submitter: Submitter) -> None:
        self._source = source
        self._submitter = submitter
        self.metadata: dict[str, Any] = {}
        self.spec: dict[str, Any] = {}
        self.problems: list[FormProblem] = []
        self.warnings: list[FormProblem] = []
        self.origins: dict[str, tuple[str, int]] = {}
        """By path of a field, the option that sets it, and its line."""
        self.nodes = 1
        """Nodes of the job; more than one is a gang, of which only the first task runs the script."""
        self._given: dict[str, Directive] = {}
        self.is_read = False
        """Whether there are such lines."""

    @property
    def is_gang(self) -> bool:
        """Whether it is for several nodes."""
        return "tasks" in self.spec

    def origin(self, path: str) -> tuple[str, int] | None:
        """Return the option that set a field or what it is in, and its line; None if none did."""
        for known, origin in self.origins.items():
            if path == known or path.startswith((f"{known}.", f"{known}[")):
                return origin
        return None

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        """Read the lines at the top of a script."""
        self.is_read = True
        for line, text in lines:
            if text.startswith(PREFIX):
                for each in self._directives(text, line):
                    self._take(each)
        for name, act in _ACTS.items():
            if (directive := self._given.get(name)) is not None:
                self._try(directive, act)
        self._shape()

    # --- the words of a line

    def _directives(self, text: str, line: int) -> list[Directive]:
        """Return the options of one line."""
        rest = text.removeprefix(PREFIX)
        if rest[:1].strip():
            return []  # as for sbatch, `#SBATCHx` is a comment
        try:
            words = shlex.split(rest, comments=True)
        except ValueError as error:
            self._problem(line, "", f"cannot be parsed: {str(error).lower()}")
            return []
        found: list[Directive] = []
        words.reverse()
        while words:
            word = words.pop()
            if word in _HET:
                self._problem(line, "", f"{word} is not supported; write a job file with `groups`")
            elif not word.startswith("-") or word in {"-", "--"}:
                told = "does not belong to an option; put values with spaces in quotes"
                self._problem(line, "", f"{shown(word)} {told}")
            elif (directive := self._directive(word, words, line)) is not None:
                found.append(directive)
        return found

    def _directive(self, word: str, words: list[str], line: int) -> Directive | None:
        """Return one option, with its value from the same or the next word."""
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            option = BY_NAME.get(flag)
        else:
            flag, option = word[:2], BY_LETTER.get(word[1])
            value, equals = word[2:].removeprefix("="), word[2:]
        if option is None:
            near = nearest(flag, list(BY_NAME)) if flag.startswith("--") else ""
            self._problem(line, "", f"unknown option {shown(flag)}{near}")
            if not equals and words and not words[-1].startswith("-"):
                words.pop()
            return None
        if option.takes is Takes.VALUE and not equals:
            if not words:
                self._problem(line, option.flag, f"needs a value; write {option.flag}=VALUE")
                return None
            value = words.pop()
        if option.takes is Takes.NOTHING and equals:
            self._problem(line, option.flag, f"takes no value; remove {shown(value)}")
            return None
        return Directive(option, value, line)

    def _take(self, directive: Directive) -> None:
        """Sort an option into those to use, to ignore and to refuse; the last of several wins."""
        option = directive.option
        if option.use is Use.REFUSED:
            self._problem(directive.line, option.flag, f"is not supported: {option.advice}")
        elif option.use is Use.IGNORED:
            self._warn(directive, f"is ignored: {option.advice}")
        else:
            self._given.pop(option.flag, None)
            self._given[option.flag] = directive

    def _try(self, directive: Directive, act: "Callable[[Sbatch, Directive], None]") -> None:
        try:
            act(self, directive)
        except SbatchError as error:
            self._problem(directive.line, directive.option.flag, str(error))

    # --- fields

    def _put(self, directive: Directive, path: str, value: Any) -> None:
        """Set a field of the job file, such as `spec.retry.lost`."""
        first, *between, last = path.split(".")
        where = self.metadata if first == "metadata" else self.spec
        for name in between:
            where = where.setdefault(name, {})
        where[last] = value
        self.origins[path] = (directive.option.flag, directive.line)

    def _name(self, directive: Directive) -> None:
        name = directive.value
        if not is_name(name):
            name = clean_name(name.replace("/", "-"))
            self._warn(directive, f"{shown(directive.value)} is not a name here; the job is called {name}")
        self._put(directive, "metadata.name", name)

    def _time(self, directive: Directive) -> None:
        if (seconds := read_span(directive.value)) is not None:
            self._put(directive, "spec.walltime", f"{seconds}s")

    def _signal(self, directive: Directive) -> None:
        name, before = read_signal(directive.value)
        known = signal_name(name)
        if known is None:
            raise SbatchError(f"{shown(name)} is not a signal to send; write USR1@{before}")
        walltime = self._given.get("--time")
        if walltime is not None and any(problem.path == "--time" for problem in self.problems):
            return
        total = None if walltime is None else read_span(walltime.value)
        if total is None:
            raise SbatchError("needs --time: the signal comes that long before its end")
        if before >= total:
            raise SbatchError(f"{before} seconds are not less than --time; write fewer")
        self._put(directive, "spec.signal", known)
        self._put(directive, "spec.signal_before", f"{before}s")

    def _dependency(self, directive: Directive) -> None:
        after: dict[str, str] = {}
        whole: set[str] = set()
        if "?" in directive.value:
            raise SbatchError("alternatives with `?` are not supported; write `,`, so that all must hold")
        for part in directive.value.split(","):
            kind, *jobs = part.strip().split(":")
            if kind == "singleton" and not jobs:
                self._put(directive, "spec.singleton", value=True)
                continue
            if kind not in _ON:
                known = ", ".join([*_ON, "singleton"])
                raise SbatchError(f"{shown(kind)} is not supported; write one of {known}")
            if not jobs or not all(jobs):
                raise SbatchError(f"{shown(part)} names no job; write {kind}:JOB")
            if kind != "aftercorr":
                whole.update(jobs)
            for job in jobs:
                after[job] = both_ends(job, after.get(job, "any"), _ON[kind])
        if after:
            entries = [
                {"job": job, "on": on} | ({} if job in whole else {"members": "same"})
                for job, on in after.items()
            ]
            self._put(directive, "spec.after", entries)

    def _export(self, directive: Directive) -> None:
        """Set variables of the job: those of this shell that are named, or all of them."""
        environ = self._submitter.environ
        env: dict[str, str] = {}
        for part in directive.value.split(","):
            name, equals, value = part.strip().partition("=")
            if name in {"NONE", "NIL"} and not equals:
                continue
            if name == "ALL" and not equals:
                env = {key: text for key, text in environ.items() if _is_copied(key)} | env
                told = "copies all variables of this shell into the job, where others can read them"
                self._warn(directive, told)
            elif equals:
                env[name] = value
            elif name in environ:
                env[name] = environ[name]
            else:
                raise SbatchError(f"{shown(name)} is not set in this shell; write {name}=VALUE")
        self.spec["env"] = env
        self.origins["spec.env"] = (directive.option.flag, directive.line)

    def _moment(self, directive: Directive) -> None:
        field = {"--begin": "not_before", "--deadline": "deadline"}[directive.option.flag]
        if self._submitter.now is None:
            raise SbatchError("needs a clock; write `#SPILL --not-before` with a time and its zone")
        self._put(directive, f"spec.{field}", moment(directive.value, self._submitter.now))

    def _streams(self, directive: Directive) -> None:
        """Write output to a file; as with sbatch, errors go there too unless they have their own."""
        self._put(directive, "spec.stdout", directive.value)
        if "--error" not in self._given:
            self._put(directive, "spec.stderr", directive.value)

    def _open_mode(self, directive: Directive) -> None:
        mode = {"a": "append", "t": "truncate"}.get(directive.value, directive.value)
        self._put(directive, "spec.open_mode", mode)

    def _chdir(self, directive: Directive) -> None:
        self._put(directive, "spec.workdir", directive.value)

    def _partition(self, directive: Directive) -> None:
        first, *others = directive.value.split(",")
        if others:
            raise SbatchError(f"{shown(directive.value)} names several; write one, which becomes the queue")
        self._put(directive, "spec.queue", first)

    def _exclusive(self, directive: Directive) -> None:
        if directive.value:
            self._warn(directive, f"{shown(directive.value)} is ignored: no other job uses the nodes")
        self._put(directive, "spec.exclusive", "node")

    def _constraint(self, directive: Directive) -> None:
        """Ask for nodes by their properties and names; several options hold together."""
        match directive.option.flag:
            case "--constraint":
                wanted = features(directive.value)
            case "--nodelist":
                wanted = {"hostlist": [directive.value]}
            case _:
                wanted = {"not": [{"hostlist": [directive.value]}]}
        earlier = self.spec.get("constraints")
        self._put(directive, "spec.constraints", wanted if earlier is None else {"and": [earlier, wanted]})

    def _mail(self, directive: Directive) -> None:
        """Tell the addresses of --mail-user what --mail-type names. What cannot be told is no reason not to run."""
        kinds, notes = read_mail_types(directive.value)
        for note in notes:
            self._warn(directive, note)
        user = self._given.get("--mail-user")
        if not kinds:
            return
        if user is None:
            told = "is ignored: the server does not know your address; write --mail-user=ada@example.org too"
            self._warn(directive, told)
            return
        addresses: list[str] = []
        for word in user.value.split(","):
            if is_address(word.strip()):
                addresses.append(word.strip())
            else:
                self._warn(user, f"is ignored: {shown(word)} is not a mail address; write ada@example.org")
        if addresses:
            self._put(directive, "spec.notify", [{"to": to, "on": kinds} for to in dict.fromkeys(addresses)])
            self.origins["spec.notify"] = (user.option.flag, user.line)

    def _mail_user(self, directive: Directive) -> None:
        if "--mail-type" not in self._given:
            self._warn(directive, "is ignored without --mail-type; write --mail-type=END,FAIL too")

    def _nice(self, directive: Directive) -> None:
        value = directive.value or "100"
        if not value.removeprefix("-").isdigit():
            raise SbatchError(f"{shown(value)} is not a whole number")
        self._put(directive, "spec.priority", -int(value))

    # --- nodes, tasks and what they need

    def _shape(self) -> None:
        """Set how many nodes the job has, and what it needs on each."""
        counted: dict[str, int] = {}
        for flag in ("--ntasks", "--ntasks-per-node", "--cpus-per-task", "--gpus-per-task", "--cpus-per-gpu"):
            if (directive := self._given.get(flag)) is not None:
                self._try(directive, lambda _, one: counted.update({one.option.flag: number(one.value)}))
        most = 0
        if (directive := self._given.get("--nodes")) is not None:
            try:
                self.nodes, most = read_nodes(directive.value)
            except SbatchError as error:
                self._problem(directive.line, "--nodes", str(error))
        tasks, each = counted.get("--ntasks"), counted.get("--ntasks-per-node")
        if directive is None and tasks is not None and each is not None:
            self.nodes = -(-tasks // each)
            directive = self._given["--ntasks-per-node"]
        here = each or -(-(tasks or self.nodes) // self.nodes)
        cpus = counted.get("--cpus-per-task", 1)
        self._put_nodes(directive, most)
        gpus = self._gpus(here, counted)
        wide = here * cpus
        if (asked := counted.get("--cpus-per-gpu")) is not None:
            wide = max(wide, asked * gpus)
        for flag in ("--cpus-per-gpu", "--cpus-per-task", "--ntasks-per-node", "--ntasks"):
            if flag in counted:
                self._put(self._given[flag], "spec.resources.cpu", wide)
        self._memory(wide, gpus)
        if {"--ntasks", "--ntasks-per-node", "--nodes"} & self._given.keys():
            count = str(tasks or here * self.nodes)
            # One on each of some number of nodes is as many as there are then, which agents tell.
            counts = (
                {} if most and here == 1 and not tasks else {"SLURM_NTASKS": count, "SLURM_NPROCS": count}
            )
            self.spec["env"] = {
                **counts,
                "SLURM_NTASKS_PER_NODE": str(here),
                "SLURM_CPUS_PER_TASK": str(cpus),
                **self.spec.get("env", {}),
            }

    def _qos(self, directive: Directive) -> None:
        """Keep the name of a QOS for people and for the script; nothing else knows it."""
        self._put(directive, "metadata.labels.qos", directive.value)
        self.spec["env"] = {"SLURM_JOB_QOS": directive.value, **self.spec.get("env", {})}
        told = "becomes the label `qos` and has no other effect; write `#SPILL --priority N` or a partition"
        self._warn(directive, told)

    def _put_nodes(self, directive: Directive | None, most: int) -> None:
        """Make a job for several nodes a gang with a task on each."""
        if directive is None or (self.nodes == 1 and not most):
            return
        self._put(directive, "spec.tasks", f"{self.nodes}..{most}" if most else self.nodes)
        self._put(directive, "spec.spread", "node")

    def _gpus(self, tasks: int, counted: Mapping[str, int]) -> int:
        """Set the GPUs of each node; return their number."""
        gpus = 0
        for flag in ("--gpus", "--gpus-per-node", "--gres", "--gpus-per-task"):
            if (directive := self._given.get(flag)) is None:
                continue
            if flag == "--gpus-per-task":
                gpus = counted.get(flag, 0) * tasks
                self._put(directive, "spec.resources.gpu", gpus)
                continue
            try:
                gpus = self._generic(directive, gpus)
            except SbatchError as error:
                self._problem(directive.line, flag, str(error))
        return gpus

    def _generic(self, directive: Directive, gpus: int) -> int:
        """Set GPUs and other resources of each node from a list of them; return the number of GPUs."""
        flag = directive.option.flag
        value = directive.value if flag == "--gres" else f"gpu:{directive.value}"
        for name, kind, count in read_gres(value):
            if name != "gpu":
                self._put(directive, "spec.resources.other", {**_others(self.spec), name: count})
                continue
            if flag == "--gpus" and count % self.nodes:
                raise SbatchError(
                    f"{count} GPUs cannot be divided by {self.nodes} nodes; write --gpus-per-node"
                )
            gpus = count // self.nodes if flag == "--gpus" else count
            self._put(directive, "spec.resources.gpu", gpus)
            if kind:
                self._put(directive, "spec.needs", [f"gpu:{kind}"])
        return gpus

    def _memory(self, cpus: int, gpus: int) -> None:
        """Set the memory of each node."""
        times = {"--mem": 1, "--mem-per-cpu": cpus, "--mem-per-gpu": gpus}
        for flag, count in times.items():
            if (directive := self._given.get(flag)) is None:
                continue
            try:
                kibibytes = read_memory(directive.value)
            except SbatchError as error:
                self._problem(directive.line, flag, str(error))
                continue
            if kibibytes == ALL_MEMORY:
                self._warn(directive, "0 sets no limit; write --exclusive to have a node alone")
            else:
                self._put(directive, "spec.resources.memory", f"{kibibytes * count}Ki")
                if flag == "--mem-per-cpu":
                    self.spec["env"] = {"SLURM_MEM_PER_CPU": str(kibibytes >> 10), **self.spec.get("env", {})}

    # --- messages

    def _problem(self, line: int, flag: str, message: str) -> None:
        self.problems.append(FormProblem(self._source, line, flag, message))

    def _warn(self, directive: Directive, message: str) -> None:
        told = FormProblem(self._source, directive.line, directive.option.flag, message)
        self.warnings.append(told)


def _plain(path: str) -> "Callable[[Sbatch, Directive], None]":
    """Return what sets a field to the value as it was written."""

    def put(sbatch: Sbatch, directive: Directive) -> None:
        sbatch._put(directive, path, directive.value)  # noqa: SLF001 - a part of the class

    return put


def _fixed(path: str, value: object) -> "Callable[[Sbatch, Directive], None]":
    """Return what sets a field to a value of ours."""

    def put(sbatch: Sbatch, directive: Directive) -> None:
        sbatch._put(directive, path, value)  # noqa: SLF001 - a part of the class

    return put


def _is_copied(name: str) -> bool:
    """Return whether --export=ALL copies a variable; those of a job are set where it runs."""
    return not name.startswith(("SPILL_", "SLURM_", "BASH_FUNC_")) and name not in {"PWD", "OLDPWD", "_"}


def _others(spec: Mapping[str, Any]) -> Mapping[str, int]:
    found: Mapping[str, int] = spec.get("resources", {}).get("other", {})
    return found


def _clusters(sbatch: Sbatch, directive: Directive) -> None:
    sbatch._put(directive, "spec.where.cluster", directive.value.split(","))  # noqa: SLF001 - likewise


_ACTS: Final[Mapping[str, "Callable[[Sbatch, Directive], None]"]] = {
    "--account": _plain("metadata.project"),
    "--array": _plain("spec.array"),
    "--begin": Sbatch._moment,  # noqa: SLF001 - a part of the class
    "--chdir": Sbatch._chdir,  # noqa: SLF001
    "--clusters": _clusters,
    "--comment": _plain("metadata.labels.comment"),
    "--constraint": Sbatch._constraint,  # noqa: SLF001
    "--deadline": Sbatch._moment,  # noqa: SLF001
    "--dependency": Sbatch._dependency,  # noqa: SLF001
    "--error": _plain("spec.stderr"),
    "--exclude": Sbatch._constraint,  # noqa: SLF001
    "--exclusive": Sbatch._exclusive,  # noqa: SLF001
    "--export": Sbatch._export,  # noqa: SLF001
    "--hold": _fixed("spec.hold", value=True),
    "--job-name": Sbatch._name,  # noqa: SLF001
    "--mail-type": Sbatch._mail,  # noqa: SLF001
    "--mail-user": Sbatch._mail_user,  # noqa: SLF001
    "--nice": Sbatch._nice,  # noqa: SLF001
    "--no-requeue": _fixed("spec.retry.lost", 0),
    "--nodelist": Sbatch._constraint,  # noqa: SLF001
    "--open-mode": Sbatch._open_mode,  # noqa: SLF001
    "--output": Sbatch._streams,  # noqa: SLF001
    "--partition": Sbatch._partition,  # noqa: SLF001
    "--requeue": _fixed("spec.retry.lost", 3),
    "--qos": Sbatch._qos,  # noqa: SLF001
    "--reservation": _plain("spec.reservation"),
    "--time": Sbatch._time,  # noqa: SLF001
    "--signal": Sbatch._signal,  # noqa: SLF001
}
