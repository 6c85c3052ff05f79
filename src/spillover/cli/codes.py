"""Exit codes, which scripts rely on."""

from typing import Final

OK: Final = 0
NOT_SUCCEEDED: Final = 1
"""A job did not succeed."""
DIFFERENT: Final = 1
"""Of `replay`: the journal does not lead to what it stored."""
POLICY_FAILED: Final = 1
"""Of `simulate` and `backtest`: a policy of an installed package failed, so the numbers are not its own."""
UNHEALTHY: Final = 1
"""Of `doctor`: somebody has to see to something."""
REFUSED: Final = 2
"""Refused, unknown or unreachable."""
TIMED_OUT: Final = 124
"""Timed out waiting; of `run`, the job reached its walltime or deadline."""
NEVER_RAN: Final = 125
"""Of `run`: no process of the job ever ran."""
SIGNALLED: Final = 128
"""Added to the number of a signal."""
INTERRUPTED: Final = 130
"""Ctrl-C."""
BROKEN_PIPE: Final = 141
"""The reader went away, as a shell reports it."""
