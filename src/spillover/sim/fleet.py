"""Parses machines and prices from the command line: `64x8gpu,48cpu` and `gpu=2.5,step=60s`."""

import re
from collections.abc import Sequence
from typing import Final

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, shown
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY, MOST_TIME, duration, money
from spillover.model.cluster import Billing, Price
from spillover.model.resources import Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory
from spillover.sim.setting import Fleet, Rent
from spillover.sim.trace import TraceJob

MOST_NODES: Final = 1_000_000
MOST_GPUS: Final = 1000
"""Limit for one machine."""

_AMOUNT = re.compile(r"([0-9.]+m?)\s*(gpus?|cpus?)", re.ASCII)
_PRICES: Final = ("gpu", "cpu", "memory_gib")
_TIMES: Final = ("step", "minimum", "startup")


def read_owned(text: str) -> Fleet:
    """Parse owned machines: `64x8gpu`, `240x1cpu` or `64x8gpu,48cpu,256GB`.

    CPUs or memory that are not given do not limit jobs.
    """
    line = OneLine(text)
    number, machine = line.whole.pair("x")
    count = _machines(number.strip().text)
    have: dict[str, int] = {}
    if machine is None or not count:
        message = f"{shown(text)} is not a number of machines; write 64x8gpu or 64x8gpu,48cpu,256GB"
        line.wrong(line.whole, message)
    else:
        for part in machine.split():
            _add(part.strip(), have, line)
        if not line.found.found and "gpu" not in have and "cpu" not in have:
            line.wrong(line.whole, f"{shown(text)} has neither GPUs nor CPUs; write 64x8gpu or 64x48cpu")
    line.check("--owned")
    node = Resources(have.get("cpu", MOST_CPU), have.get("memory", MOST_MEMORY), have.get("gpu", 0))
    return Fleet(count, node, limits_cpu="cpu" in have, limits_memory="memory" in have)


def read_rented(text: str) -> Rent:
    """Parse hourly prices of rented capacity: `gpu=2.5,cpu=0.04,step=60s,minimum=60s,startup=90s`.

    Without a step, billing is exact to the nanosecond.
    """
    line = OneLine(text)
    given: dict[str, int | None] = {}
    for part in line.whole.split():
        left, right = part.pair()
        name, value = left.strip().text, right.strip() if right else None
        if value is None or name not in (*_PRICES, *_TIMES):
            known = ", ".join((*_PRICES, *_TIMES))
            line.wrong(part, f"{shown(part.text)} is not a price; write gpu=2.5, with one of {known}")
            continue
        if name in given:
            line.wrong(part, "is given twice; remove one", (name,))
            continue
        line.mark((name,), value)
        if name in _PRICES:
            given[name] = money(value.text, (name,), line.found)
        else:
            least = int(name == "step")
            given[name] = duration(value.text, (name,), line.found, least=least, most=MOST_TIME)
    line.check("--rented")
    price = Price(given.get("cpu") or 0, given.get("memory_gib") or 0, given.get("gpu") or 0)
    billing = Billing(given.get("step") or 1, given.get("minimum") or 0)
    return Rent(price, billing, given.get("startup") or 0)


def read_site(owned: str, rented: str) -> tuple[Fleet, Rent]:
    """Parse owned machines and prices; report the problems of both at once."""
    try:
        fleet = read_owned(owned)
    except BadForm as wrong:
        try:
            read_rented(rented)
        except BadForm as more:
            raise BadForm((*wrong.problems, *more.problems), wrong.more + more.more) from None
        raise
    return fleet, read_rented(rented)


def unpriced(rented: str, fleet: Fleet, jobs: Sequence[TraceJob]) -> list[str]:
    """Return a line for each resource that jobs would rent for free, because `rented` has no price for it."""
    stated = {part.pair()[0].strip().text for part in Piece(rented).split()}
    gpus = cpus = 0
    for job in jobs:
        if job.gpus or (not job.cpus and fleet.node.gpu):  # a job without sizes takes whole machines
            gpus += 1
        else:
            cpus += 1
    found = []
    if gpus and "gpu" not in stated:
        found.append(f"renting {_jobs(gpus)} with GPUs costs nothing: --rented has no price for gpu")
    if cpus and "cpu" not in stated and fleet.limits_cpu:  # else they never need rented capacity
        found.append(f"renting {_jobs(cpus)} without GPUs costs nothing: --rented has no price for cpu")
    return found


def _jobs(count: int) -> str:
    """Format a number of jobs."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def _machines(text: str) -> int:
    """Parse the number of machines; 0 if it is not valid."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_NODES))
    return int(text) if is_number and int(text) <= MOST_NODES else 0


def _add(part: Piece, have: dict[str, int], line: OneLine) -> None:
    """Add one resource of a machine to `have`, or report a problem."""
    match = _AMOUNT.fullmatch(part.text)
    kind = "memory" if match is None else match[2].removesuffix("s")
    if kind in have:
        line.wrong(part, f"{shown(part.text)}: {kind} is given twice; remove one")
        return
    if kind == "memory" or match is None:
        try:
            value, most = parse_memory(part.text), MOST_MEMORY
        except UnitError:
            advice = "write 8gpu, 48cpu or 256GB"
            line.wrong(part, f"{shown(part.text)} is not a resource of a machine; {advice}")
            return
    elif kind == "gpu":
        value, most = int(match[1]) if match[1].isdigit() and len(match[1]) < 9 else -1, MOST_GPUS
    else:
        try:
            value, most = parse_cpu(match[1]), MOST_CPU
        except UnitError as error:
            line.wrong(part, str(error))
            return
    if not 0 <= value <= most or (value == 0 and kind != "gpu"):
        line.wrong(part, f"{shown(part.text)} is out of range for a machine")
    have[kind] = value
