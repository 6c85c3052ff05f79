"""Reads clusters of spill.yaml: common fields here, and those of each kind through the kind."""

from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from spillover.clusters.agents.graphs import graph_of, levels_of
from spillover.clusters.agents.machine import cpus, memory
from spillover.clusters.kinds import Kinds, load_kinds, section_of
from spillover.config.pools import PoolReader, name_providers
from spillover.config.prices import read_billing, read_price
from spillover.forms.checking import check
from spillover.forms.problems import BadForm, Findings, FormProblem, Path, shown
from spillover.forms.quantities import MOST_CPU, check_name, duration, read_cpu, read_memory
from spillover.model.admission import CONSTRAINTS, EXCLUSIVE
from spillover.model.backoff import reason_of
from spillover.model.cluster import AGENTS, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Level
from spillover.model.units import DAY
from spillover.ports.kinds import Capability, ClusterKind
from spillover.wire.clusterfile import ClusterDoc, LocalAgentsDoc, LocalDoc, MostDoc

_WORDS: Final = {
    Capability.COMMANDS: "command",
    Capability.FILES: "files",
    Capability.CALLS: "python",
    Capability.CONSTRAINTS: CONSTRAINTS,
    Capability.EXCLUSIVE: EXCLUSIVE,
}
"""Words in the shape of a job by capability; nodes offer containers instead."""


MOST_LABEL: Final = 256
"""Most characters of a label of nodes."""


class Clusters(Struct, frozen=True):
    """All clusters of a server."""

    specs: tuple[ClusterSpec, ...]
    """In the order in which they are tried."""
    forms: dict[ClusterName, Struct]
    """Settings of each cluster in the form of its kind."""
    entries: dict[ClusterName, str]
    """The entry of each in spill.yaml, as JSON."""
    providers: dict[ClusterName, Struct] = {}
    """For each cluster with a pool, the options of its provider, in the form of the provider."""


def this_machine(slots: int | None) -> Clusters:
    """Return the default cluster: this machine, with one agent."""
    if slots is not None and not 0 < slots <= MOST_CPU // 1000:
        message = f"{slots} is not a number of CPUs; write 1 to {MOST_CPU // 1000}"
        raise BadForm([FormProblem("", None, "--slots", message)])
    name = ClusterName("local")
    agent = LocalDoc("local-1", slots or cpus(), memory())
    form = LocalAgentsDoc([agent])
    entry = msgspec.json.encode({"name": name, "local": form.local}).decode()
    return Clusters((ClusterSpec(name, AGENTS, Role.OWNED, gangs=True),), {name: form}, {name: entry})


def read_cluster(value: object, kinds: Kinds, found: Findings) -> Clusters | None:
    """Read one entry of `clusters`; None and problems in `found` if it is invalid."""
    try:
        doc = msgspec.convert(value, kinds.cluster_doc)
    except (msgspec.ValidationError, RecursionError):
        check(kinds.cluster_doc, value, found)
        name_providers(found)
        return None
    meaning = Findings()
    clusters = read_clusters([doc], meaning, kinds)
    for path, message in meaning.found:
        found.add(path[2:], message)
    return None if meaning.found else clusters


def read_clusters(docs: list[ClusterDoc], found: Findings, kinds: Kinds | None = None) -> Clusters:
    """Read clusters in their order; `kinds` must be those that the documents were decoded with."""
    kinds = load_kinds() if kinds is None else kinds
    if not docs:
        found.add(("clusters",), "is empty; add a cluster, or remove the field to use this machine")
    specs: dict[ClusterName, ClusterSpec] = {}
    forms: dict[ClusterName, Struct] = {}
    entries: dict[ClusterName, str] = {}
    agents: dict[str, None] = {}
    pools = PoolReader()
    for at, doc in enumerate(docs):
        path: Path = ("clusters", at)
        check_name(doc.name, (*path, "name"), found)
        name = ClusterName(doc.name)
        if name in specs:
            found.add((*path, "name"), f"{shown(doc.name)} is already the name of another cluster")
        if doc.kind not in kinds:
            found.add(
                (*path, "kind"), kinds.unusable.get(doc.kind, f"unknown kind of cluster {shown(doc.kind)}")
            )
            continue
        form = forms[name] = _said(doc, kinds[doc.kind]) or kinds[doc.kind].form()
        specs[name] = _spec(doc, kinds[doc.kind], form, pools, path, found)
        entries[name] = _entry(doc)
        _check_form(doc, form, kinds, path, found)
        for index, local in enumerate(form.local if isinstance(form, LocalAgentsDoc) else ()):
            if local.name in agents:
                message = f"{shown(local.name)} is already the name of another agent"
                found.add((*path, "local", index, "name"), message)
            agents[local.name] = None
    providers = {ClusterName(name): form for name, form in pools.forms.items()}
    return Clusters(tuple(specs.values()), forms, entries, providers)


def _entry(doc: ClusterDoc) -> str:
    """Return a cluster as JSON without default values, so that it stays readable without the other kinds."""
    fields = {each.name: each for each in structs.fields(doc)}
    said = {name: getattr(doc, name) for name in fields}
    kept = {name: value for name, value in said.items() if value != _default(fields[name])}
    return msgspec.json.encode(kept).decode()


