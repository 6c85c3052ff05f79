"""Parses recipes for synthetic jobs: `synthetic:jobs=5000,load=1.1,runtime=lognormal(2h,1.5),gpus=1:0.7|4:0.3`."""

import random
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from msgspec import Struct

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, Findings, FormProblem, shown
from spillover.forms.quantities import duration
from spillover.model.units import HOUR, UnitError, parse_cpu
from spillover.sim.traces.opening import SYNTHETIC

MOST_JOBS: Final = 10_000_000
_MS: Final = 10**6
_SOURCE: Final = "--trace"
_ARGUMENTS: Final = {"exponential": 1, "lognormal": 2, "constant": 1}
"""Distributions of runtimes, with their largest number of arguments."""
_KNOWN: Final = (
    "jobs",
    "load",
    "rate",
    "burstiness",
    "runtime",
    "max_runtime",
    "gpus",
    "cpus",
    "users",
    "like",
)


class Weighted(Struct, frozen=True):
    """Sizes with their probabilities."""

    sizes: tuple[int, ...]
    upto: tuple[float, ...]
    """Cumulative weights."""

    def draw(self, dice: random.Random) -> int:
        """Draw one of the sizes."""
        return self.sizes[bisect(self.upto, dice.random() * self.upto[-1], hi=len(self.sizes) - 1)]


class Recipe(Struct, frozen=True):
    """The parameters of synthetic jobs."""

    jobs: int = 5000
    load: float | None = 1.0
    """Offered work divided by the capacity of owned machines; None if the rate is given."""
    rate: float | None = None
    """Jobs per hour; None if the load is given."""
    burstiness: float = 1.0
    """Standard deviation divided by mean of the times between arrivals: 1 is a Poisson process, 0 is regular."""
    kind: str = "lognormal"
    """Distribution of runtimes."""
    mean: int = 2 * HOUR
    """Mean runtime in nanoseconds."""
    sigma: float = 1.0
    """Standard deviation of the logarithm of lognormal runtimes."""
    max_runtime: int | None = None
    """Nanoseconds to which longer runtimes are cut; None means no limit."""
    gpus: Weighted | None = None
    """GPUs of a job; None means none."""
    cpus: Weighted | None = None
    """Thousandths of CPUs of a job; None means none."""
    users: int = 1
    """Number of users; user n submits 1/n as often as the first."""
    like: str | None = None
    """A trace from which to draw whole jobs; None draws runtimes and sizes independently."""


def read_recipe(text: str) -> Recipe:
    """Parse a recipe; raise BadForm with all problems."""
    line = OneLine(text)
    given: dict[str, str] = {}
    for part in line.whole.cut(len(SYNTHETIC) if text.startswith(SYNTHETIC) else 0).words():
        left, right = part.pair()
        name, value = left.strip().text, right.strip() if right else None
        if value is None or name not in _KNOWN:
            from spillover.forms.checking import nearest  # noqa: PLC0415 - slow, and only when something is wrong

            line.wrong(part, f"{shown(part.text)} is not a field of a recipe{nearest(name, _KNOWN)}")
        elif name in given:
            line.wrong(part, "is given twice; remove one", (name,))
        else:
            line.mark((name,), value)
            given[name] = value.text
    found = line.found
    fields = {name: _READERS[name](value, name, found) for name, value in given.items()}
    runtime = fields.pop("runtime", None) or {}
    if "rate" in given:
        if "load" in given:
            found.add(("rate",), "excludes load; remove one")
        fields["load"] = None
    both = [name for name in ("runtime", "gpus", "cpus", "users") if name in given and "like" in given]
    if both:
        found.add((both[0],), "comes from the jobs of like; remove one")
    line.check(_SOURCE)
    if "gpus" in fields and 0 in fields["gpus"].sizes and "cpus" not in fields:
        raise refused("has jobs without GPUs, which then ask for nothing; set cpus, such as cpus=4")
    if not {"gpus", "cpus", "like"} & fields.keys():
        fields["gpus"] = Weighted((1, 2, 4, 8), (0.7, 0.85, 0.95, 1.0))
    return Recipe(**fields, **runtime)


def refused(message: str) -> BadForm:
    """Return the error for a recipe that is inconsistent as a whole."""
    return BadForm([FormProblem(_SOURCE, None, "", message)])


def _count(value: str, name: str, found: Findings) -> int:
    """Parse a whole number of at least 1."""
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= MOST_JOBS):
        found.add((name,), f"{shown(value)} is not a whole number from 1 to {MOST_JOBS}")
        return 1
    return int(value)


def _positive(value: str, name: str, found: Findings, least: float = 1e-6) -> float:
    """Parse a positive number within reasonable bounds."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= 1e6:
        found.add((name,), f"{shown(value)} is not a number from {least:g} to 1000000")
        return 1.0
    return number


def _spread(value: str, name: str, found: Findings) -> float:
    """Parse a coefficient of variation: 0, or large enough to draw gamma variates with."""
    return 0.0 if value == "0" else _positive(value, name, found, 0.01)


def _runtime(value: str, name: str, found: Findings) -> dict[str, Any]:
    """Parse the distribution of runtimes."""
    call = Piece(value.replace(" ", "")).call()
    kind, inside = (call[0].text, call[1]) if call else ("", None)
    said = [part.text for part in inside.split()] if inside else []
    if not 1 <= len(said) <= _ARGUMENTS.get(kind, 0) or not all(said):
        found.add(
            (name,),
            f"{shown(value)} is not a distribution; write exponential(2h), lognormal(2h,1.5) or constant(1h)",
        )
        return {}
    mean = duration(said[0], (name,), found, least=_MS)
    sigma = 1.0 if len(said) == 1 else _positive(said[1], name, found, 0.001)
    if sigma > 5:
        found.add((name,), f"sigma {sigma:g} is too large; the maximum is 5")
    return {"kind": kind, "mean": mean or HOUR, "sigma": sigma}


def _limit(value: str, name: str, found: Findings) -> int | None:
    """Parse a duration."""
    return duration(value, (name,), found, least=_MS)


def _sizes(value: str, name: str, found: Findings) -> Weighted:
    """Parse a size such as `8`, or sizes with weights such as `1:0.7|4:0.3`."""
    sizes: list[int] = []
    weights: list[float] = []
    for part in Piece(value).split("|"):
        size, weight = part.pair(":")
        try:
            milli = parse_cpu(size.strip().text)
        except UnitError:
            milli = -1
        if milli < 0 or (name == "gpus" and milli % 1000):
            found.add((name,), f"{shown(part.text)} is not a size; write 1:0.7|2:0.2|4:0.1")
            continue
        sizes.append(milli // 1000 if name == "gpus" else milli)
        weights.append(_positive(weight.strip().text, name, found) if weight else 1.0)
    if sizes and not any(sizes):
        found.add((name,), "has no size above 0; remove it")
    return Weighted(tuple(sizes), tuple(accumulate(weights)))


def _text(value: str, name: str, found: Findings) -> str:
    """Parse a path."""
    if not value:
        found.add((name,), "needs a file")
    return value


_READERS: Final[dict[str, Callable[[str, str, Findings], Any]]] = {
    "jobs": _count,
    "load": _positive,
    "rate": _positive,
    "burstiness": _spread,
    "runtime": _runtime,
    "max_runtime": _limit,
    "gpus": _sizes,
    "cpus": _sizes,
    "users": _count,
    "like": _text,
}
