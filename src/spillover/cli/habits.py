"""Answers commands of other tools with ours, and suggests near commands.

People type what they know from Slurm, Unix and Kubernetes. A suggestion may be typed without a second look, so a command
that changes something is suggested only for a typo of its own name.
"""

from difflib import get_close_matches
from typing import Final

_JOBS: Final = "`spill ls` lists jobs, `spill show JOB` shows one, `spill top` watches them"
_SHOW: Final = "`spill show JOB` shows all details of a job, `spill why JOB` explains its state"
_SUBMIT: Final = "`spill submit FILE` submits a script or a job file"
_RUN: Final = "`spill run --wait -- COMMAND` runs a command as a job and prints its output"
_SHELL: Final = (
    "`spill run --pty -- bash` opens a shell as a job, `spill exec JOB -- COMMAND` runs a command beside one"
)
_CANCEL: Final = "`spill cancel JOB` cancels a job"
_LOGS: Final = "`spill logs JOB` prints the output of a job, `spill logs -f JOB` follows it"
_TERMINAL: Final = "`spill attach JOB` connects to the terminal of a job of `spill run --pty`, `spill logs -f JOB` follows the output of any"
_MACHINES: Final = "`spill clusters` lists clusters, `spill agents` lists machines, `spill queues` what Slurm calls partitions"
_QUEUES: Final = "`spill queues` lists named queues and their limits, `spill ls` lists jobs"
_PAST: Final = "`spill ls` also lists jobs that have ended, `spill cost` shows what they cost"
_USED: Final = (
    "`spill usage` sums the hours of jobs, `spill show JOB` shows what one job used of what it asked for"
)
_HOLD: Final = "`spill hold JOB` keeps a queued job from starting, `spill release JOB` lets it start"
_AGAIN: Final = (
    "`spill rerun JOB` runs an ended job again, `spill requeue JOB` stops a running one and queues it again"
)
_CONTROL: Final = (
    "`spill show JOB` shows a job; `spill set`, `spill hold`, `spill release` and `spill requeue` change one"
)
_SERVER: Final = "`spill up` starts a server, `spill agent` an agent"
_FETCH: Final = "`spill fetch JOB` downloads the output files of a job"
_EXPECTED: Final = "`spill why JOB` says why a job waits, `spill ls --starts` when jobs are expected to start"

HABITS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("squeue", "sstat", "qstat", "bjobs", "status", "stat", "ps", "list", "jobs", "job"), _JOBS
    ),
    **dict.fromkeys(("runs", "get", "dir"), _JOBS),
    **dict.fromkeys(("queue", "partitions", "partition"), _QUEUES),
    **dict.fromkeys(("describe", "info", "inspect", "details"), _SHOW),
    **dict.fromkeys(("sbatch", "qsub", "bsub", "batch", "apply", "create"), _SUBMIT),
    "srun": f"{_RUN}, `spill run --pty -- bash` opens a shell",
    **dict.fromkeys(("salloc", "qrsh"), _SHELL),
    **dict.fromkeys(
        ("scancel", "qdel", "bkill", "kill", "delete", "del", "rm", "remove", "stop", "abort"), _CANCEL
    ),
    **dict.fromkeys(("log", "tail", "cat", "output", "bpeek"), _LOGS),
    "sattach": _TERMINAL,
    "port-forward": "`spill forward JOB PORT` makes a port of a task's machine a local one",
    **dict.fromkeys(("sinfo", "pbsnodes", "bhosts", "nodes", "node", "hosts", "machines"), _MACHINES),
    **dict.fromkeys(("sacct", "history", "bhist"), _PAST),
    **dict.fromkeys(("sreport", "seff"), _USED),
    **dict.fromkeys(("qhold", "pause", "suspend", "qrls", "resume", "unhold"), _HOLD),
    **dict.fromkeys(("restart", "retry", "again"), _AGAIN),
    **dict.fromkeys(("scontrol", "qalter", "bmod", "sacctmgr", "edit", "update"), _CONTROL),
    **dict.fromkeys(("start", "serve", "server", "join"), _SERVER),
    **dict.fromkeys(("download", "sbcast", "cp", "scp", "pull"), _FETCH),
    **dict.fromkeys(("sprio", "sshare", "explain"), _EXPECTED),
    "watch": _JOBS,
    "ssh": "`spill exec JOB -- COMMAND` runs a command beside a task, `spill rsh` on another node of a gang",
    "sdiag": "`spill doctor` checks the health of a server",
}
"""By the word that people type: the commands that do it here."""

READS: Final = frozenset(
    {
        "ls",
        "show",
        "why",
        "logs",
        "top",
        "wait",
        "cost",
        "budgets",
        "queues",
        "clusters",
        "reservations",
        "pools",
        "agents",
    }
    | {"graph", "events", "doctor", "replay", "simulate", "backtest", "schema", "completion", "version"}
)
"""Commands that change nothing if they are typed without an action."""


def hint(word: str, known: frozenset[str]) -> str:
    """Return what to type instead of an unknown command."""
    if (ours := HABITS.get(word.lower())) is not None:
        return ours
    near = [
        name for name in get_close_matches(word, sorted(known), n=5) if name in READS or _typo(word, name)
    ]
    return f"did you mean `spill {near[0]}`?" if near else "`spill --help` lists commands"


def _typo(word: str, name: str) -> bool:
    """Return whether a word is a name with one letter too many, missing or wrong, or two in the wrong order."""
    start = next(
        (at for at, (a, b) in enumerate(zip(word, name, strict=False)) if a != b), min(len(word), len(name))
    )
    word, name = word[start:], name[start:]
    while word and name and word[-1] == name[-1]:
        word, name = word[:-1], name[:-1]
    if len(word) == len(name) == 2:
        return word == name[::-1]
    return start > 0 and len(word) <= 1 and len(name) <= 1
