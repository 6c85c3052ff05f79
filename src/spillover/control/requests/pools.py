"""Commands of people about pools: show them, pause and resume them."""

from spillover.control.live.loop import Loop
from spillover.control.requests.whatif import on_snapshot
from spillover.control.views.pools import planned_views, pool_views
from spillover.core.pool_proposals import PausePool, ResumePool
from spillover.core.proposals import Refusal
from spillover.ports.commands import refused
from spillover.wire.api import PlannedView, PoolView


async def shown_pools(loop: Loop) -> list[PoolView]:
    """Return all pools with their machines and offers."""
    return pool_views((await loop.read()).state, loop.now())


async def planned(loop: Loop) -> list[PlannedView]:
    """Return what pools would order, drain and end now."""
    now = loop.now()
    return await on_snapshot(loop, lambda snapshot: planned_views(snapshot, now))


async def change_pool(loop: Loop, change: PausePool | ResumePool) -> PoolView:
    """Pause or resume a pool, and return it as it is then."""
    (reply,) = await loop.propose(change)
    if isinstance(reply, Refusal):
        raise refused(reply)
    return next(each for each in await shown_pools(loop) if each.cluster == change.cluster)
