"""Handles endpoints about clusters, agents, nodes, reserved capacity, and pools of rented machines."""

import msgspec

from spillover.api.http.routing import Request, serves
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire import endpoints
from spillover.wire.api import (
    AgentAction,
    AgentDetail,
    AgentNames,
    AgentsAddress,
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
    PoolRef,
    PoolView,
    ReservationRef,
    ReservationRequest,
    ReservationView,
    SweepRequest,
    SweepView,
)
from spillover.wire.parameters import AgentQuery, NodesQuery, NoParameters


@serves(endpoints.CLUSTERS)
async def clusters(request: Request[NoParameters, None]) -> list[ClusterView]:
    """List clusters."""
    return await request.commands.clusters()


@serves(endpoints.ADD_CLUSTER)
async def add_cluster(request: Request[NoParameters, ClusterRequest]) -> ClusterView:
    """Add a cluster."""
    return await request.commands.add_cluster(request.body, request.user)


@serves(endpoints.ACT_ON_CLUSTERS)
async def act_on_clusters(request: Request[NoParameters, ClusterAction]) -> ClusterNames:
    """Drain, resume or remove clusters."""
    return await request.commands.act_on_clusters(request.body, request.user)


@serves(endpoints.CONFIGURE)
async def configure(request: Request[NoParameters, ConfigRequest]) -> ConfigOutcome:
    """Read and apply the configuration again."""
    return await request.commands.configure(request.body, request.user)


@serves(endpoints.AGENTS)
async def agents(request: Request[NoParameters, None]) -> list[AgentView]:
    """List agents."""
    return await request.commands.agents()


@serves(endpoints.NODES)
async def nodes(request: Request[NodesQuery, None]) -> list[NodeView]:
    """List the nodes of external clusters."""
    return await request.commands.nodes(request.asked.cluster)


@serves(endpoints.SHOW_AGENT)
async def show_agent(request: Request[AgentQuery, None]) -> AgentDetail:
    """Show an agent."""
    return await request.commands.agent(request.asked.agent)


@serves(endpoints.ACT_ON_AGENTS)
async def act_on_agents(request: Request[NoParameters, AgentAction]) -> AgentNames:
    """Drain, resume or forget agents."""
    return await request.commands.act_on_agents(request.body, request.user)


@serves(endpoints.AGENTS_ADDRESS)
async def agents_address(request: Request[NoParameters, None]) -> AgentsAddress:
    """Return the address of the agents' service."""
    if request.services.address is None:
        raise CommandError(ErrorKind.UNAVAILABLE, "no agent can join now: the server cannot write its data")
    names = [cluster.name for cluster in await request.commands.clusters() if cluster.kind == "agents"]
    joined = [name for name in names if request.caller.cluster in {None, name}]
    only = joined[0] if len(joined) == 1 else None
    return msgspec.structs.replace(request.services.address, cluster=only, clusters=joined)


@serves(endpoints.RESERVATIONS)
async def reservations(request: Request[NoParameters, None]) -> list[ReservationView]:
    """List reserved capacity."""
    return await request.commands.reservations()


@serves(endpoints.RESERVE)
async def reserve(request: Request[NoParameters, ReservationRequest]) -> ReservationView:
    """Reserve nodes."""
    return await request.commands.reserve(request.body, request.user)


@serves(endpoints.UNRESERVE)
async def unreserve(request: Request[NoParameters, ReservationRef]) -> ReservationRef:
    """Cancel an advance reservation."""
    await request.commands.unreserve(request.body.name, request.user)
    return request.body


@serves(endpoints.POOLS)
async def pools(request: Request[NoParameters, None]) -> list[PoolView]:
    """List pools."""
    return await request.commands.pools()


@serves(endpoints.POOL_PLAN)
async def pool_plan(request: Request[NoParameters, None]) -> list[PlannedView]:
    """Show what pools would do now."""
    return await request.commands.pool_plan()


@serves(endpoints.PAUSE_POOL)
async def pause_pool(request: Request[NoParameters, PoolPause]) -> PoolView:
    """Pause a pool."""
    return await request.commands.pause_pool(request.body, request.user)


@serves(endpoints.RESUME_POOL)
async def resume_pool(request: Request[NoParameters, PoolRef]) -> PoolView:
    """Resume a pool."""
    return await request.commands.resume_pool(request.body.cluster, request.user)


@serves(endpoints.SWEEP_POOLS)
async def sweep_pools(request: Request[NoParameters, SweepRequest]) -> list[SweepView]:
    """Sweep pools."""
    return await request.commands.sweep_pools(request.body)
