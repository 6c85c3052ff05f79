"""What holds for all tests."""

import signal

import pytest
from hypothesis import settings

# Started in the background of a script, this process ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stands still for a moment is no counterexample.
settings.register_profile("patient", deadline=None, max_examples=50)
settings.register_profile("stories", deadline=None)  # with all examples: `tests/support/tiers.py`
settings.load_profile("patient")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave the exit status for `.ci/run`: `make` does not pass it on."""
    cache = getattr(session.config, "cache", None)  # None with -p no:cacheprovider
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("cache/exitstatus", int(exitstatus))
