"""Clusters as spill.yaml says them: agents of this machine, agents of others, and Kubernetes."""

import re
import shutil
from typing import Final

from msgspec import Struct

from spillover.config.config import Kubernetes, LocalAgent
from spillover.config.machine import cpus, memory
from spillover.config.prices import read_billing, read_price
from spillover.forms.problems import BadForm, Findings, Path, Problem, shown
from spillover.forms.quantities import MOST_CPU, check_name, duration, read_cpu, read_memory, read_words
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.wire.configfile import ClusterDoc, KubernetesDoc, LocalDoc, MostDoc

_BY_THEMSELVES: Final = ("container", "python")
"""What jobs need by the kind of their work, and agents offer where they can run it."""
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class Clusters(Struct, frozen=True):
    """All clusters of a server."""

    specs: tuple[ClusterSpec, ...]
    """In the order they are tried."""
    agents: tuple[LocalAgent, ...] = ()
    """Those to start on this machine."""
    kubernetes: tuple[Kubernetes, ...] = ()


def this_machine(slots: int | None) -> Clusters:
    """The cluster and the agent of a server that was told of none."""
    if slots is not None and not 0 < slots <= MOST_CPU // 1000:
        message = f"{slots} is not a number of CPUs; write 1 to {MOST_CPU // 1000}"
        raise BadForm([Problem("", None, "--slots", message)])
    name = ClusterName("local")
    capacity = Resources((slots or cpus()) * 1000, memory())
    agent = LocalAgent(name, NodeName("local-1"), capacity)
    return Clusters((ClusterSpec(name, "agents", Role.OWNED),), (agent,))


def read_clusters(docs: list[ClusterDoc], found: Findings) -> Clusters:
    """Clusters in their order, and what belongs to them."""
    if not docs:
        found.add(("clusters",), "is empty; write at least one cluster, or leave it out for this machine")
    specs: dict[str, ClusterSpec] = {}
    agents: dict[str, LocalAgent] = {}
    kubernetes: list[Kubernetes] = []
    for at, doc in enumerate(docs):
        path: Path = ("clusters", at)
        check_name(doc.name, (*path, "name"), found)
        if doc.name in specs:
            found.add((*path, "name"), f"{shown(doc.name)} is the name of another cluster too")
        specs[doc.name] = _spec(doc, path, found)
        for index, local in enumerate(doc.local):
            place = (*path, "local", index)
            if local.name in agents:
                found.add((*place, "name"), f"{shown(local.name)} is the name of another agent too")
            agents[local.name] = _local(local, ClusterName(doc.name), place, found)
        if doc.kind == "kubernetes":
            kubernetes.append(_kubernetes(doc, path, found))
        elif doc.kubernetes is not None:
            found.add(
                (*path, "kubernetes"), "is of a cluster of agents; leave it out, or write kind: kubernetes"
            )
    return Clusters(tuple(specs.values()), tuple(agents.values()), tuple(kubernetes))


def _spec(doc: ClusterDoc, path: Path, found: Findings) -> ClusterSpec:
    """A cluster as deciding sees it."""
    others = doc.kind != "agents"
    runs = None
    if others:
        runs = ("command",) if doc.kubernetes is not None and doc.kubernetes.image is not None else ()
    return ClusterSpec(
        ClusterName(doc.name),
        doc.kind,
        Role(doc.role),
        read_price(doc.price, Role(doc.role), (*path, "price"), found),
        read_billing(doc.billing, (*path, "billing"), found),
        gangs=others,
        startup=duration(doc.startup, (*path, "startup"), found, most=DAY) or 0,
        region=doc.region,
        labels=doc.labels,
        runs=runs,
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


def _kubernetes(doc: ClusterDoc, path: Path, found: Findings) -> Kubernetes:
    """How a Kubernetes cluster is reached."""
    if doc.local:
        found.add(
            (*path, "local"), "names agents of a Kubernetes cluster, which has nodes of its own; leave it out"
        )
    said, place = doc.kubernetes or KubernetesDoc(), (*path, "kubernetes")
    if said.in_cluster and (said.kubeconfig is not None or said.context is not None):
        found.add((*place, "in_cluster"), "cannot stand beside kubeconfig or context; leave one of them out")
    if said.namespace is not None and _NAMESPACE.fullmatch(said.namespace) is None:
        found.add((*place, "namespace"), f"{shown(said.namespace)} is not the name of a namespace")
    times = {
        name: duration(getattr(said, name), (*place, name), found, least=SECOND // 10, most=31 * DAY) or 0
        for name in ("bind_within", "start_within", "shun_for", "failed_after")
    }
    return Kubernetes(
        ClusterName(doc.name),
        said.kubeconfig,
        said.context,
        said.in_cluster,
        said.namespace,
        said.image,
        keep=duration(said.keep, (*place, "keep"), found, most=31 * DAY) or 0,
        **times,
    )


def _local(doc: LocalDoc, cluster: ClusterName, path: Path, found: Findings) -> LocalAgent:
    """One agent of this machine."""
    check_name(doc.name, (*path, "name"), found)
    cpu = read_cpu(doc.cpu, (*path, "cpu"), found) or 0
    size = memory() if doc.memory is None else read_memory(doc.memory, (*path, "memory"), found) or 0
    offers = read_words(doc.offers, (*path, "offers"), found)
    for at, word in enumerate(doc.offers):
        if word in _BY_THEMSELVES:
            message = f"an agent that can run {word} jobs offers that by itself; leave out {shown(word)}"
            found.add((*path, "offers", at), message)
    if doc.engine is not None and ("\0" in doc.engine or shutil.which(doc.engine) is None):
        found.add((*path, "engine"), f"there is no program {shown(doc.engine)} here")
    for at, word in enumerate(doc.engine_options):
        if not word or "\0" in word:
            found.add((*path, "engine_options", at), f"{shown(word)} is no option of an engine")
    return LocalAgent(
        cluster,
        NodeName(doc.name),
        Resources(cpu, size, doc.gpu),
        doc.queue,
        offers,
        doc.labels,
        doc.engine,
        tuple(doc.engine_options),
    )
