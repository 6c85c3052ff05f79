"""The cluster kind `agents`: machines that run our agent, started by the server or by people."""

import os
import shutil
from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from spillover.clusters.agents.local import LocalAgents, LocalSpec
from spillover.clusters.agents.machine import memory
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, read_cpu, read_memory, read_words
from spillover.model.admission import CONTAINER_CALLS
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.ports.kinds import AgentHost, Capability, ClusterKind, Flaw, Opening
from spillover.wire.clusterfile import LocalAgentsDoc, LocalDoc

_BY_THEMSELVES: Final = ("container", CONTAINER_CALLS, "python")
"""Offers that agents add themselves where they can run that work; jobs need them by their kind of work."""


class AgentsKind(ClusterKind):
    """The kind `agents`."""

    name: ClassVar[str] = "agents"
    form: ClassVar[type[Struct]] = LocalAgentsDoc
    section: ClassVar[str | None] = None

    def capabilities(self, form: LocalAgentsDoc) -> frozenset[Capability]:
        """Return all capabilities."""
        del form
        return frozenset(Capability)

    def check(self, form: LocalAgentsDoc, cluster: ClusterName) -> Sequence[Flaw]:
        """Return the problems of the local agents."""
        found = Findings()
        local_specs(form, cluster, found)
        return [Flaw(path, message) for path, message in found.found]

    def open(self, form: LocalAgentsDoc, opening: Opening) -> AgentHost:
        """Return the host of the local agents."""
        specs = local_specs(form, opening.cluster, Findings(), opening.agent_options)
        return LocalAgents(opening.data, specs, opening.umask, opening.files)


def local_specs(
    form: LocalAgentsDoc, cluster: ClusterName, found: Findings, options: Sequence[str] = ()
) -> tuple[LocalSpec, ...]:
    """Read the local agents of a form, with further options for their command lines; add problems to `found`."""
    # Several agents on one machine would give away the same cores.
    sockets = "auto" if len(form.local) == 1 else "0"
    return tuple(
        [
            _local(each, cluster, ("local", at), found, (options, _inside_of(each, sockets, at, found)))
            for at, each in enumerate(form.local)
        ]
    )


def _inside_of(doc: LocalDoc, sockets: str, at: int, found: Findings) -> tuple[str, ...]:
    """Return options for the sockets of an agent."""
    given = sockets if doc.sockets is None else str(doc.sockets)
    if doc.gpu_link is None:
        return ("--sockets", given)
    check_name(doc.gpu_link, ("local", at, "gpu_link"), found)
    if not given.isdigit() or given == "0":
        found.add(("local", at, "gpu_link"), "needs a number of `sockets`; write sockets: 1 or more")
    return ("--sockets", given, "--gpu-link", doc.gpu_link)


def _local(
    doc: LocalDoc,
    cluster: ClusterName,
    path: Path,
    found: Findings,
    options: tuple[Sequence[str], Sequence[str]],
) -> LocalSpec:
    """Read one local agent."""
    check_name(doc.name, (*path, "name"), found)
    cpu = read_cpu(doc.cpu, (*path, "cpu"), found) or 0
    size = memory() if doc.memory is None else read_memory(doc.memory, (*path, "memory"), found) or 0
    offers = read_words(doc.offers, (*path, "offers"), found)
    for at, word in enumerate(doc.offers):
        if word in _BY_THEMSELVES:
            message = f"agents that can run {word} jobs offer this automatically; remove {shown(word)}"
            found.add((*path, "offers", at), message)
    if doc.engine is not None and ("\0" in doc.engine or shutil.which(doc.engine) is None):
        found.add((*path, "engine"), f"there is no program {shown(doc.engine)}")
    for at, word in enumerate(doc.engine_options):
        if not word or "\0" in word:
            found.add((*path, "engine_options", at), f"{shown(word)} is not an option of a container engine")
    for name, place in doc.environments.items():
        check_name(name, (*path, "environments", name), found)
        if "\0" in place or not os.path.exists(place):  # noqa: PTH110 - it takes any text
            found.add(
                (*path, "environments", name),
                f"there is no {shown(place)}; make it with `python3 -m venv`, or name an interpreter",
            )
    engine = () if doc.engine is None else ("--engine", doc.engine)
    first, last = options
    named = [f"--environment={name}={place}" for name, place in doc.environments.items()]
    words = (*first, *engine, *[f"--engine-option={option}" for option in doc.engine_options], *named, *last)
    capacity = Resources(cpu, size, doc.gpu)
    return LocalSpec(cluster, NodeName(doc.name), capacity, doc.queue, offers, doc.labels, words)
