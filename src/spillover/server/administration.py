"""What people do to clusters and to the configuration while the server runs.

The configuration is the truth for clusters that it names. What was added by a command is journaled, and stays until it is removed, or until the
configuration names it too.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import structs

from spillover.config.clusters import Clusters, read_cluster
from spillover.config.config import Config
from spillover.control.loop import Loop
from spillover.control.policies import differences
from spillover.core.proposals import (
    AddCluster,
    Configure,
    DrainCluster,
    Proposal,
    Refusal,
    RemoveCluster,
    ResumeCluster,
    UpdateCluster,
)
from spillover.core.state import State
from spillover.forms.problems import BadForm, Findings, FormProblem, shown
from spillover.model.cluster import ClusterSpec, Leave
from spillover.model.ids import ClusterName
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.server.clusters import OpenClusters
from spillover.server.lives import ClusterLives
from spillover.wire.api import (
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ConfigChange,
    ConfigOutcome,
    ConfigRequest,
    FieldProblem,
)
from spillover.wire.configfile import LocalAgentsDoc

MOST_ENTRY: Final = 256 << 10
"""Characters of a cluster that is added: it is journaled as it was written."""
_LIVE: Final = frozenset({"clusters", "forms", "entries", "policies", "budgets", "ahead"})
"""What a configuration says that a running server can do otherwise; all else needs a restart."""


class ClusterAdministration:
    """See `ClusterDesk` of `ports/commands.py`."""

    def __init__(
        self,
        config: Config,
        loop: Loop,
        clusters: OpenClusters,
        lives: ClusterLives,
        reload: Callable[[], Config] | None,
    ) -> None:
        self._config = config
        """As it was read last."""
        self._loop = loop
        self._clusters = clusters
        self._lives = lives
        self._reload = reload
        """Reads the configuration again; None if there is none to be read."""

    def problem(self, cluster: str) -> str | None:
        """See ClusterDesk."""
        return self._lives.failed.get(ClusterName(cluster))

    async def add(self, request: ClusterRequest, who: str) -> None:
        """See ClusterDesk."""
        self._clusters.look_for_kinds()
        found = Findings()
        read = read_cluster(request.cluster, self._clusters.kinds, found)
        if read is None:
            raise _invalid(found.located())
        (spec,) = read.specs
        form = read.forms[spec.name]
        if len(read.entries[spec.name]) > MOST_ENTRY:
            found.add((), f"has more than {MOST_ENTRY // 1024} KiB; write fewer agents and shorter labels")
        self._check_agents(read, found)
        if found.found:
            raise _invalid(found.located())
        state = (await self._loop.read()).state
        if request.check and spec.name not in state.lives:
            lines = await self._clusters.try_out(spec.name, spec.kind, form)
            if lines:
                raise _invalid([FormProblem("", None, f"cluster {spec.name}", line) for line in lines])
        identity = self._clusters.identity if spec.external else ""
        await self._propose(AddCluster(spec, who, read.entries[spec.name], identity))

    def _check_agents(self, read: Clusters, found: Findings) -> None:
        """Note agents whose names others on this machine have: they would share a folder."""
        taken = {
            each.name: name
            for name, form in self._clusters.forms.items()
            if isinstance(form, LocalAgentsDoc)
            for each in form.local
        }
        for name, form in read.forms.items():
            for at, local in enumerate(form.local if isinstance(form, LocalAgentsDoc) else ()):
                if taken.get(local.name, name) != name:
                    told = f"{shown(local.name)} is the name of an agent of {taken[local.name]}; give this one another"
                    found.add(("local", at, "name"), told)

    async def act(self, action: ClusterAction, who: str) -> ClusterNames:
        """See ClusterDesk."""
        names = [ClusterName(name) for name in dict.fromkeys(action.clusters)]
        known = (await self._loop.read()).state.lives
        if strange := [name for name in names if name not in known]:
            there = ", ".join(known) or "none"
            raise CommandError(
                ErrorKind.UNKNOWN, f"there is no cluster {strange[0][:80]!r} here; known: {there}"
            )
        how = Leave(action.jobs)
        acts: dict[str, Callable[[ClusterName], Proposal]] = {
            "drain": lambda name: DrainCluster(name, who),
            "resume": lambda name: ResumeCluster(name, who),
            "remove": lambda name: RemoveCluster(name, who, how),
        }
        await self._propose(*[acts[action.act](name) for name in names])
        return ClusterNames([*names])

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """See ClusterDesk."""
        self._clusters.look_for_kinds()
        wanted = self._read()
        state = (await self._loop.read()).state
        changes, proposals = self._differences(state, wanted, Leave(request.jobs), who)
        if request.dry_run:
            return ConfigOutcome(changes, done=False)
        configured = {**self._lives.configured, **wanted.forms}
        before, self._lives.configured = self._lives.configured, configured
        try:
            if proposals:
                await self._propose(*proposals)
        except CommandError:
            self._lives.configured = before
            raise
        live: dict[str, Any] = {name: getattr(wanted, name) for name in _LIVE}
        self._config = structs.replace(self._config, **live)
        return ConfigOutcome(changes, done=True)

    def _read(self) -> Config:
        """The configuration as it is now."""
        if self._reload is None:
            raise CommandError(
                ErrorKind.CONFLICT, "this server was started without a configuration to read again"
            )
        try:
            return self._reload()
        except BadForm as bad:
            raise _invalid(bad.problems) from None
        except OSError as error:
            raise CommandError(
                ErrorKind.INVALID, f"cannot read the configuration: {error.strerror or error}"
            ) from None

    def _differences(
        self, state: State, wanted: Config, how: Leave, who: str
    ) -> tuple[list[ConfigChange], list[Proposal]]:
        """What another configuration changes, in words and as proposals; raises if it cannot be had without a restart."""
        changes: list[ConfigChange] = []
        proposals: list[Proposal] = []
        for spec in wanted.clusters:
            change, proposal = self._cluster(state, wanted, spec, who)
            if change is not None:
                changes.append(change)
            if proposal is not None:
                proposals.append(proposal)
        named = {spec.name for spec in wanted.clusters}
        for name, record in state.lives.items():
            if name in named:
                continue
            what = f"cluster {name}"
            if record.form:
                by = f"added by {record.who}" if record.leaving is None else "being removed"
                changes.append(
                    ConfigChange(what, "kept", f"{by}; the configuration does not name it, and it stays")
                )
                continue
            jobs = len(state.jobs_on(name))
            told = f"not named any more; {_JOBS[how]}" if jobs else "not named any more; nothing runs there"
            changes.append(ConfigChange(what, "removed", told))
            proposals.append(RemoveCluster(name, who, how, self._config.entries[name]))
        changes += [
            ConfigChange("policy", "changed", line)
            for line in differences(state.policies.configured, wanted.policies)
        ]
        if wanted.budgets != state.facts.budgets:
            told = f"{len(state.facts.budgets)} before, {len(wanted.budgets)} now"
            changes.append(ConfigChange("budgets", "changed", told))
        if wanted.ahead != state.facts.ahead:
            changes.append(
                ConfigChange("agents.ahead", "changed", "agents are given more or less work ahead of room")
            )
        proposals.append(Configure(who, wanted.policies, wanted.budgets, wanted.ahead))
        changes += [
            ConfigChange(
                name, "restart", "differs from what the server was started with; restart it to change that"
            )
            for name in structs.asdict(wanted)
            if name not in _LIVE and getattr(wanted, name) != getattr(self._config, name)
        ]
        return changes, proposals

    def _cluster(
        self, state: State, wanted: Config, spec: ClusterSpec, who: str
    ) -> tuple[ConfigChange | None, Proposal | None]:
        """What the configuration says otherwise of one cluster."""
        what, known = f"cluster {spec.name}", state.lives.get(spec.name)
        if known is None:
            told = f"of kind {spec.kind}, {spec.role}"
            identity = self._clusters.identity if spec.external else ""
            return ConfigChange(what, "added", told), AddCluster(spec, who, identity=identity)
        before = state.clusters[spec.name]
        if before.kind != spec.kind:
            told = f"is of kind {before.kind} and cannot become {spec.kind}; give the new one another name, or restart the server"
            raise CommandError(ErrorKind.CONFLICT, f"{what} {told}")
        form = wanted.forms[spec.name]
        says = [each for each in structs.asdict(spec) if getattr(spec, each) != getattr(before, each)]
        restated = self._clusters.forms.get(spec.name, form) != form
        if restated:
            says.append("how it is opened")
        if known.form:
            says.append(f"named here from now on, after {known.who or 'somebody'} added it")
        if not says:
            return None, None
        return ConfigChange(what, "changed", ", ".join(says)), UpdateCluster(spec, who, restated=restated)

    async def _propose(self, *proposals: Proposal) -> None:
        """Propose all; raises for the first that is refused."""
        for reply in await self._loop.propose(*proposals):
            if isinstance(reply, Refusal):
                raise refused(reply)


_JOBS: Final = {
    Leave.FINISH: "what runs there is finished first",
    Leave.MOVE: "what runs there goes back to the queue",
    Leave.CANCEL: "what runs there is cancelled",
}


def _invalid(problems: Sequence[FormProblem]) -> CommandError:
    first = str(problems[0]) if len(problems) == 1 else f"there are {len(problems)} problems"
    return CommandError(
        ErrorKind.INVALID, first, [FieldProblem(each.path, each.message) for each in problems]
    )
