"""Exit codes, which scripts rely on."""

from typing import Final

OK: Final = 0
NOT_SUCCEEDED: Final = 1
"""A job did not succeed."""
DIFFERENT: Final = 1
"""`replay`: the journal does not give the stored plans."""
POLICY_FAILED: Final = 1
"""`simulate` and `backtest`: a policy of an installed package failed, so its numbers are not valid."""
UNHEALTHY: Final = 1
"""`doctor`: a check found a problem."""
NOT_SWEPT: Final = 1
"""`pools sweep`: a provider could not be asked, or answered in part."""
REFUSED: Final = 2
"""The request was refused, its target is unknown, or the server is unreachable."""
TIMED_OUT: Final = 124
"""A wait timed out; `run`: the job reached its walltime or deadline."""
NEVER_RAN: Final = 125
"""`run`: no process of the job ever ran."""
SIGNALLED: Final = 128
"""Base for a process that a signal killed; the number of the signal is added."""
INTERRUPTED: Final = 130
"""Ctrl-C."""
BROKEN_PIPE: Final = 141
"""The reader of our output has closed it; shells report SIGPIPE with this code."""
