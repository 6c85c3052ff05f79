"""Clusters as spill.yaml says them: what all have in common is read here, what is of a kind is left to that kind."""

from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from spillover.clusters.agents.machine import cpus, memory
from spillover.clusters.kinds import Kinds, load_kinds, section_of
from spillover.config.prices import read_billing, read_price
from spillover.forms.checking import check
from spillover.forms.problems import BadForm, Findings, FormProblem, Path, shown
from spillover.forms.quantities import MOST_CPU, check_name, duration, read_cpu, read_memory
from spillover.model.backoff import reason_of
from spillover.model.cluster import AGENTS, ClusterSpec, Role
from spillover.model.ids import ClusterName
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.kinds import Capability, ClusterKind
from spillover.wire.configfile import ClusterDoc, LocalAgentsDoc, LocalDoc, MostDoc

_WORDS: Final = {Capability.COMMANDS: "command", Capability.FILES: "files", Capability.CALLS: "python"}
"""What the shape of a job calls what a cluster must be able to do; containers are offered by nodes."""


class Clusters(Struct, frozen=True):
    """All clusters of a server."""

    specs: tuple[ClusterSpec, ...]
    """In the order they are tried."""
    forms: dict[ClusterName, Struct]
    """What each says in the form of its kind."""
    entries: dict[ClusterName, str]
    """The entry of each in spill.yaml, as JSON."""


def this_machine(slots: int | None) -> Clusters:
    """The cluster and the agent of a server that was told of none."""
    if slots is not None and not 0 < slots <= MOST_CPU // 1000:
        message = f"{slots} is not a number of CPUs; write 1 to {MOST_CPU // 1000}"
        raise BadForm([FormProblem("", None, "--slots", message)])
    name = ClusterName("local")
    agent = LocalDoc("local-1", slots or cpus(), memory())
    form = LocalAgentsDoc([agent])
    entry = msgspec.json.encode({"name": name, "local": form.local}).decode()
    return Clusters((ClusterSpec(name, AGENTS, Role.OWNED),), {name: form}, {name: entry})


def read_cluster(value: object, kinds: Kinds, found: Findings) -> Clusters | None:
    """One cluster, as an entry of spill.yaml says it; None with everything noted that is wrong with it."""
    try:
        doc = msgspec.convert(value, kinds.cluster_doc)
    except (msgspec.ValidationError, RecursionError):
        check(kinds.cluster_doc, value, found)
        return None
    meaning = Findings()
    clusters = read_clusters([doc], meaning, kinds)
    for path, message in meaning.found:
        found.add(path[2:], message)
    return None if meaning.found else clusters


def read_clusters(docs: list[ClusterDoc], found: Findings, kinds: Kinds | None = None) -> Clusters:
    """Clusters in their order, and what belongs to them; `kinds` are those of whom these documents were made."""
    kinds = load_kinds() if kinds is None else kinds
    if not docs:
        found.add(("clusters",), "is empty; write at least one cluster, or leave it out for this machine")
    specs: dict[ClusterName, ClusterSpec] = {}
    forms: dict[ClusterName, Struct] = {}
    entries: dict[ClusterName, str] = {}
    agents: dict[str, None] = {}
    for at, doc in enumerate(docs):
        path: Path = ("clusters", at)
        check_name(doc.name, (*path, "name"), found)
        name = ClusterName(doc.name)
        if name in specs:
            found.add((*path, "name"), f"{shown(doc.name)} is the name of another cluster too")
        if doc.kind not in kinds:
            found.add((*path, "kind"), kinds.unusable.get(doc.kind, f"there is no kind {shown(doc.kind)}"))
            continue
        form = forms[name] = _said(doc, kinds[doc.kind]) or kinds[doc.kind].form()
        specs[name] = _spec(doc, kinds[doc.kind], form, path, found)
        entries[name] = _entry(doc)
        _check_form(doc, form, kinds, path, found)
        for index, local in enumerate(form.local if isinstance(form, LocalAgentsDoc) else ()):
            if local.name in agents:
                message = f"{shown(local.name)} is the name of another agent too"
                found.add((*path, "local", index, "name"), message)
            agents[local.name] = None
    return Clusters(tuple(specs.values()), forms, entries)


