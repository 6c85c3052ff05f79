"""Events, transitions, decide, apply, state: pure."""
