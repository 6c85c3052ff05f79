"""The options of `sbatch`: which of them there are, and what becomes of each.

An option is used, ignored with a warning, or refused with what to write instead. The table in docs/coming-from-slurm.md
has the same options, and a test compares them.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Takes(StrEnum):
    """Whether an option has a value."""

    VALUE = "value"
    NOTHING = "nothing"
    MAYBE = "maybe"
    """Only as `--option=VALUE`."""


class Use(StrEnum):
    """What becomes of an option."""

    USED = "used"
    IGNORED = "ignored"
    """The job runs without it. A warning says so."""
    REFUSED = "refused"
    """The job would not do what its script expects."""


class SbatchOption(Struct, frozen=True):
    """One option of `sbatch`."""

    flag: str
    """With its dashes."""
    short: str = ""
    """The letter of its short form; empty if it has none."""
    takes: Takes = Takes.VALUE
    use: Use = Use.USED
    advice: str = ""
    """Why it is ignored or refused, and what to write."""


def _ignored(flag: str, advice: str, short: str = "", takes: Takes = Takes.VALUE) -> SbatchOption:
    return SbatchOption(flag, short, takes, Use.IGNORED, advice)


def _refused(flag: str, advice: str, short: str = "", takes: Takes = Takes.VALUE) -> SbatchOption:
    return SbatchOption(flag, short, takes, Use.REFUSED, advice)


_LAYOUT: Final = "the scheduler chooses cores itself; `#SPILL --pin core` asks for whole cores"
_TERMINAL: Final = "it belongs to the command line, not to the job"

SBATCH_OPTIONS: Final = (
    SbatchOption("--account", "A"),
    SbatchOption("--array", "a"),
    SbatchOption("--begin", "b"),
    SbatchOption("--chdir", "D"),
    SbatchOption("--clusters", "M"),
    SbatchOption("--comment"),
    SbatchOption("--constraint", "C"),
    SbatchOption("--cpus-per-gpu"),
    SbatchOption("--cpus-per-task", "c"),
    SbatchOption("--deadline"),
    SbatchOption("--dependency", "d"),
    SbatchOption("--error", "e"),
    SbatchOption("--exclude", "x"),
    SbatchOption("--exclusive", takes=Takes.MAYBE),
    SbatchOption("--export"),
    SbatchOption("--gpus", "G"),
    SbatchOption("--gpus-per-node"),
    SbatchOption("--gpus-per-task"),
    SbatchOption("--gres"),
    SbatchOption("--hold", "H", Takes.NOTHING),
    SbatchOption("--job-name", "J"),
    SbatchOption("--mail-type"),
    SbatchOption("--mail-user"),
    SbatchOption("--mem"),
    SbatchOption("--mem-per-cpu"),
    SbatchOption("--mem-per-gpu"),
    SbatchOption("--nice", takes=Takes.MAYBE),
    SbatchOption("--no-requeue", takes=Takes.NOTHING),
    SbatchOption("--nodelist", "w"),
    SbatchOption("--nodes", "N"),
    SbatchOption("--ntasks", "n"),
    SbatchOption("--ntasks-per-node"),
    SbatchOption("--open-mode"),
    SbatchOption("--output", "o"),
    SbatchOption("--partition", "p"),
    SbatchOption("--qos", "q"),
    SbatchOption("--requeue", takes=Takes.NOTHING),
    SbatchOption("--reservation"),
    SbatchOption("--signal"),
    SbatchOption("--time", "t"),
    _ignored("--acctg-freq", "agents measure what a job uses themselves"),
    _ignored(
        "--contiguous", "write `#SPILL --within rack` to have tasks close together", takes=Takes.NOTHING
    ),
    _ignored("--core-spec", _LAYOUT, "S"),
    _ignored("--cores-per-socket", _LAYOUT),
    _ignored("--cpu-freq", "agents do not change the frequency of cores"),
    _ignored("--delay-boot", "there are no nodes to boot"),
    _ignored("--distribution", _LAYOUT, "m"),
    _ignored("--extra-node-info", _LAYOUT, "B"),
    _ignored("--get-user-env", "write `--export=ALL`, or load the profile in the script", takes=Takes.MAYBE),
    _ignored("--gpu-bind", _LAYOUT),
    _ignored("--gpu-freq", "agents do not change the frequency of GPUs"),
    _ignored("--gres-flags", _LAYOUT),
    _ignored("--hint", _LAYOUT),
    _ignored("--ignore-pbs", "#PBS lines mean nothing here", takes=Takes.NOTHING),
    _ignored("--kill-on-invalid-dep", "a job whose dependency cannot be met is always cancelled"),
    _ignored("--mem-bind", _LAYOUT),
    _ignored("--mincpus", "write --cpus-per-task"),
    _ignored("--network", "there is no network to choose"),
    _ignored("--no-kill", "`#SPILL --on-task-failure ignore` lets other tasks go on", "k", Takes.MAYBE),
    _ignored("--ntasks-per-core", _LAYOUT),
    _ignored("--ntasks-per-socket", _LAYOUT),
    _ignored("--overcommit", "each task gets the CPUs that it asks for", "O", Takes.NOTHING),
    _ignored("--oversubscribe", "jobs share machines unless they are --exclusive", "s", Takes.NOTHING),
    _ignored("--parsable", _TERMINAL, takes=Takes.NOTHING),
    _ignored("--prefer", "write --constraint for what the job must have"),
    _ignored("--priority", "write `#SPILL --priority N`, where 0 is normal"),
    _ignored("--profile", "agents measure what a job uses themselves"),
    _ignored("--propagate", "limits are those of the agent", takes=Takes.MAYBE),
    _ignored("--quiet", _TERMINAL, "Q", Takes.NOTHING),
    _ignored("--sockets-per-node", _LAYOUT),
    _ignored("--spread-job", "write `#SPILL --spread node`", takes=Takes.NOTHING),
    _ignored("--switches", "write `#SPILL --within rack` to have tasks close together"),
    _ignored("--thread-spec", _LAYOUT),
    _ignored("--threads-per-core", _LAYOUT),
    _ignored("--time-min", "the job keeps its --time"),
    _ignored("--tmp", "the scheduler does not know the size of disks"),
    _ignored("--use-min-nodes", "the number of nodes is --nodes", takes=Takes.NOTHING),
    _ignored("--verbose", _TERMINAL, "v", Takes.NOTHING),
    _ignored("--wait", "write `spill submit --wait`", "W", Takes.NOTHING),
    _ignored("--wait-all-nodes", "all tasks of a job start together"),
    _ignored("--wckey", "write `#SPILL --label wckey=VALUE`"),
    _refused("--batch", "write --constraint"),
    _refused("--bb", "there are no burst buffers; copy files with `#SPILL --input`"),
    _refused("--bbf", "there are no burst buffers; copy files with `#SPILL --input`"),
    _refused("--cluster-constraint", "write `#SPILL --where NAME=VALUE`"),
    _refused("--container", "write a job file with `container`"),
    _refused("--export-file", "write --export=NAME=VALUE, or read the file in the script"),
    _refused("--gid", "jobs run as the user of the agent; remove it"),
    _refused("--gpus-per-socket", "write --gpus-per-node"),
    _refused("--input", "write `< FILE` behind the command in the script", "i"),
    _refused("--licenses", "there are no licenses; limit an array with --array=1-100%4", "L"),
    _refused("--nodefile", "write --nodelist", "F"),
    _refused("--ntasks-per-gpu", "write --ntasks and --gpus-per-task"),
    _refused("--reboot", "agents do not reboot machines; remove it", takes=Takes.NOTHING),
    _refused("--test-only", "write `spill submit --dry-run`", takes=Takes.NOTHING),
    _refused("--tres-per-task", "write --cpus-per-task and --gpus-per-task"),
    _refused("--uid", "jobs run as the user of the agent; remove it"),
    _refused("--wrap", "write the command into the script, or use `spill run -- COMMAND`"),
)

BY_NAME: Final = {option.flag: option for option in SBATCH_OPTIONS}
BY_LETTER: Final = {option.short: option for option in SBATCH_OPTIONS if option.short}
