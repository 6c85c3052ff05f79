"""Parses machines and prices from the command line.

Machines are `64x8gpu,48cpu`, unlike ones `4x8gpu+16x32cpu`, or the file of a graph; prices are `gpu=2.5,step=60s`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY, MOST_TIME, check_name, duration, money
from spillover.model.cluster import Billing, Price, pool_price
from spillover.model.ids import NodeName
from spillover.model.pools import Offer, Pool
from spillover.model.reservation import LONGEST, MOST_AHEAD
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND, UnitError, parse_cpu, parse_memory
from spillover.sim.pools import SimulatedPool
from spillover.sim.setting import OWNED, Fleet, FleetMachine, Rent, ReservedNodes
from spillover.sim.trace import TraceJob

POOL: Final = "pool:"
"""Begins rented capacity that consists of machines."""
MOST_POOL: Final = 10_000
"""The most machines of a pool, if nothing else is said."""
MOST_RATE: Final = 1000.0
_POOL_TIMES: Final = ("boot", "join_within", "idle", "step", "minimum")
_POOL_SHARES: Final = ("fail", "scarce", "hazard")
GRAPH: Final = ".json"
"""How the name of a file with a resource graph ends."""
UNLIKE: Final = "+"
"""Between machines of different kinds."""
MOST_NODES: Final = 1_000_000
MOST_GPUS: Final = 1000
"""Limit for one machine."""

_AMOUNT = re.compile(r"([0-9.]+m?)\s*(gpus?|cpus?)", re.ASCII)
_PRICES: Final = ("gpu", "cpu", "memory_gib")
_TIMES: Final = ("step", "minimum", "startup")
ALL: Final = "all"
_RESERVE: Final = ("nodes", "start", "for", "within", "project")
"""Parts of a reservation; the first three are required."""


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


def read_pool(text: str) -> Rent:
    """Parse machines that are rented when needed: `pool:8gpu,96cpu,hour=20,boot=90s,step=1h;8gpu,spot,hour=7`.

    Offers are separated by `;`. Options of the pool may stand in any of them: max, min, boot, join_within, idle, step,
    minimum; and how its provider behaves: fail, scarce and hazard.
    """
    line = OneLine(text)
    offers: list[Offer] = []
    times: dict[str, int] = {}
    shares: dict[str, float] = {}
    counts: dict[str, int] = {}
    for offer in Piece(text[len(POOL) :]).split(";"):
        have: dict[str, int] = {}
        hour, spot, zone = None, False, ""
        for part in offer.split():
            name, value = part.pair()
            key, given = name.strip().text, "" if value is None else value.strip().text
            if value is None and key == "spot":
                spot = True
            elif value is None:
                _add(part.strip(), have, line)
            elif key == "hour":
                hour = money(given, (key,), line.found)
            elif key == "zone":
                zone = given
            elif key in _POOL_TIMES:
                times[key] = (
                    duration(given, (key,), line.found, least=int(key == "step"), most=MOST_TIME) or 0
                )
            elif key in _POOL_SHARES:
                shares[key] = _share(given, part, line)
            elif key in ("max", "min"):
                counts[key] = _machines(given) if given != "0" else 0
                _check_counts(counts, part, line)
            else:
                known = ", ".join(("hour", "zone", "max", "min", *_POOL_TIMES, *_POOL_SHARES))
                line.wrong(part, f"{shown(key)} is not an option of a pool; known are {known}")
        if hour is None and not line.found.found:
            line.wrong(offer, "an offer needs a price; write hour=20")
        if not line.found.found and "gpu" not in have and "cpu" not in have:
            line.wrong(offer, "an offer has neither GPUs nor CPUs; write 8gpu or 96cpu")
        resources = Resources(have.get("cpu", MOST_CPU), have.get("memory", MOST_MEMORY), have.get("gpu", 0))
        offers.append(Offer(f"type{len(offers) + 1}", resources, hour or 0, zone, spot))
    line.check("--rented")
    pool = Pool(
        "simulated",
        tuple(offers),
        min=counts.get("min", 0),
        max=counts.get("max", MOST_POOL),
        boot=times.get("boot", 90 * SECOND),
        join_within=times.get("join_within", 10 * MINUTE),
        idle=times.get("idle"),
    )
    behaves = SimulatedPool(
        pool, shares.get("fail", 0.0), shares.get("scarce", 0.0), shares.get("hazard", 0.0)
    )
    return Rent(
        pool_price(pool), Billing(times.get("step") or SECOND, times.get("minimum") or 0), pool=behaves
    )


def _check_counts(counts: Mapping[str, int], part: Piece, line: OneLine) -> None:
    """Report a pool that always has more machines than it may have."""
    most, least = counts.get("max", MOST_POOL), counts.get("min", 0)
    if most < least:
        line.wrong(part, f"max, {most}, is below min, {least}; raise max or lower min")


def _share(text: str, part: Piece, line: OneLine) -> float:
    """Parse a share or a rate; report a problem with it."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_RATE:
        line.wrong(part, f"{shown(text)} is not a number from 0 to {MOST_RATE:g}")
    return value


