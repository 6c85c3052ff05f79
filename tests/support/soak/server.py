"""Runs `spill up`, and on SIGUSR1 writes the number of its objects by type to a file in the working directory."""

import gc
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from spillover.control.live import specs
from spillover.server.up import run

COUNTS: Final = "counts.json"
SPECS: Final = 256 << 10
"""Bytes of specs to keep in memory; so few that this cache is full after a third of the time."""


def count(number: int, frame: FrameType | None) -> None:
    """Write the number of objects of each type, except those from before the start of the server."""
    del number, frame
    gc.collect()
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    path = Path(COUNTS)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(kinds))
    fresh.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, count)
    specs.KEPT = SPECS
    *_, config = sys.argv  # up --config FILE
    sys.exit(run(config=config, data=None, http=None, grpc=None, slots=None, standby=False))
