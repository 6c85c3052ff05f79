"""What is free on machines, now and later: the one answer to "does it fit?".

`amounts` counts every resource alike, as vectors. `machine` and `cluster` know what is free now, `candidates` and `gangs` find where a
job fits, `finding` on which clusters, and `future` knows what is free later. Placing, reservations, look-ahead and `why` all ask these.
"""
