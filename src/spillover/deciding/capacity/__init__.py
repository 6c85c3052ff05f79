"""Free capacity of machines, now and later: answers whether a job fits.

`amounts` counts all resources as vectors. `machine` and `cluster` track what is free now, with `inside` for the sockets,
cores and GPUs of a machine, `levels` for racks and zones, `states` for machines that are alike, and `windows` for
advance reservations. `candidates` and `gangs` find machines for a job, `matching` those of a gang in one rack or spread
over several, and `finding` its clusters. `future` tracks what will be free later (`counts` keeps where tasks fit).
`calendar` has what is free over time, with a `profile` for each machine. `timeline` finds spans of time in it,
`gang_spans` those of gangs, and `spans` has what they are asked and answer. Placement, reservations, look-ahead and `why`
all use them.
"""
