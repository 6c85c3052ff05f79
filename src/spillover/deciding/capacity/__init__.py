"""Free capacity of machines, now and later: answers whether a job fits.

`amounts` counts all resources as vectors. `machine` and `cluster` track what is free now, `candidates` and `gangs` find
machines for a job, `finding` finds its clusters, `future` tracks what will be free later, and `timeline` finds spans of
time (`profile` has what is free on one machine over time). Placement, reservations, look-ahead and `why` all use them.
"""