def read_rented(text: str) -> Rent:
    """Parse hourly prices of rented capacity: `gpu=2.5,cpu=0.04,step=60s,minimum=60s,startup=90s`, or a pool.

    Without a step, billing is exact to the nanosecond.
    """
    if text.startswith(POOL):
        return read_pool(text)
    line = OneLine(text)
    given: dict[str, int | None] = {}
    for name, value in _values(line, (*_PRICES, *_TIMES), "a price; write gpu=2.5").items():
        if name in _PRICES:
            given[name] = money(value.text, (name,), line.found)
        else:
            least = int(name == "step")
            given[name] = duration(value.text, (name,), line.found, least=least, most=MOST_TIME)
    line.check("--rented")
    price = Price(given.get("cpu") or 0, given.get("memory_gib") or 0, given.get("gpu") or 0)
    billing = Billing(given.get("step") or 1, given.get("minimum") or 0)
    return Rent(price, billing, given.get("startup") or 0)


def read_reserve(text: str) -> ReservedNodes:
    """Parse machines to reserve: `nodes=4,start=24h,for=2h`, with `within=rack` and `project=vision` if wanted."""
    line = OneLine(text)
    given = _values(line, _RESERVE, "a part of a reservation; write nodes=4,start=24h,for=2h")
    if not line.found.found and (missing := [name for name in _RESERVE[:3] if name not in given]):
        line.wrong(line.whole, f"{missing[0]} is missing; write nodes=4,start=24h,for=2h")
    line.check("--reserve")
    start = duration(given["start"].text, ("start",), line.found, most=MOST_AHEAD)
    length = duration(given["for"].text, ("for",), line.found, least=1, most=LONGEST)
    count = 0 if given["nodes"].text == ALL else _machines(given["nodes"].text)
    if not count and given["nodes"].text != ALL:
        told = f"{shown(given['nodes'].text)} is not a number of machines; write a number, or {ALL}"
        line.wrong(given["nodes"], told, ("nodes",))
    for name in ("within", "project"):
        if name in given:
            check_name(given[name].text, (name,), line.found)
    if "within" in given and not count:
        line.wrong(given["within"], "is only allowed with a number of nodes", ("within",))
    line.check("--reserve")
    within, project = (given[name].text if name in given else "" for name in ("within", "project"))
    return ReservedNodes(start or 0, length or 0, count, within, project)


def _values(line: OneLine, known: Sequence[str], what: str) -> dict[str, Piece]:
    """Return the values of `name=value` parts by name; add problems with unknown and repeated names."""
    given: dict[str, Piece] = {}
    for part in line.whole.split():
        left, right = part.pair()
        name, value = left.strip().text, right.strip() if right else None
        if value is None or name not in known:
            line.wrong(part, f"{shown(part.text)} is not {what}, with one of {', '.join(known)}")
        elif name in given:
            line.wrong(part, "is given twice; remove one", (name,))
        else:
            line.mark((name,), value)
            given[name] = value
    return given