def _entry(doc: ClusterDoc) -> str:
    """A cluster as it was written, without what it need not say: kinds that are not installed later leave nothing unknown in it."""
    fields = {each.name: each for each in structs.fields(doc)}
    said = {name: getattr(doc, name) for name in fields}
    kept = {name: value for name, value in said.items() if value != _default(fields[name])}
    return msgspec.json.encode(kept).decode()


def _default(each: structs.FieldInfo) -> object:
    if each.default_factory is not msgspec.NODEFAULT:
        return each.default_factory()
    return each.default


def _check_form(doc: ClusterDoc, form: Struct, kinds: Kinds, path: Path, found: Findings) -> None:
    """Note what is wrong with the form of a cluster's kind, and what it says in those of others."""
    mine = kinds[doc.kind]
    for kind in kinds.values():
        said = _said(doc, kind)
        if kind is mine or said is None or said == kind.form():
            continue
        if kind.section is None:
            for name in [each for each in said.__struct_fields__ if getattr(said, each)]:
                told = f"names {kind.name} of a {doc.kind.capitalize()} cluster, which has nodes of its own; leave it out"
                found.add((*path, name), told)
        else:
            told = f"is of a cluster of {doc.kind}; leave it out, or write kind: {kind.name}"
            found.add((*path, section_of(kind)), told)
    place = path if mine.section is None else (*path, section_of(mine))
    try:
        for flaw in mine.check(form, ClusterName(doc.name)):
            found.add((*place, *flaw.path), flaw.message)
    except Exception as error:  # noqa: BLE001 - a kind may not be ours
        found.add(place, f"the kind {mine.name} failed to check it: {reason_of(error)}")


def _said(doc: ClusterDoc, kind: ClusterKind) -> Struct | None:
    """What a document says in the form of a kind; None if it says nothing."""
    if kind.section is not None:
        said: Struct | None = getattr(doc, section_of(kind))
        return said
    fields: dict[str, Any] = {each.name: getattr(doc, each.name) for each in structs.fields(kind.form)}
    return kind.form(**fields)


def _spec(doc: ClusterDoc, kind: ClusterKind, form: Struct, path: Path, found: Findings) -> ClusterSpec:
    """A cluster as deciding sees it."""
    can: frozenset[Capability] = frozenset()
    try:
        can = kind.capabilities(form)
    except Exception as error:  # noqa: BLE001 - a kind may not be ours
        found.add(path, f"the kind {kind.name} failed to say what it runs: {reason_of(error)}")
    return ClusterSpec(
        ClusterName(doc.name),
        doc.kind,
        Role(doc.role),
        read_price(doc.price, Role(doc.role), (*path, "price"), found),
        read_billing(doc.billing, (*path, "billing"), found),
        gangs=Capability.GANGS in can,
        startup=duration(doc.startup, (*path, "startup"), found, most=DAY) or 0,
        region=doc.region,
        labels=doc.labels,
        # Agents say themselves what they can run.
        runs=None
        if doc.kind == AGENTS
        else tuple(sorted(word for each, word in _WORDS.items() if each in can)),
        most=_most(doc.limits, (*path, "limits"), found),
        most_jobs=doc.limits.jobs,
    )


def _most(doc: MostDoc, path: Path, found: Findings) -> Resources | None:
    """The most that our jobs use of a cluster; None is all that it has."""
    if doc.cpu is None and doc.memory is None and doc.gpu is None:
        return None
    cpu = 0 if doc.cpu is None else read_cpu(doc.cpu, (*path, "cpu"), found) or 0
    size = 0 if doc.memory is None else read_memory(doc.memory, (*path, "memory"), found) or 0
    return Resources(cpu, size, doc.gpu or 0)
