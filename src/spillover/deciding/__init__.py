"""Scheduling decisions as pure functions: the engine step, the cycle, the queue, plans and explanations."""
