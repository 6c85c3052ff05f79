"""Commands about clusters and what they consist of: agents, nodes, reserved capacity, and pools of rented machines."""

from typing import Final

from spillover.control.agents.administration import act_on_agents
from spillover.control.live.slices import slices
from spillover.control.requests.commands.base import CallerCommands, Parts
from spillover.control.requests.pools import change_pool, planned, shown_pools, swept
from spillover.control.requests.projects import pools_of
from spillover.control.requests.reservations import reservation_views
from spillover.control.requests.reserving import Reserving
from spillover.control.views.agents import agent_detail
from spillover.control.views.clusters import agent_views, cluster_view, node_keys, node_views
from spillover.core.pool_proposals import PausePool, ResumePool
from spillover.model.ids import ClusterName
from spillover.ports.commands import ClusterAdministration, CommandError, ErrorKind
from spillover.wire.api import (
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentView,
    ClusterAction,
    ClusterNames,
    ClusterRequest,
    ClusterView,
    ConfigOutcome,
    ConfigRequest,
    NodeView,
    PlannedView,
    PoolPause,
    PoolView,
    ReservationRequest,
    ReservationView,
    SweepRequest,
    SweepView,
)

AGENTS: Final = 500
"""Agents to convert before other work runs."""


class ClusterCommands(CallerCommands):
    """Shows and changes clusters, agents, reservations and pools."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._reserving = Reserving(parts.loop)

    async def clusters(self) -> list[ClusterView]:
        """Return all clusters."""
        return self._clusters((await self._loop.read()).state)

    async def add_cluster(self, request: ClusterRequest, who: str) -> ClusterView:
        """Add a cluster."""
        await self._administration.add(request, who)
        state = (await self._loop.read()).state
        return cluster_view(state, state.clusters[ClusterName(request.cluster["name"])])

    async def act_on_clusters(self, action: ClusterAction, who: str) -> ClusterNames:
        """Drain, resume or remove clusters."""
        return await self._administration.act(action, who)

    async def configure(self, request: ConfigRequest, who: str) -> ConfigOutcome:
        """Read the configuration again."""
        return await self._administration.configure(request, who)

    @property
    def _administration(self) -> ClusterAdministration:
        if self._parts.clusters is None:
            raise CommandError(ErrorKind.CONFLICT, "this server cannot change its clusters at runtime")
        return self._parts.clusters

    async def agent(self, name: str) -> AgentDetail:
        """Return one agent, by its name or as CLUSTER/NAME, with what runs there."""
        return agent_detail(
            self._loop, self._parts.agents, (await self._loop.read()).state, name, self._project
        )

    async def agents(self) -> list[AgentView]:
        """Return all agents."""
        shown: list[AgentView] = []
        async for keys in slices(list((await self._loop.read()).state.agents), AGENTS):
            state = (await self._loop.read()).state
            shown += agent_views(
                self._loop, self._parts.agents, state, [key for key in keys if key in state.agents]
            )
        return shown

    async def act_on_agents(self, action: AgentAction, who: str) -> AgentNames:
        """Drain, resume or forget agents."""
        return await act_on_agents(self._loop, action, who)

    async def nodes(self, cluster: str) -> list[NodeView]:
        """Return the nodes of an external cluster, or of all of them."""
        keys = node_keys((await self._loop.read()).state, cluster)
        shown: list[NodeView] = []
        async for some in slices(keys, AGENTS):
            shown += node_views((await self._loop.read()).state, some)
        return shown

    async def reservations(self) -> list[ReservationView]:
        """Return the capacity that is reserved, in the order of its start."""
        return await reservation_views(self._loop, self._project)

    async def reserve(self, request: ReservationRequest, who: str) -> ReservationView:
        """Reserve nodes for a project or for maintenance, or tell which would be reserved."""
        return await self._reserving.reserve(request, who)

    async def unreserve(self, name: str, who: str) -> None:
        """Cancel an advance reservation."""
        await self._reserving.cancel(name, who, self._project)

    async def pools(self) -> list[PoolView]:
        """Return all pools with their machines and offers."""
        return pools_of(await shown_pools(self._loop), self._loop.state, self._project)

    async def pool_plan(self) -> list[PlannedView]:
        """Return what pools would order, drain and end now."""
        return await planned(self._loop)

    async def pause_pool(self, request: PoolPause, who: str) -> PoolView:
        """Order no more machines in a pool, or end all of them; return the pool."""
        return await change_pool(
            self._loop, PausePool(ClusterName(request.cluster), who, request.why, request.end)
        )

    async def resume_pool(self, cluster: str, who: str) -> PoolView:
        """Order machines in a pool again; return the pool."""
        return await change_pool(self._loop, ResumePool(ClusterName(cluster), who))

    async def sweep_pools(self, request: SweepRequest) -> list[SweepView]:
        """Return what providers have that is ours and not wanted, and end it unless it is a dry run."""
        return await swept(self._loop, self._parts.pools, request)
