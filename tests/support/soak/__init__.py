"""Runs a real server under mixed load: it may not leak, fail without a reason, end jobs twice, or block for long.

Run it with `python -m tests.support.soak --minutes 20`, or `make soak MINUTES=20`. It measures the idle server twice:
after a third of the time, when caches are full, and at the end. Growth between the two beyond a stated bound is a leak.
"""
