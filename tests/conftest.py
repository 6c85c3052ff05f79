"""What holds for all tests."""

import signal

# Started in the background of a script, this process ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
