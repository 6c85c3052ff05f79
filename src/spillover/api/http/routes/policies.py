"""Handles endpoints about the order of jobs: queues and policies."""

from spillover.api.http.routing import Request, serves
from spillover.wire import endpoints
from spillover.wire.api import (
    FrontierRequest,
    FrontierView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    QueueView,
)
from spillover.wire.parameters import NoParameters


@serves(endpoints.QUEUES)
async def queues(request: Request[NoParameters, None]) -> list[QueueView]:
    """List queues."""
    return await request.commands.queues()


@serves(endpoints.POLICY)
async def policy(request: Request[NoParameters, None]) -> PolicyView:
    """Show the current policies."""
    return await request.commands.policy()


@serves(endpoints.SET_POLICY)
async def set_policy(request: Request[NoParameters, PolicyPatch]) -> PolicyOutcome:
    """Change the policies."""
    return await request.commands.set_policy(request.body, request.user)


@serves(endpoints.POLICY_HISTORY)
async def policy_history(request: Request[NoParameters, None]) -> list[PolicyRecord]:
    """List earlier policies."""
    return await request.commands.policy_history()


@serves(endpoints.FRONTIER)
async def frontier(request: Request[NoParameters, None]) -> FrontierView:
    """Show what other waits would have cost and saved."""
    return await request.commands.frontier()


@serves(endpoints.COMPUTE_FRONTIER)
async def compute_frontier(request: Request[NoParameters, FrontierRequest]) -> FrontierView:
    """Begin to compute the frontier."""
    return await request.commands.compute_frontier(request.body)
