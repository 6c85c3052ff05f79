"""A real server under mixed load for a while: nothing may grow, fail unasked, end twice or keep everybody waiting.

`python -m tests.support.soak --minutes 20`, which is `make soak MINUTES=20`. What a server needs is measured twice while it rests: after a
third of the time, when caches are filled, and in the end. Whatever grew between the two beyond a stated bound is a leak.
"""