def read_fleet(text: str) -> Fleet:
    """Read owned machines: from a file with a resource graph (JGF) if the name ends in .json, or as `read_owned`.

    Unlike machines are joined by `+`.
    """
    if not text.endswith(GRAPH):
        return _unlike(text) if UNLIKE in text else read_owned(text)
    from spillover.clusters.agents.graphs import graph_of, levels_of  # noqa: PLC0415 - few studies have a graph

    try:
        graph = graph_of(text)
    except OSError as error:
        raise BadForm([FormProblem(text, None, "", error.strerror or str(error))]) from None
    nodes = [node.capacity for node in graph.nodes]
    limits_cpu, limits_memory = any(node.cpu for node in nodes), any(node.memory for node in nodes)
    if not limits_cpu and not any(node.gpu for node in nodes):
        raise BadForm([FormProblem(text, None, "", "no node has cores or GPUs; add vertices of these types")])
    machines = tuple(
        [
            FleetMachine(
                OWNED,
                NodeName(node.name),
                replace(
                    node.capacity,
                    cpu=node.capacity.cpu if limits_cpu else MOST_CPU,
                    memory=node.capacity.memory if limits_memory else MOST_MEMORY,
                ),
                labels=node.path,
                inside=node.inside,
            )
            for node in graph.nodes
        ]
    )
    largest = max([each.capacity for each in machines], key=lambda one: (one.gpu, one.cpu, one.memory))
    return Fleet(
        len(machines),
        largest,
        limits_cpu=limits_cpu,
        limits_memory=limits_memory,
        machines=machines,
        levels=levels_of(graph),
    )


def _unlike(text: str) -> Fleet:
    """Parse several kinds of machines: `4x8gpu+16x32cpu`, named `n1`, `n2`, ... in this order.

    If CPUs are given for some kinds, the others have none: they only take jobs with GPUs.
    """
    kinds: list[Fleet] = []
    problems: list[FormProblem] = []
    for part in text.split(UNLIKE):
        try:
            kinds.append(read_owned(part.strip()))
        except BadForm as wrong:
            problems += wrong.problems
    if problems:
        raise BadForm(problems)
    if sum(kind.count for kind in kinds) > MOST_NODES:
        raise BadForm([FormProblem("--owned", None, "", f"there are at most {MOST_NODES:,} machines")])
    limits_cpu = any(kind.limits_cpu for kind in kinds)
    nodes = [
        kind.node if kind.limits_cpu or not limits_cpu else replace(kind.node, cpu=0)
        for kind in kinds
        for _ in range(kind.count)
    ]
    return Fleet(
        len(nodes),
        max(nodes, key=lambda one: (one.gpu, one.cpu, one.memory)),
        limits_cpu=limits_cpu,
        limits_memory=any(kind.limits_memory for kind in kinds),
        machines=tuple(
            [FleetMachine(OWNED, NodeName(f"n{number}"), node) for number, node in enumerate(nodes, 1)]
        ),
        without_gpus=max(nodes, key=lambda one: (one.cpu, one.memory)),
    )


def read_site(owned: str, rented: str) -> tuple[Fleet, Rent]:
    """Parse owned machines and prices; report the problems of both at once."""
    try:
        fleet = read_fleet(owned)
    except BadForm as wrong:
        try:
            read_rented(rented)
        except BadForm as more:
            raise BadForm((*wrong.problems, *more.problems), wrong.more + more.more) from None
        raise
    return fleet, read_rented(rented)


def unpriced(rented: str, fleet: Fleet, jobs: Sequence[TraceJob]) -> list[str]:
    """Return a line for each resource that jobs would rent for free, because `rented` has no price for it."""
    if rented.startswith(POOL):
        return []
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
