"""The options of `srun` inside of a job: which of them count, mean nothing here, or are refused.

An option is refused if a command would do something else without it. It is ignored with a line if the command does the
same, only otherwise, and without a line if there is nothing to tell.
"""

from enum import Enum
from typing import Final, NamedTuple


class Takes(Enum):
    """Whether an option has a value."""

    NOTHING = 0
    VALUE = 1
    ATTACHED = 2
    """A value only if it is in the same word."""


class Use(Enum):
    """What becomes of an option."""

    USED = 0
    QUIET = 1
    """Ignored: nothing changes."""
    TOLD = 2
    """Ignored with a line on standard error."""
    REFUSED = 3


class SrunOption(NamedTuple):
    """One option."""

    flag: str
    letter: str
    takes: Takes
    use: Use
    advice: str = ""
    """For an option that is told or refused, what to know or to write."""


_V, _N, _A = Takes.VALUE, Takes.NOTHING, Takes.ATTACHED
_NO_LIMIT: Final = "a step has the limits of its job"
_OWN_FILES: Final = "write `> FILE` or `< FILE` behind the command"

SRUN_OPTIONS: Final = (
    SrunOption("--ntasks", "n", _V, Use.USED),
    SrunOption("--nodes", "N", _V, Use.USED),
    SrunOption("--ntasks-per-node", "", _V, Use.USED),
    SrunOption("--cpus-per-task", "c", _V, Use.USED),
    SrunOption("--chdir", "D", _V, Use.USED),
    SrunOption("--nodelist", "w", _V, Use.USED),
    SrunOption("--kill-on-bad-exit", "K", _A, Use.USED),
    SrunOption("--export", "", _V, Use.USED),
    SrunOption("--overcommit", "O", _N, Use.USED),
    SrunOption("--mpi", "", _V, Use.USED),
    SrunOption("--gpus", "G", _V, Use.USED),
    SrunOption("--gpus-per-node", "", _V, Use.USED),
    SrunOption("--gpus-per-task", "", _V, Use.USED),
    SrunOption("--gres", "", _V, Use.USED),
    SrunOption("--exclusive", "", _A, Use.USED),
    SrunOption("--exact", "", _N, Use.USED),
    *(
        SrunOption(flag, letter, _V, Use.QUIET)
        for flag, letter in (
            ("--account", "A"),
            ("--acctg-freq", ""),
            ("--comment", ""),
            ("--cores-per-socket", ""),
            ("--cpu-bind", ""),
            ("--cpu-freq", ""),
            ("--distribution", "m"),
            ("--extra-node-info", "B"),
            ("--gpu-bind", ""),
            ("--hint", ""),
            ("--job-name", "J"),
            ("--mem-bind", ""),
            ("--network", ""),
            ("--ntasks-per-core", ""),
            ("--ntasks-per-socket", ""),
            ("--partition", "p"),
            ("--qos", "q"),
            ("--sockets-per-node", ""),
            ("--threads-per-core", ""),
            ("--wckey", ""),
        )
    ),
    *(
        SrunOption(flag, letter, takes, Use.QUIET)
        for flag, letter, takes in (
            ("--immediate", "I", _A),
            ("--overlap", "", _N),
            ("--quiet", "Q", _N),
            ("--unbuffered", "u", _N),
            ("--use-min-nodes", "", _N),
            ("--verbose", "v", _N),
            ("--wait-all-nodes", "", _A),
        )
    ),
    SrunOption("--label", "l", _N, Use.TOLD, "lines have no rank before them"),
    SrunOption("--mem", "", _V, Use.TOLD, _NO_LIMIT),
    SrunOption("--mem-per-cpu", "", _V, Use.TOLD, _NO_LIMIT),
    SrunOption("--mem-per-gpu", "", _V, Use.TOLD, _NO_LIMIT),
    SrunOption("--profile", "", _V, Use.TOLD, "agents measure what a job uses themselves"),
    SrunOption("--propagate", "", _A, Use.TOLD, "limits are those of the agent"),
    SrunOption("--wait", "W", _V, Use.TOLD, "the other tasks go on; `-K` ends them when one fails"),
    SrunOption("--bcast", "", _A, Use.REFUSED, "use a file system in common, or `#SPILL --input`"),
    SrunOption("--constraint", "C", _V, Use.REFUSED, "name nodes with `-w`"),
    SrunOption("--dependency", "d", _V, Use.REFUSED, "steps run in the order of the script"),
    SrunOption("--error", "e", _V, Use.REFUSED, "write `2> FILE` behind the command"),
    SrunOption("--exclude", "x", _V, Use.REFUSED, "name nodes with `-w`"),
    SrunOption("--input", "i", _V, Use.REFUSED, _OWN_FILES),
    SrunOption(
        "--jobid", "", _V, Use.REFUSED, "`spill exec JOB -- COMMAND` runs a command beside another job"
    ),
    SrunOption("--multi-prog", "", _N, Use.REFUSED, "write one command that looks at SLURM_PROCID"),
    SrunOption("--output", "o", _V, Use.REFUSED, _OWN_FILES),
    SrunOption("--pty", "", _A, Use.REFUSED, "`spill run --pty` and `spill exec JOB` have terminals"),
    SrunOption("--relative", "r", _V, Use.REFUSED, "name nodes with `-w`"),
    SrunOption("--signal", "", _V, Use.REFUSED, "write it as #SBATCH line"),
    SrunOption("--time", "t", _V, Use.REFUSED, "write `srun timeout 10m COMMAND`"),
)
"""Options beyond these are unknown, and refused."""
_BY_FLAG: Final = {option.flag: option for option in SRUN_OPTIONS}
_BY_LETTER: Final = {option.letter: option for option in SRUN_OPTIONS if option.letter}