def _default(each: structs.FieldInfo) -> object:
    if each.default_factory is not msgspec.NODEFAULT:
        return each.default_factory()
    return each.default


def _check_form(doc: ClusterDoc, form: Struct, kinds: Kinds, path: Path, found: Findings) -> None:
    """Check the settings of a cluster's kind, and that it has none of other kinds."""
    mine = kinds[doc.kind]
    for kind in kinds.values():
        said = _said(doc, kind)
        if kind is mine or said is None or said == kind.form():
            continue
        if kind.section is None:
            for name in [each for each in said.__struct_fields__ if getattr(said, each)]:
                told = f"is only allowed with kind: {kind.name}"
                found.add((*path, name), told)
        else:
            told = f"is only allowed with kind: {kind.name}"
            found.add((*path, section_of(kind)), told)
    place = path if mine.section is None else (*path, section_of(mine))
    for name in mine.access if doc.pool is not None else ():
        if getattr(form, name):
            found.add((*place, name), "is not allowed with `pool`: the provider says how to connect")
    try:
        for flaw in mine.check(form, ClusterName(doc.name)):
            found.add((*place, *flaw.path), flaw.message)
    except Exception as error:  # noqa: BLE001 - the kind may be foreign code
        found.add(place, f"cluster kind {mine.name} failed to check this field: {reason_of(error)}")


def _said(doc: ClusterDoc, kind: ClusterKind) -> Struct | None:
    """Return the settings of a kind in a document; None if it has none."""
    if kind.section is not None:
        said: Struct | None = getattr(doc, section_of(kind))
        return said
    fields: dict[str, Any] = {each.name: getattr(doc, each.name) for each in structs.fields(kind.form)}
    return kind.form(**fields)


def _spec(
    doc: ClusterDoc, kind: ClusterKind, form: Struct, pools: PoolReader, path: Path, found: Findings
) -> ClusterSpec:
    """Return a cluster as the scheduler sees it."""
    can: frozenset[Capability] = frozenset()
    try:
        can = kind.capabilities(form)
    except Exception as error:  # noqa: BLE001 - the kind may be foreign code
        found.add(path, f"cluster kind {kind.name} failed to report its capabilities: {reason_of(error)}")
    billing = read_billing(doc.billing, (*path, "billing"), found)
    pool, billing = pools.read(doc, kind, billing, path, found)
    price = read_price(doc.price, Role(doc.role), (*path, "price"), found)
    return ClusterSpec(
        ClusterName(doc.name),
        doc.kind,
        Role(doc.role),
        price if pool is None else pool_price(pool, price.egress_gb),
        billing,
        gangs=Capability.GANGS in can,
        startup=duration(doc.startup, (*path, "startup"), found, most=DAY) or 0,
        region=doc.region,
        labels=doc.labels,
        # Agents themselves report what they can run.
        runs=None
        if doc.kind == AGENTS
        else tuple(sorted(word for each, word in _WORDS.items() if each in can)),
        most=_most(doc.limits, (*path, "limits"), found),
        most_jobs=doc.limits.jobs,
        levels=read_levels(doc.levels, (*path, "levels"), found) or _graph_levels(form, path, found),
        pool=pool,
    )


def _graph_levels(form: Struct, path: Path, found: Findings) -> tuple[Level, ...]:
    """Return the levels of the graph of a cluster; none if it has no graph."""
    if not isinstance(form, LocalAgentsDoc) or form.graph is None:
        return ()
    try:
        return levels_of(graph_of(form.graph))
    except OSError as error:
        found.add((*path, "graph"), f"{shown(form.graph)}: {error.strerror or error}")
    except BadForm as error:
        for problem in error.problems:
            found.add((*path, "graph"), str(problem))
    except ValueError as error:
        found.add((*path, "graph"), f"{shown(form.graph)}: {error}")
    return ()


def read_levels(docs: list[str | dict[str, str]], path: Path, found: Findings) -> tuple[Level, ...]:
    """Return the levels of a cluster above its nodes, the highest first."""
    levels: dict[str, Level] = {}
    for at, doc in enumerate(docs):
        here: Path = (*path, at)
        pairs = {doc: doc} if isinstance(doc, str) else doc
        if len(pairs) != 1:
            found.add(here, "is not one level; write a name, or {name: label}")
            continue
        ((name, label),) = pairs.items()
        check_name(name, here, found)
        if not label or len(label) > MOST_LABEL or not label.isprintable():
            found.add(here, f"{shown(label)} is not a label; write 1 to {MOST_LABEL} printable characters")
        if name == NODE:
            found.add(here, "node is always the lowest level; remove it")
        elif name in levels:
            found.add(here, f"{shown(name)} is listed twice; remove one")
        levels[name] = Level(name, label)
    return tuple(levels.values())


def _most(doc: MostDoc, path: Path, found: Findings) -> Resources | None:
    """Return the most that our jobs may use of a cluster; None for all of it."""
    if doc.cpu is None and doc.memory is None and doc.gpu is None:
        return None
    cpu = 0 if doc.cpu is None else read_cpu(doc.cpu, (*path, "cpu"), found) or 0
    size = 0 if doc.memory is None else read_memory(doc.memory, (*path, "memory"), found) or 0
    return Resources(cpu, size, doc.gpu or 0)
