"""The clock that leases and tasks are measured on.

It counts the time that the machine was suspended: an agent that slept for an hour must not believe that its leases, which the
server has given to others by then, last for another half a minute.
"""

import time
from functools import partial

boottime = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since the machine was started."""
