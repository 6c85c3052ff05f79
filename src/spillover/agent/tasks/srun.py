"""The program `srun`, which tasks of scripts with `#SBATCH` lines find first on their PATH."""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from spillover.model.admission import SRUN, SRUN_VARIABLE

_BIN: Final = "bin"


class SrunProgram:
    """The program in a folder of the agent, which has no other program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _BIN

    def write(self) -> None:
        """Write the program; raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Files and variables of the job must not change what the program imports.
        start = f"exec {shlex.quote(sys.executable)} -E -P -m spillover.agent.rsh.srun"
        program = self._folder / SRUN
        program.write_text(f'#!/bin/sh\n{start} "$@"\n')
        program.chmod(0o700)

    def give(self, env: dict[str, str]) -> None:
        """Let a task find the program, before one of the machine."""
        env[SRUN_VARIABLE] = str(self._folder / SRUN)
        env["PATH"] = f"{self._folder}:{env.get('PATH') or os.environ.get('PATH', os.defpath)}"
