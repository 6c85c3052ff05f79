"""Decides what a call of `srun` starts: how many tasks, where each runs, and what it is told about its rank."""

import re
import shlex
from collections.abc import Mapping, Sequence
from os.path import relpath
from typing import Final, NamedTuple

from spillover.agent.rsh.serving import FOLDER, OF_ITS_TASK
from spillover.agent.rsh.srun_options import SrunError, SrunLine

_COUNT: Final = re.compile(r"[0-9]{1,6}")
_NODES: Final = re.compile(r"([0-9]{1,6})(?:-[0-9]{1,6})?")
_GPUS: Final = re.compile(r"(?:gpu:)?(?:[A-Za-z][^:,]*:)?([0-9]{1,6})")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STARTERS: Final = frozenset({"none", "list"})
"""Values of --mpi that start nothing."""
_STAY: Final = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "_", "HOME", "USER", "LOGNAME", "HOSTNAME", "SLURM_JOB_GPUS"}
)
"""Variables that are another's on each node, besides those with paths in the folder of the agent."""
_AGENT: Final = "SPILL_AGENT"
"""Variable of every task: the folder of its agent."""
_DEVICES: Final = "_VISIBLE_DEVICES"


class OwnJob(NamedTuple):
    """What a call of srun knows of its job."""

    tasks: int
    nodes: tuple[str, ...]
    per_node: int
    """Tasks of each node, as the script asked; 0 if it did not."""
    cpus: int
    """CPUs of each node."""
    gpus: int
    """GPUs of each node."""
    is_gang: bool

    @classmethod
    def of(cls, environ: Mapping[str, str], nodes: Sequence[str] = ()) -> "OwnJob":
        """Read the job of a task that has no others, or whose others are on these nodes."""
        known = {name: int(text) for name, text in environ.items() if _COUNT.fullmatch(text)}
        return cls(
            known.get("SLURM_NTASKS", 0) or len(nodes) or 1,
            tuple(nodes) or (environ.get("SLURMD_NODENAME", "localhost"),),
            known.get("SLURM_NTASKS_PER_NODE", 0),
            known.get("SLURM_CPUS_ON_NODE", 1),
            known.get("SLURM_GPUS_ON_NODE", 0),
            bool(nodes),
        )


class StepTask(NamedTuple):
    """One task to start."""

    rank: int
    node: str
    variables: dict[str, str]
    """What it is told beyond the environment of the caller."""


class Step(NamedTuple):
    """What a call of srun starts."""

    tasks: tuple[StepTask, ...]
    command: list[str]
    notes: tuple[str, ...]
    folder: str
    """Where to run, as the caller wrote it; empty for its own folder."""
    stops_early: bool
    """Whether a task that fails ends the others."""


def plan(line: SrunLine, job: OwnJob) -> Step:
    """Decide what a command line starts in a job; raise SrunError with all problems."""
    given, problems = line.given, list[str]()
    nodes = _nodes(given, job, problems)
    count = _tasks(given, job, len(nodes), problems)
    exact = {"--exclusive", "--exact"} & given.keys()
    whole = count >= job.tasks and len(nodes) == len(job.nodes)
    notes = list(line.notes)
    if "--nodes" not in given:
        nodes = nodes[: max(1, count)]
    if exact and not whole:
        if len(nodes) < len(job.nodes) and "--nodelist" not in given:
            problems.append(f"{min(exact)} of some nodes is not supported: name the nodes with `-w`")
        notes.append(f"{min(exact)} is ignored: a step does not wait until another one has ended")
    _check_gpus(given, job, len(nodes), count, problems)
    variables = _exported(given, problems)
    if count > 1 and given.get("--mpi", "none") not in _STARTERS:
        problems.append("--mpi is not supported: a program of MPI needs `mpirun` in place of srun")
    nodes = nodes[: max(1, count)]
    if problems:
        raise SrunError(*problems)
    if "--cpus-per-task" in given:
        variables["SLURM_CPUS_PER_TASK"] = given["--cpus-per-task"]
    early = given.get("--kill-on-bad-exit", "0") != "0"
    tasks = _placed(nodes, count, variables, job)
    return Step(tuple(tasks), line.command, tuple(notes), given.get("--chdir", ""), early)


def _nodes(given: Mapping[str, str], job: OwnJob, problems: list[str]) -> tuple[str, ...]:
    """Return the nodes that a step may use."""
    nodes = job.nodes
    if (named := given.get("--nodelist")) is not None:
        wanted = tuple(dict.fromkeys(named.split(",")))
        known = ", ".join(nodes)
        told = f"is not a node of this job; its nodes are {known}"
        problems += [f"--nodelist: {name!r} {told}" for name in wanted if name not in nodes]
        nodes = wanted
    if (text := given.get("--nodes")) is not None:
        match = _NODES.fullmatch(text)
        if match is None or not int(match[1]):
            problems.append(f"--nodes: {text!r} is not a number of nodes")
        elif int(match[1]) > len(nodes):
            problems.append(f"--nodes: there are {len(nodes)}, not {text}")
        else:
            nodes = nodes[: int(match[1])]
    return nodes


