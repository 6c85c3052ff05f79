"""Finds what a script asks for and does not get: options in lines that do not count, and an interpreter that it does not name."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from spillover.forms.jobs.scripts import AS_FILE
from spillover.forms.jobs.srun import ON_PATH

_READ: Final = ("#SPILL", "#SBATCH")
"""Lines that count in the comments at the top of a script."""
_FOREIGN: Final = ("#PBS", "#BSUB", "#FLUX:", "#COBALT", "#$", "#OAR")
"""Lines with options for another scheduler."""
_MOST_LINES: Final = 3
"""Most lines of one script to name."""


def ignored_in(spec: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yield what is to be told about the script of a job."""
    for text in (spec.get("run"), *(spec.get("command") or ())):
        if isinstance(text, str) and "\n" in text and text != AS_FILE:
            yield from ignored_lines(text.removeprefix(ON_PATH), source)


def ignored_lines(text: str, source: str) -> Iterator[str]:
    """Yield what is to be told about a script: that it has no interpreter, and which lines do not count."""
    if not text.startswith("#!"):
        yield f"{source} has no #! line, so /bin/sh runs it"
    top, late = True, []
    foreign: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        top = top and (not line.strip() or line.lstrip().startswith("#"))
        word = line.partition(" ")[0]
        if word in _FOREIGN:
            foreign.setdefault(word, number)
        elif word in _READ and not top:
            late.append((number, word))
    for number, word in late[:_MOST_LINES]:
        yield f"{source}:{number}: this {word} line comes after the first command and is ignored; move it to the top"
    if len(late) > _MOST_LINES:
        yield f"{source}: {len(late) - _MOST_LINES} more such lines are ignored"
    for word, number in foreign.items():
        yield f"{source}:{number}: {word} lines are ignored; write `#SPILL --cpu 4 --walltime 2h` and the like"
