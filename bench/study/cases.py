"""Defines a case: one trace on one fleet under one set of policies, with the knowledge of the scheduler."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from spillover import __version__

SHARED: Final = Path(__file__).resolve().parents[3] / "shared"
TRACES: Final = SHARED / "traces"
"""Real workloads; not part of the repository."""
LISTS: Final = SHARED / "reference" / "starburst"
"""Job lists of published experiments; likewise."""
SYNTHETIC: Final = "synthetic:"


class Case(Struct, frozen=True):
    """One simulation."""

    trace: str
    """Name of a file without its ending, perhaps with a range of its jobs, as in `philly_2017[40000:55000]`; or a recipe."""
    owned: str
    rented: str
    policy: str
    warmup: int = 0
    told: str = "runtime"
    """What policies know of runtimes."""
    lognormal: float = 0.0
    """Error of the logarithm of estimates."""
    jitter: int = 0
    """Above 0, submissions are moved by less than a second, by dice of this seed: another trace that says the same."""
    variant: str = ""
    """A name of `variants`: break_even with one of its steps left out; empty as it is."""
    ended: bool | UnsetType = UNSET
    """Whether jobs end at their walltimes, as a server ends them, even if they ran for longer in the trace."""

    @property
    def source(self) -> str:
        """The trace in the notation of the simulator."""
        return self.trace if self.trace.startswith(SYNTHETIC) else str(self.path)

    @property
    def path(self) -> Path | None:
        """The file; None for a recipe."""
        if self.trace.startswith(SYNTHETIC):
            return None
        folder = LISTS if self.trace.startswith("table4") else TRACES
        return folder / f"{self.trace.partition('[')[0]}.csv.gz"

    @property
    def part(self) -> slice:
        """The range of its jobs; all of them if it names none."""
        first, _, last = self.trace.partition("[")[2].removesuffix("]").partition(":")
        return slice(int(first), int(last)) if last and self.path is not None else slice(None)

    @property
    def missing(self) -> bool:
        """Whether its file is missing."""
        return self.path is not None and not self.path.exists()

    @property
    def key(self) -> str:
        """Digest of everything that its result depends on, except the code."""
        content = "" if self.path is None else _digest(self.path)
        parts = msgspec.msgpack.encode((__version__, content, self))
        return hashlib.blake2b(parts, digest_size=16).hexdigest()


@cache
def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
