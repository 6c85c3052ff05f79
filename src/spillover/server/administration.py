"""Changes clusters and configuration while the server runs.

The configuration decides on clusters that it names. A cluster that a command added is journaled, and stays until it
is removed or until the configuration names it too.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import structs

from spillover.config.clusters import Clusters, read_cluster
from spillover.config.config import ClusterSource, Config
from spillover.control.live.loop import Loop
from spillover.control.notifications.settings import Settings
from spillover.control.requests.policies import differences
from spillover.control.requests.rights import AccessRules
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
from spillover.forms.problems import BadForm, Findings, FormProblem, path_text, shown
from spillover.model.cluster import ClusterSpec, Leave
from spillover.model.ids import ClusterName
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.server.clusters import OpenClusters, cluster_settings
from spillover.server.differences import budget_differences, cluster_differences, queue_differences
from spillover.server.lives import ClusterLives
from spillover.server.senders.files import problems_of
from spillover.wire.api import (
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ConfigChange,
    ConfigOutcome,
    ConfigRequest,
    FieldProblem,
)
from spillover.wire.clusterfile import LocalAgentsDoc

MOST_ENTRY: Final = 256 << 10
"""Most characters in the form of an added cluster, which is journaled as written."""
_LIVE: Final = frozenset(
    {
        "clusters",
        "forms",
        "providers",
        "entries",
        "clusters_from",
        "policies",
        "budgets",
        "queues",
        "ahead",
        "access",
        "notifications",
    }
)
"""Parts of the configuration that a running server can change; all others need a restart."""


class ServerAdministration:
    """Implements `ServerAdministration` of `ports/commands.py`."""

    def __init__(
        self,
        config: Config,
        loop: Loop,
        clusters: OpenClusters,
        lives: ClusterLives,
        reload: Callable[[], Config] | None,
        access: AccessRules,
        settings: Settings | None = None,
    ) -> None:
        self._config = config
        """The configuration as last read."""
        self._loop = loop
        self._clusters = clusters
        self._lives = lives
        self._reload = reload
        """Reads the configuration again; None if there is no file."""
        self._access = access
        self._settings = settings or Settings()
        """Who is told of what now."""

    def problem(self, cluster: str) -> str | None:
        """See ClusterAdministration."""
        return self._lives.failed.get(ClusterName(cluster))

    async def add(self, request: ClusterRequest, who: str) -> None:
        """See ClusterAdministration."""
        self._clusters.look_for_kinds()
        found = Findings()
        read = read_cluster(request.cluster, self._clusters.kinds, found)
        if read is None:
            raise _invalid(found.located())
        (spec,) = read.specs
        settings = cluster_settings(read)[spec.name]
        if len(read.entries[spec.name]) > MOST_ENTRY:
            found.add((), f"has more than {MOST_ENTRY // 1024} KiB; use fewer agents or shorter labels")
        self._check_agents(read, found)
        if found.found:
            raise _invalid(found.located())
        state = (await self._loop.read()).state
        if (known := state.lives.get(spec.name)) is not None and not known.form:
            told = f"cluster {spec.name!r} already exists; {_CHANGE[self._config.clusters_from]}"
            raise CommandError(ErrorKind.CONFLICT, told)
        if request.check and known is None:
            lines = await self._clusters.try_out(spec, settings)
            if lines:
                raise _invalid([FormProblem("", None, f"cluster {spec.name}", line) for line in lines])
        identity = self._clusters.identity if spec.external else ""
        await self._propose(AddCluster(spec, who, read.entries[spec.name], identity))

    def _check_agents(self, read: Clusters, found: Findings) -> None:
        """Report agents whose name another agent on this machine has, as they would share a folder."""
        taken = {
            each.name: name
            for name, settings in self._clusters.settings.items()
            if isinstance(settings.form, LocalAgentsDoc)
            for each in settings.form.local
        }
        for name, form in read.forms.items():
            for at, local in enumerate(form.local if isinstance(form, LocalAgentsDoc) else ()):
                if taken.get(local.name, name) != name:
                    told = f"{shown(local.name)} is the name of an agent of {taken[local.name]}; choose another name"
                    found.add(("local", at, "name"), told)

    async def act(self, action: ClusterAction, who: str) -> ClusterNames:
        """See ClusterAdministration."""
        names = [ClusterName(name) for name in dict.fromkeys(action.clusters)]
        known = (await self._loop.read()).state.lives
        if strange := [name for name in names if name not in known]:
            there = ", ".join(known) or "none"
            raise CommandError(
                ErrorKind.UNKNOWN, f"there is no cluster {strange[0][:80]!r}; known clusters: {there}"
            )
        fixed = [name for name in names if not known[name].form] if action.act == "remove" else []
        if fixed:
            raise CommandError(ErrorKind.CONFLICT, f"{fixed[0]!r} {_REMOVE[self._config.clusters_from]}")
        how = Leave(action.jobs)
        acts: dict[str, Callable[[ClusterName], Proposal]] = {
            "drain": lambda name: DrainCluster(name, who),
            "resume": lambda name: ResumeCluster(name, who),
            "remove": lambda name: RemoveCluster(name, who, how),
        }
        await self._propose(*[acts[action.act](name) for name in names])
        return ClusterNames([*names])

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """See ClusterAdministration."""
        self._clusters.look_for_kinds()
        wanted = self._read()
        state = (await self._loop.read()).state
        changes, proposals = self._differences(state, wanted, Leave(request.jobs), who)
        if request.dry_run:
            return ConfigOutcome(changes, done=False)
        configured = {**self._lives.configured, **cluster_settings(wanted)}
        before, self._lives.configured = self._lives.configured, configured
        try:
            if proposals:
                await self._propose(*proposals)
        except CommandError:
            self._lives.configured = before
            raise
        self._access.access = wanted.access
        self._settings.now = wanted.notifications
        live: dict[str, Any] = {name: getattr(wanted, name) for name in _LIVE}
        self._config = structs.replace(self._config, **live)
        return ConfigOutcome(changes, done=True)

    def _read(self) -> Config:
        """Read the configuration again; raise CommandError if it is not valid."""
        if self._reload is None:
            raise CommandError(ErrorKind.CONFLICT, "this server was started without a configuration file")
        try:
            read = self._reload()
        except BadForm as bad:
            raise _invalid(bad.problems, bad.more) from None
        except OSError as error:
            raise CommandError(
                ErrorKind.INVALID, f"cannot read the configuration: {error.strerror or error}"
            ) from None
        if wrong := problems_of(read.notifications):
            raise _invalid([FormProblem("", None, path_text(place), told) for place, told in wrong])
        return read

    def _differences(
        self, state: State, wanted: Config, how: Leave, who: str
    ) -> tuple[list[ConfigChange], list[Proposal]]:
        """Return what a configuration changes, in words and as proposals; raise CommandError if it needs a restart."""
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
                changes.append(ConfigChange(what, "kept", f"{by}; not in the configuration file, but kept"))
                continue
            jobs = len(state.jobs_on(name))
            told = (
                f"no longer in the configuration file; {_JOBS[how]}"
                if jobs
                else "no longer in the configuration file; nothing runs there"
            )
            changes.append(ConfigChange(what, "removed", told))
            proposals.append(RemoveCluster(name, who, how, self._config.entries[name]))
        changes += [
            ConfigChange("policy", "changed", line)
            for line in differences(state.policies.configured, wanted.policies)
        ]
        changes += budget_differences(state.facts.budgets, wanted.budgets)
        changes += queue_differences(state.facts.queues, wanted.queues)
        if wanted.ahead != state.facts.ahead:
            changes.append(ConfigChange("agents.ahead", "changed", "how much work agents prefetch"))
        if wanted.access != self._config.access:
            changes.append(
                ConfigChange("access", "changed", "who may change whose jobs, and how people sign in")
            )
        if wanted.notifications != self._config.notifications:
            changes.append(ConfigChange("notifications", "changed", "who is told of what, and how"))
        proposals.append(Configure(who, wanted.policies, wanted.budgets, wanted.ahead, wanted.queues))
        changes += [
            ConfigChange(name, "restart", "takes effect after a restart of the server")
            for name in structs.asdict(wanted)
            if name not in _LIVE and getattr(wanted, name) != getattr(self._config, name)
        ]
        return changes, proposals

    def _cluster(
        self, state: State, wanted: Config, spec: ClusterSpec, who: str
    ) -> tuple[ConfigChange | None, Proposal | None]:
        """Return what the configuration changes about one cluster."""
        what, known = f"cluster {spec.name}", state.lives.get(spec.name)
        if known is None:
            told = f"of kind {spec.kind}, {spec.role}"
            identity = self._clusters.identity if spec.external else ""
            return ConfigChange(what, "added", told), AddCluster(spec, who, identity=identity)
        before = state.clusters[spec.name]
        if before.kind != spec.kind:
            told = f"is of kind {before.kind} and cannot become {spec.kind}; give the new cluster another name, or restart the server"
            raise CommandError(ErrorKind.CONFLICT, f"{what} {told}")
        settings = cluster_settings(wanted)[spec.name]
        says = cluster_differences(before, spec)
        restated = self._clusters.settings.get(spec.name, settings) != settings
        if restated:
            says.append("connection settings")
        if known.form:
            added = f" ({known.who} added it)" if known.who else ""
            says.append(f"now managed by the configuration file{added}")
        if not says:
            return None, None
        return ConfigChange(what, "changed", "; ".join(says)), UpdateCluster(spec, who, restated=restated)

    async def _propose(self, *proposals: Proposal) -> None:
        """Propose all; raise CommandError for the first refusal."""
        for reply in await self._loop.propose(*proposals):
            if isinstance(reply, Refusal):
                raise refused(reply)


_JOBS: Final = {
    Leave.FINISH: "jobs there finish first",
    Leave.MOVE: "jobs there are requeued",
    Leave.CANCEL: "jobs there are cancelled",
}
_REMOVE: Final = {
    ClusterSource.FILE: "is in the configuration file; remove it there and run `spill config apply`, or drain it",
    ClusterSource.OPTIONS: "is on the command line of `spill up`; start the server without that --cluster, or drain it",
    ClusterSource.DEFAULT: "is the default cluster; name other clusters in the configuration file, or drain it",
}
_CHANGE: Final = {
    ClusterSource.FILE: "change it in the configuration file and run `spill config apply`",
    ClusterSource.OPTIONS: "start the server with another --cluster",
    ClusterSource.DEFAULT: "name clusters in the configuration file",
}


def _invalid(problems: Sequence[FormProblem], more: int = 0) -> CommandError:
    count = len(problems) + more
    first = str(problems[0]) if count == 1 else f"there are {count} problems"
    listed = [FieldProblem(each.path, each.message, each.source, each.line) for each in problems]
    if more:
        listed.append(FieldProblem("", f"and {more} more problem{'s' if more != 1 else ''}"))
    return CommandError(ErrorKind.INVALID, first, listed)
