"""Lets scripts with `#SBATCH` lines call `srun`, as agents have it for them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from spillover.model.admission import SRUN, SRUN_NEEDED, SRUN_VARIABLE

_CALL: Final = re.compile(r"^[^#\n]*(?<![\w./$-])srun(?![\w./=-])", re.MULTILINE)
"""A call of srun, wherever it is in a line."""
ON_PATH: Final = f'export PATH="${{{SRUN_VARIABLE}:+${{{SRUN_VARIABLE}%/*}}:}}$PATH"; '
"""Stands before the first line of a script that a login shell runs, so that all lines keep their numbers."""
_LOGIN: Final = frozenset({"-l", "--login"})


def srun_variable(text: str) -> dict[str, str]:
    """Return the variable that offers srun to a script. One that calls it itself runs only where it is."""
    return {SRUN_VARIABLE: SRUN_NEEDED if _CALL.search(text) else "offered"}


def srun_word(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kind of work of a job with these variables that calls srun; empty for any other."""
    return (SRUN,) if env.get(SRUN_VARIABLE) == SRUN_NEEDED else ()


def with_srun(work: dict[str, Any]) -> dict[str, Any]:
    """Return the work of a script that finds srun also in a login shell, whose profile may set PATH anew."""
    words: list[str] = work.get("command", [])
    if "-c" not in words or not _LOGIN.intersection(words[: words.index("-c")]):
        return work
    at = words.index("-c") + 1
    return {"command": [*words[:at], ON_PATH + words[at], *words[at + 1 :]]}
