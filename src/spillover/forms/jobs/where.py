"""Reads which clusters and nodes a job asks for."""

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name
from spillover.model.admission import CONSTRAINTS, EXCLUSIVE, PIN, PODS, SPREAD
from spillover.model.job import Burst, Shape
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Topology
from spillover.model.units import format_cpu
from spillover.model.where import Where
from spillover.wire.jobfile import SpecDoc, SpreadDoc, WhereDoc, WithinDoc, Words

MOST_LENGTH: Final = 256
"""Most characters of a region, a kind, a label or its value."""
PATH: Final[Path] = ("spec", "where")
BURST: Final = {"owned": Burst.NEVER, "rented": Burst.ALWAYS}
"""What a role means for renting. A job that asks for rented capacity does not wait for owned capacity."""


def constrained(shape: Shape, doc: SpecDoc, found: Findings) -> Shape:
    """Add the clusters and nodes that a document asks for to a shape."""
    manifest = doc.container.manifest if doc.container is not None else None
    if doc.where is None and manifest is None and doc.constraints is None:
        return shape
    where, rules = read_where(doc.where, found) if doc.where is not None else None, None
    burst, runs = shape.burst, shape.runs
    if where is not None and where.role:
        burst = BURST[where.role]
        if shape.burst not in {Burst.AUTO, burst}:
            message = f"{where.role} conflicts with `burst: {shape.burst}`; remove one of them"
            found.add((*PATH, "role"), message)
    if manifest is not None:
        from spillover.forms.jobs.pods import POD, beyond_engines, check_metadata, read_manifest, rules_of  # noqa: PLC0415 - few jobs need it

        path: Path = ("spec", "container", "manifest")
        read = read_manifest(manifest, path, found)
        if read is not None:
            check_metadata(read, path, found)
            rules = rules_of(read.spec.pod, (*path, *POD), found)
            runs = tuple(sorted({*runs, PODS})) if beyond_engines(read.spec) else runs
    if doc.constraints is not None:
        from spillover.forms.jobs.constraints import read_constraints  # noqa: PLC0415 - few jobs need it

        if manifest is not None:
            found.add(("spec", "constraints"), "is not possible with a manifest; use its node affinity")
        elif (rules := read_constraints(doc.constraints, ("spec", "constraints"), found)) is not None:
            runs = tuple(sorted({*runs, CONSTRAINTS}))
    if where is None and rules is None and runs == shape.runs:
        return shape
    return _shared(replace(shape, burst=burst, where=where, rules=rules, runs=runs))


def located(shape: Shape, doc: SpecDoc, found: Findings) -> Shape:
    """Add where tasks must be, relative to each other and to other jobs, to a shape."""
    topology = read_topology(doc, shape, found)
    if shape.groups:  # which have read what they ask for inside of machines
        topology = replace(topology, pin="", link="")
    else:
        check_inside(topology.pin, topology.link, shape.resources, ("spec",), found)
    if topology == Topology():
        return shape
    runs = set(shape.runs)
    if topology.exclusive:
        runs.add(EXCLUSIVE)
    if topology.spread and topology.most > 1:
        runs.add(SPREAD)
    if topology.asks_inside:
        runs.add(PIN)
    return _shared(replace(shape, topology=topology, runs=tuple(sorted(runs))))


def read_topology(doc: SpecDoc, shape: Shape, found: Findings) -> Topology:
    """Read `within`, `spread` and `exclusive`."""
    within = doc.within.prefer if isinstance(doc.within, WithinDoc) else doc.within or ""
    asked = SpreadDoc(doc.spread) if isinstance(doc.spread, str) else doc.spread
    spread, most, exact = ("", 1, False) if asked is None else (asked.over, asked.most, asked.exact)
    for field, level, given in (("within", within, doc.within), ("spread", spread, doc.spread)):
        if given is not None:
            check_name(level, ("spec", field), found)
    if not shape.is_gang and asked is not None:
        found.add(("spec", "spread"), "needs more than one task; set `tasks`, or remove it")
    if within and within == spread:
        found.add(("spec", "spread"), f"{shown(spread)} is also the level of `within`; name a lower level")
    elif within == NODE and spread:
        found.add(("spec", "spread"), "is not possible within one node; remove one of the two")
    if exact and spread != NODE:
        found.add(("spec", "spread", "exact"), "is only allowed with `over: node`")
    elif exact and (shape.groups or shape.most):
        found.add(("spec", "spread", "exact"), "needs a fixed number of tasks that are alike; remove it")
    elif exact and shape.tasks % most:
        found.add(("spec", "spread", "most"), f"{most} does not divide the {shape.tasks} tasks")
    exclusive = doc.exclusive is not None
    if exclusive and within == NODE and shape.groups:
        message = "is not possible for `groups` within one node; remove one of the two"
        found.add(("spec", "exclusive"), message)
    if doc.gpu_link is not None:
        check_name(doc.gpu_link, ("spec", "gpu_link"), found)
    preferred = isinstance(doc.within, WithinDoc)
    return Topology(within, preferred, spread, most, exact, exclusive, doc.pin or "", doc.gpu_link or "")


