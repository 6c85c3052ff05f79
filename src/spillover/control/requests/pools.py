"""Commands of people about pools: show them, pause and resume them, and look for machines that nothing wants."""

import asyncio
from typing import Final

from spillover.control.live.loop import Loop
from spillover.control.pools.controls import PoolControls
from spillover.control.requests.whatif import on_snapshot
from spillover.control.views.pools import planned_views, pool_views, swept_machines
from spillover.core.pool_proposals import PausePool, ResumePool
from spillover.core.proposals import Refusal
from spillover.model.ids import ClusterName
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.ports.provider import ProviderError
from spillover.wire.api import PlannedView, PoolView, SweepRequest, SweepView

LONGEST_SWEEP: Final = 60.0
"""Seconds for a provider to list its machines, while somebody waits for the answer."""


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


async def swept(loop: Loop, controls: PoolControls, request: SweepRequest) -> list[SweepView]:
    """Return what providers have that is ours and not wanted; unless it is a dry run, it ends as a sweep confirms it."""
    state = (await loop.read()).state
    pools = [spec.name for spec in state.facts.clusters if spec.pool is not None]
    for name in request.clusters:
        if name not in pools:
            told = f"there is no pool {name!r}; clusters with a pool: {', '.join(pools) or 'none'}"
            raise CommandError(ErrorKind.UNKNOWN, told)
    chosen = [each for each in pools if not request.clusters or each in request.clusters]
    return await asyncio.gather(*[_sweep(loop, controls, each, dry_run=request.dry_run) for each in chosen])


async def _sweep(loop: Loop, controls: PoolControls, cluster: ClusterName, *, dry_run: bool) -> SweepView:
    """Sweep one pool. A provider that fails is a problem of its own pool."""
    try:
        async with asyncio.timeout(LONGEST_SWEEP):
            found = await controls.sweep(cluster, dry_run=dry_run)
    except TimeoutError:
        return SweepView(cluster, [], f"its provider did not answer within {LONGEST_SWEEP:.0f} s")
    except ProviderError as error:
        return SweepView(cluster, [], f"its provider cannot list machines: {error}")
    if found is None:
        return SweepView(cluster, [], "it is not open; the log of the server says why")
    state = (await loop.read()).state
    problem = f"the listing is not whole: {found.partial}" if found.partial else None
    return SweepView(cluster, swept_machines(state, cluster, found), problem)
