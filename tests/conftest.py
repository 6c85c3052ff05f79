"""What holds for all tests."""

import signal

from hypothesis import settings

# Started in the background of a script, this process ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stands still for a moment is no counterexample.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
