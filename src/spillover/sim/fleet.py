"""Machines and prices as the command line takes them: `64x8gpu,48cpu` and `gpu=2.5,step=60s`."""

import re
from collections.abc import Sequence
from typing import Final

from spillover.forms.problems import BadForm, Findings, shown
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY, MOST_TIME, duration, money, quantity
from spillover.model.cluster import Billing, Price
from spillover.model.resources import Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory
from spillover.sim.setting import Fleet, Rent
from spillover.sim.trace import TraceJob

MOST_NODES: Final = 1_000_000
MOST_GPUS: Final = 1000
"""Of one machine."""

_OWNED = re.compile(r"(\d{1,7})\s*x\s*(.+)", re.ASCII)
_AMOUNT = re.compile(r"([0-9.]+m?)\s*(gpus?|cpus?)", re.ASCII)
_PRICES: Final = ("gpu", "cpu", "memory_gib")
_TIMES: Final = ("step", "minimum", "startup")


def read_owned(text: str) -> Fleet:
    """Owned machines, as `64x8gpu`, `240x1cpu` or `64x8gpu,48cpu,256GB`.

    CPUs or memory that are not stated limit no job.
    """
    found = Findings()
    match = _OWNED.fullmatch(text.strip())
    if match is None or not 1 <= int(match[1]) <= MOST_NODES:
        found.add((), f"{shown(text)} is not a number of machines; write 64x8gpu or 64x8gpu,48cpu,256GB")
    else:
        have: dict[str, int] = {}
        for part in match[2].split(","):
            _add(part.strip(), have, found)
        if not found.found and "gpu" not in have and "cpu" not in have:
            found.add((), f"{shown(text)} has neither GPUs nor CPUs; write 64x8gpu or 64x48cpu")
    if found.found or match is None:
        raise BadForm(found.located("--owned"))
    node = Resources(have.get("cpu", MOST_CPU), have.get("memory", MOST_MEMORY), have.get("gpu", 0))
    return Fleet(int(match[1]), node, limits_cpu="cpu" in have, limits_memory="memory" in have)


def read_rented(text: str) -> Rent:
    """What rented capacity costs an hour, as `gpu=2.5,cpu=0.04,step=60s,minimum=60s,startup=90s`.

    Without a step use is billed to the nanosecond.
    """
    found = Findings()
    given: dict[str, int | None] = {}
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not equals or name not in (*_PRICES, *_TIMES):
            known = ", ".join((*_PRICES, *_TIMES))
            found.add((), f"{shown(part)} says no price; write gpu=2.5, and what else there is of {known}")
        elif name in given:
            found.add((name,), "is written twice; keep one")
        elif name in _PRICES:
            given[name] = money(value, (name,), found)
        else:
            given[name] = duration(value, (name,), found, least=int(name == "step"), most=MOST_TIME)
    if found.found:
        raise BadForm(found.located("--rented"))
    price = Price(given.get("cpu") or 0, given.get("memory_gib") or 0, given.get("gpu") or 0)
    billing = Billing(given.get("step") or 1, given.get("minimum") or 0)
    return Rent(price, billing, given.get("startup") or 0)


def read_site(owned: str, rented: str) -> tuple[Fleet, Rent]:
    """Owned machines and prices; everything that is wrong with either is told at once."""
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
    """What jobs would get for nothing when they are rented, a line each: nobody said a price of it, not even 0."""
    stated = {part.partition("=")[0].strip() for part in rented.split(",")}
    gpus = cpus = 0
    for job in jobs:
        if job.gpus or (not job.cpus and fleet.node.gpu):  # what states neither takes whole machines
            gpus += 1
        else:
            cpus += 1
    found = []
    if gpus and "gpu" not in stated:
        found.append(f"{_jobs(gpus)} with GPUs, which cost nothing: --rented has no price of gpu")
    if cpus and "cpu" not in stated and fleet.limits_cpu:  # else they never have to be rented
        found.append(f"{_jobs(cpus)} without GPUs, whose CPUs cost nothing: --rented has no price of cpu")
    return found


def _jobs(count: int) -> str:
    """What there are so many of."""
    return "there is 1 job" if count == 1 else f"there are {count:,} jobs"


def _add(part: str, have: dict[str, int], found: Findings) -> None:
    """Note one amount of a machine."""
    match = _AMOUNT.fullmatch(part)
    kind = "memory" if match is None else match[2].removesuffix("s")
    value: int | None
    if kind in have:
        found.add((), f"{shown(part)}: {kind} is written twice; keep one")
        return
    if kind == "memory" or match is None:
        try:
            value, most = parse_memory(part), MOST_MEMORY
        except UnitError:
            advice = "write 8gpu, 48cpu or 256GB: GPUs, CPUs or memory"
            found.add((), f"{shown(part)} is not a part of a machine; {advice}")
            return
    elif kind == "gpu":
        value, most = int(match[1]) if match[1].isdigit() and len(match[1]) < 9 else -1, MOST_GPUS
    else:
        value, most = quantity(parse_cpu, match[1], (), found), MOST_CPU
    if value is None:
        return
    if not 0 <= value <= most or (value == 0 and kind != "gpu"):
        found.add((), f"{shown(part)} is more or less than a machine can have")
    have[kind] = value
