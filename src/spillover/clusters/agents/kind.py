"""The cluster kind `agents`: machines that run our agent, started by the server or by people."""

import shutil
from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from spillover.clusters.agents.local import LocalAgents, LocalSpec
from spillover.clusters.agents.machine import memory
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, read_cpu, read_memory, read_words
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.ports.kinds import AgentHost, Capability, ClusterKind, Flaw, Opening
from spillover.wire.configfile import LocalAgentsDoc, LocalDoc

_BY_THEMSELVES: Final = ("container", "python")
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
    return tuple([_local(each, cluster, ("local", at), found, options) for at, each in enumerate(form.local)])


def _local(
    doc: LocalDoc, cluster: ClusterName, path: Path, found: Findings, options: Sequence[str]
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
    engine = () if doc.engine is None else ("--engine", doc.engine)
    words = (*options, *engine, *[f"--engine-option={option}" for option in doc.engine_options])
    capacity = Resources(cpu, size, doc.gpu)
    return LocalSpec(cluster, NodeName(doc.name), capacity, doc.queue, offers, doc.labels, words)
