"""What the commands of every module need: the parts of the server, and what the caller may do and see."""

import asyncio
from copy import copy
from typing import Final, Self

from msgspec import Struct, field

from spillover.control.agents.silence import silence_of
from spillover.control.controllers.delivering import Delivering
from spillover.control.controllers.sampling import Sampling
from spillover.control.driving.drivers import Drivers
from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.notifications.settings import Settings
from spillover.control.pools.controls import PoolControls
from spillover.control.requests.files import JobFiles
from spillover.control.requests.limits import Gauge
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.rights import AccessRules, Rights
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.starts import StartForecasts
from spillover.control.requests.submitting import Submitting
from spillover.control.requests.tokens import Tokens
from spillover.control.secrets.vault import Vault
from spillover.control.telemetry.exporting import Exporter
from spillover.control.views import jobs as views
from spillover.control.views.clusters import cluster_view
from spillover.control.views.output import OutputReading
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.ids import JobId
from spillover.model.reasons import Reason
from spillover.ports.archive import Archive
from spillover.ports.audit import Audit
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.cluster import Agents
from spillover.ports.commands import ClusterAdministration, PolicyFrontier
from spillover.ports.journal import Journal
from spillover.ports.outbox import Outbox
from spillover.wire.api import ClusterView, SetAsideView


class Parts(Struct, frozen=True):
    """What commands need."""

    loop: Loop
    journal: Journal
    archive: Archive
    agents: Agents
    specs: Specs
    lookup: Lookup
    submitting: Submitting
    currency: str = "USD"
    tokens: Tokens | None = None
    """None if the server does not store tokens."""
    files: JobFiles | None = None
    """None if the server does not store files."""
    gauge: Gauge | None = None
    """None if nothing is limited."""
    drivers: Drivers = field(default_factory=Drivers)
    """External clusters."""
    clusters: ClusterAdministration | None = None
    """Adds, drains and removes clusters; None if the server cannot change them."""
    pools: PoolControls = field(default_factory=PoolControls)
    """Open pools of rented machines."""
    access: AccessRules = field(default_factory=AccessRules)
    """Who may change whose jobs."""
    audit: Audit | None = None
    """What people did; None if the server does not keep it."""
    vault: Vault | None = None
    """None if the server does not store secrets."""
    outbox: Outbox | None = None
    """Notifications to send; None if the server sends none."""
    settings: Settings = field(default_factory=Settings)
    """Who is told of what."""
    delivering: Delivering | None = None
    """What sends notifications; None if nothing does."""
    sign_ins: SignIns | None = None
    """None if nobody can sign in."""
    sampling: Sampling | None = None
    """The last hours; None if nothing is sampled."""
    frontier: PolicyFrontier | None = None
    """Other waits for the last jobs; None if the server cannot simulate them."""
    exporter: Exporter | None = None
    """What sends traces; None if nothing does."""


MOST_SEARCHES: Final = 2
"""Searches for changes that would let a job start, at a time. Others wait for their turn."""


class CallerCommands:
    """The commands of one caller; a module for each subject adds those about it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = parts.loop
        self._lookup = parts.lookup
        self._reading = OutputReading(parts.loop, parts.lookup, parts.agents, parts.files, parts.drivers)
        self._submitting = parts.submitting
        self._starts = StartForecasts(parts.loop)
        self._searches = asyncio.Semaphore(MOST_SEARCHES)
        """Keeps pages that ask what would let jobs start from taking all of a core."""
        self._project: str | None = None
        """The only project that the caller may see; None means all."""
        self._caller = ADMIN
        self._rights = Rights(parts.access)

    def of(self, caller: Caller) -> Self:
        """Return the commands for a caller, who may be limited to a project."""
        if caller == self._caller:
            return self
        lookup = self._lookup.within(caller.project)
        limited = copy(self)
        limited._project = caller.project  # noqa: SLF001 - a copy of this object
        limited._caller = caller  # noqa: SLF001 - a copy of this object
        limited._rights = self._rights.of(caller)  # noqa: SLF001 - a copy of this object
        limited._lookup = lookup  # noqa: SLF001 - a copy of this object
        limited._reading = OutputReading(  # noqa: SLF001 - a copy of this object
            self._loop, lookup, self._parts.agents, self._parts.files, self._parts.drivers
        )
        limited._submitting = self._submitting.within(lookup)  # noqa: SLF001 - a copy of this object
        return limited

    def _clusters(self, state: State) -> list[ClusterView]:
        return [cluster_view(state, spec, self._problem(spec.name)) for spec in state.facts.clusters]

    def _place_reason(self, job: Job) -> Reason | None:
        """Return why a placed job does not start or stop, or why nothing is known about it; None if all is well."""
        return self._parts.drivers.reason_of(job) or silence_of(self._loop, self._parts.agents, job)

    def _problem(self, cluster: str) -> str | None:
        """Return why a cluster cannot be opened, or why its driver failed; None if all is well."""
        administration = self._parts.clusters
        found = None if administration is None else administration.problem(cluster)
        return found or self._parts.drivers.problem(cluster) or self._parts.pools.problem(cluster)

    def _set_aside(self, engine: Engine, project: str | None) -> list[SetAsideView]:
        """Return the work that is set aside; for a project, only that of its jobs."""
        found = views.set_aside_views(engine, self._loop.aside, self._loop.now(), self._loop.time.monotonic())
        jobs = engine.state.jobs
        return [
            each
            for each in found
            if project is None
            or ((job := jobs.get(JobId(each.subject))) is not None and job.kind.project == project)
        ]
