"""Tells tasks when they started and when their walltime ends, in the variables that Slurm has for that.

A task may wait in its thread for earlier ones, so only who starts it knows the time. Until then, the variables have the
seconds from its start on.
"""

from typing import Final

START: Final = "SLURM_JOB_START_TIME"
END: Final = "SLURM_JOB_END_TIME"


def from_start(walltime: int) -> dict[str, str]:
    """Return the variables of a task that has not started, with a walltime in seconds; 0 is no limit."""
    return {START: "+0", END: f"+{walltime}"} if walltime else {START: "+0"}


def set_times(env: dict[str, str], now: float) -> None:
    """Set the variables of a task that starts now, in seconds since 1970."""
    for name in (START, END):
        value = env.get(name, "")
        if value[:1] == "+" and value[1:].isdecimal():  # else it is the job's own
            env[name] = str(int(now) + int(value[1:]))