def _tasks(given: Mapping[str, str], job: OwnJob, nodes: int, problems: list[str]) -> int:
    """Return the number of tasks of a step."""
    numbers: dict[str, int] = {}
    for flag in ("--ntasks", "--ntasks-per-node", "--cpus-per-task"):
        if (text := given.get(flag)) is None:
            continue
        if not _COUNT.fullmatch(text) or not int(text):
            problems.append(f"{flag}: {text!r} is not a whole number of 1 or more")
            return 1
        numbers[flag] = int(text)
    each = numbers.get("--ntasks-per-node", 0)
    count = numbers.get("--ntasks", each * nodes)
    if not count and nodes < len(job.nodes):
        count = job.per_node * nodes
        if not count:
            problems.append("some nodes need a number of tasks too; write `-n`")
    count = count or job.tasks
    if each and count > each * nodes:
        problems.append(f"{count} tasks do not fit on {nodes} nodes with {each} on each")
    room = max(job.tasks, nodes * job.cpus // numbers.get("--cpus-per-task", 1))
    if count > room and "--overcommit" not in given:
        problems.append(
            f"{count} tasks need more CPUs than the job has; ask for them in its #SBATCH lines, or write `-O`"
        )
    return count


def _check_gpus(given: Mapping[str, str], job: OwnJob, nodes: int, count: int, problems: list[str]) -> None:
    """Refuse GPUs that are not all those of the nodes: every task sees all of its node."""
    here = job.gpus * nodes
    all_of = {"--gpus": here, "--gpus-per-node": job.gpus, "--gres": job.gpus, "--gpus-per-task": here}
    for flag, total in all_of.items():
        if (text := given.get(flag)) is None or text == "none":
            continue
        match = _GPUS.fullmatch(text)
        if match is None:
            problems.append(f"{flag}: {text!r} is not a number of GPUs")
        elif int(match[1]) != total or (flag == "--gpus-per-task" and count > 1):
            told = "is not supported: every task sees all GPUs of its node; choose one by SLURM_LOCALID"
            problems.append(f"{flag}={text} {told}")


def _exported(given: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the variables that --export adds to those of the caller."""
    text = given.get("--export", "ALL")
    words = [word.partition("=") for word in text.split(",") if word]
    if not any(name == "ALL" and not equals for name, equals, _ in words):
        problems.append("--export without ALL is not supported; write `srun env -i NAME=VALUE COMMAND`")
    found = {name: value for name, equals, value in words if equals}
    problems += [f"--export: {name!r} is not a name" for name in found if not _NAME.fullmatch(name)]
    return found


def _placed(nodes: Sequence[str], count: int, variables: Mapping[str, str], job: OwnJob) -> list[StepTask]:
    """Divide tasks over nodes, in blocks, and tell each its rank."""
    each, more = divmod(count, len(nodes))
    sizes = [each + (at < more) for at in range(len(nodes))]
    known = {
        "SLURM_NTASKS": str(count),
        "SLURM_NPROCS": str(count),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NODELIST": ",".join(nodes),
        "SLURM_TASKS_PER_NODE": ",".join(map(str, sizes)),
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NODELIST": ",".join(nodes),
    }
    found: list[StepTask] = []
    for at, (node, size) in enumerate(zip(nodes, sizes, strict=True)):
        for local in range(size):
            rank = len(found)
            own = {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(local),
                "SLURM_NODEID": str(at),
                "SLURMD_NODENAME": node,
            }
            if job.is_gang:
                own |= {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(count),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(size),
                    "GROUP_RANK": str(at),
                }
            found.append(StepTask(rank, node, {**variables, **known, **own}))
    return found


def remote_line(task: StepTask, command: Sequence[str], environ: Mapping[str, str], folder: str) -> str:
    """Return the line for a shell on another node, which has the environment and the folder of the caller.

    What belongs to a node stays that of the node: the folders of its agent, its GPUs, and the ranks of its task.
    """
    agent, root = environ.get(_AGENT, ""), environ.get(FOLDER, "")
    passed: dict[str, str] = {}
    for name, value in environ.items():
        if name.startswith(("SPILL_", *OF_ITS_TASK)) or name in _STAY or name.endswith(_DEVICES):
            continue
        if agent and agent in value:
            if name != "PATH":
                continue
            value = ":".join(part for part in value.split(":") if not part.startswith(agent))  # noqa: PLW2901
        passed[name] = value
    words = ["/usr/bin/env", *(f"{name}={value}" for name, value in {**passed, **task.variables}.items())]
    below = relpath(folder, root) if root else ".."
    inside = below == "." or not below.startswith("..")
    there = f'"${FOLDER}"/{shlex.quote(below)}' if inside else shlex.quote(folder)
    failed = f"{{ echo srun: the folder is not on node {shlex.quote(task.node)} >&2; exit 2; }}"
    return f"cd -- {there} 2>/dev/null || {failed}; exec {shlex.join([*words, *command])}"
