"""Provides the clock for leases and tasks.

It counts the time in which the machine was suspended. Otherwise an agent that was suspended for an hour would take its
leases as valid for another half a minute, although the server has given them to others.
"""

import time
from functools import partial

boottime = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Return the nanoseconds since the machine started."""