def check_inside(pin: str, link: str, asked: Resources, path: Path, found: Findings, group: str = "") -> None:
    """Check that a request for cores or linked GPUs is one. `group` is one of several for which it is said together."""
    where, task = (" in each group", f"a task of {shown(group)}") if group else ("", "a task")
    apart = "write `{}` in the groups that have them"
    if pin and (asked.cpu < 1000 or asked.cpu % 1000):
        told = f"needs whole CPUs{where}, and {task} requests {format_cpu(asked.cpu)}"
        found.add((*path, "pin"), f"{told}; {apart.format('pin') if group else 'request 1 or more'}")
    if link and asked.gpu < 2:
        told = f"needs at least 2 GPUs{where}, and {task} requests {asked.gpu}"
        advice = apart.format("gpu_link") if group else "request more, or remove it"
        found.add((*path, "gpu_link"), f"{told}; {advice}")


def topology_doc(topology: Topology) -> dict[str, object]:
    """Return where tasks must be as a user would write it."""
    doc: dict[str, object] = {}
    if topology.within:
        doc["within"] = {"prefer": topology.within} if topology.preferred else topology.within
    if topology.spread:
        plain = topology.most == 1 and not topology.exact
        spread: dict[str, object] = {"over": topology.spread, "most": topology.most}
        doc["spread"] = topology.spread if plain else spread | ({"exact": True} if topology.exact else {})
    if topology.exclusive:
        doc["exclusive"] = NODE
    if topology.pin:
        doc["pin"] = topology.pin
    if topology.link:
        doc["gpu_link"] = topology.link
    return doc


def read_where(doc: WhereDoc, found: Findings) -> Where | None:
    """Read constraints on clusters; None if there are none."""
    clusters, avoid = _names(doc.cluster, "cluster", found), _names(doc.avoid, "avoid", found)
    for name in clusters:
        if name in avoid:
            found.add((*PATH, "avoid"), f"{shown(name)} is also listed in `cluster`; remove one")
    for name, value in doc.labels.items():
        _check((*PATH, "labels", name), name, found)
        _check((*PATH, "labels", name), value or "-", found)
    where = Where(
        doc.role or "",
        _texts(doc.kind, "kind", found),
        clusters,
        _texts(doc.region, "region", found),
        tuple(sorted(doc.labels.items())),
        avoid,
    )
    return None if where == Where() else where


def where_doc(where: Where) -> dict[str, object]:
    """Return constraints on clusters as a user would write them."""
    lists = {"kind": where.kinds, "cluster": where.clusters, "region": where.regions, "avoid": where.avoid}
    doc: dict[str, object] = {"role": where.role} if where.role else {}
    doc |= {name: words[0] if len(words) == 1 else list(words) for name, words in lists.items() if words}
    return doc | ({"labels": dict(where.labels)} if where.labels else {})


@lru_cache(maxsize=4096)
def _shared(shape: Shape) -> Shape:
    """Return one shared shape for all jobs that have it."""
    return shape


def _names(words: Words, field: str, found: Findings) -> tuple[str, ...]:
    """Read names of clusters, sorted and without duplicates."""
    names = [words] if isinstance(words, str) else words
    for at, name in enumerate(names):
        check_name(name, _place(words, field, at), found)
    return tuple(sorted(set(names)))


def _texts(words: Words, field: str, found: Findings) -> tuple[str, ...]:
    """Read words, sorted and without duplicates."""
    texts = [words] if isinstance(words, str) else words
    for at, text in enumerate(texts):
        _check(_place(words, field, at), text, found)
    return tuple(sorted(set(texts)))


def _place(words: Words, field: str, at: int) -> Path:
    return (*PATH, field) if isinstance(words, str) else (*PATH, field, at)


def _check(path: Path, text: str, found: Findings) -> None:
    """Add a problem if a text is empty, too long or unprintable."""
    if not text or len(text) > MOST_LENGTH or not text.isprintable():
        found.add(path, f"{shown(text)} is not valid; write 1 to {MOST_LENGTH} printable characters")
