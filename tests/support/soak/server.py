"""`spill up` that counts its objects when it is told to: SIGUSR1 has it write them, by type, to a file in its working directory."""

import gc
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from spillover.control import specs
from spillover.server.up import run

COUNTS: Final = "counts.json"
SPECS: Final = 256 << 10
"""Bytes of specs that are kept in memory: so few that they are as many after a third of the time as in the end."""


def count(number: int, frame: FrameType | None) -> None:
    """Write how many objects of each type there are, but for those that were there before the server began."""
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