class SrunError(Exception):
    """A command line that is refused; each argument is a line about one problem."""


class SrunLine(NamedTuple):
    """A command line that was read."""

    given: dict[str, str]
    """The options that count, with their values; the last of two wins."""
    command: list[str]
    notes: list[str]
    """What is ignored, a line for each."""


def read_line(words: list[str]) -> SrunLine:
    """Read the words behind `srun`; raise SrunError with all problems."""
    given: dict[str, str] = {}
    notes: list[str] = []
    problems: list[str] = []
    left = list(reversed(words))
    while left and left[-1].startswith("-") and left[-1] != "-":
        if left[-1] == "--":
            left.pop()
            break
        found = _next_option(left, problems)
        if found is None:
            continue
        option, value = found
        if option.use is Use.USED:
            given[option.flag] = value
        elif option.use is Use.TOLD:
            notes.append(f"{option.flag} is ignored: {option.advice}")
        elif option.use is Use.REFUSED:
            problems.append(f"{option.flag} is not supported: {option.advice}")
    left.reverse()
    if not left:
        problems.append("no command; write srun [OPTIONS] COMMAND")
    if ":" in left:
        problems.append("`:` is not supported: steps of unlike tasks need a job file with `groups`")
    if problems:
        raise SrunError(*problems)
    return SrunLine(given, left, notes)


def _next_option(left: list[str], problems: list[str]) -> tuple[SrunOption, str] | None:
    """Take an option with its value from the end of the words that are left; None if there is a problem."""
    word = left.pop()
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        option = _BY_FLAG.get(flag)
    else:
        flag, equals, value = word[:2], word[2:], word[2:].removeprefix("=")
        option = _BY_LETTER.get(word[1])
        if option is not None and option.takes is Takes.NOTHING and value:
            left.append(f"-{value}")  # several letters in one word
            equals = value = ""
    if option is None:
        problems.append(f"unknown option {flag}")
        return None
    if option.takes is Takes.VALUE and not equals:
        if not left:
            problems.append(f"{option.flag} needs a value")
            return None
        value = left.pop()
    elif option.takes is Takes.NOTHING and equals:
        problems.append(f"{option.flag} takes no value")
    return option, value
