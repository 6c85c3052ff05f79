"""Makes an external cluster match the state, and reports what happens there to the core."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from spillover.control.driving.cases import DriverOrders
from spillover.control.driving.pilot import Pilot
from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent, ClusterChanged, Lease
from spillover.core.proposals import Proposal, Refusal, RefusalKind, Result, SeeNodes, Started, unusable
from spillover.core.records.jobs import Job, Placed
from spillover.model.backoff import reason_of
from spillover.model.units import SECOND
from spillover.ports.blobs import BlobError
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.commands import CommandError
from spillover.ports.driver import Answer, Driver, DriverError, DriverLink, Made, Manner
from spillover.ports.journal import StoreError

log = structlog.get_logger()

LINGER: Final = 0.02
"""Least seconds between two passes, so that one pass handles many changes."""
AGAIN: Final = 1.0
"""Seconds until the next pass while the cluster does not answer or the store cannot be written."""
CLEARED_WITHIN: Final = 30.0
"""Seconds to delete leftover objects on a removed cluster."""
AT_ONCE: Final = 32
"""Most concurrent calls to a cluster."""


class Driving:
    """Reconciles one external cluster."""

    def __init__(
        self,
        loop: Loop,
        driver: Driver,
        starts: Callable[[Sequence[Job]], Awaitable[list[Start]]],
        manner: Manner | None = None,
        keep: Callable[[Driver, Lease, int], Awaitable[str]] | None = None,
    ) -> None:
        self.driver = driver
        self.work = f"cluster {driver.cluster}"
        """Name of this work among what is set aside."""
        self._keep = keep
        """Saves the output of an attempt with so many tasks; None if output is not saved."""
        self._pilot = Pilot(driver.cluster, manner or Manner(), keep_output=keep is not None)
        self.ledger = self._pilot.ledger
        self._loop = loop
        self._starts = starts
        """Reads the specs of placed jobs."""
        self._news = asyncio.Event()
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._reads = asyncio.Semaphore(AT_ONCE)
        """Separate from calls, so that slow output does not delay starts and stops."""
        loop.listen(self._see)

    @property
    def failure(self) -> str | None:
        """Return why the driver or its reconciliation failed and is set aside; None if neither is."""
        return next((each.reason for each in self._loop.aside.of(self.work) if not each.subject), None)

    def retire(self) -> None:
        """Stop following events: the cluster is no longer configured."""
        self._loop.unlisten(self._see)
        for each in self._loop.aside.of(self.work):
            self._loop.aside.done(self.work, each.subject)

    async def clear(self) -> None:
        """Delete ended attempts that were left for inspection, as no server will delete them later."""
        left = self.ledger.leases()
        try:
            async with asyncio.timeout(CLEARED_WITHIN):
                await asyncio.gather(*[self._delete(lease) for lease in left])
        except (DriverError, TimeoutError) as error:
            log.warning(
                "cannot delete all leftover objects",
                cluster=self.driver.cluster,
                jobs=len(left),
                error=str(error),
            )

    async def _delete(self, lease: Lease) -> None:
        async with self._calls:
            await self.driver.stop(lease, 0)

    async def run(self) -> None:
        """Watch and act until cancelled."""
        await self._adopt()
        self.ledger.resume()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self.driver.run(self._news.set), name=f"watch {self.driver.cluster}")
            acted = False
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause() if acted else AGAIN):
                            await self._news.wait()
                    self._news.clear()
                    acted = await self._look(group)
                    await asyncio.sleep(LINGER)
            finally:
                watching.cancel()

    async def _adopt(self) -> None:
        """Take over the attempts in the state, as soon as they are durable."""
        while True:
            try:
                return self.ledger.adopt((await self._loop.read()).state)
            except CommandError:
                await asyncio.sleep(AGAIN)

    def _pause(self) -> float:
        """Return the seconds until the next pass if nothing happens."""
        if self.driver.connection().link is not DriverLink.UP:
            return AGAIN
        following = self.ledger.next_look()
        if following is None:
            return 60.0
        return max(0.0, (following - self._loop.time.monotonic()) / SECOND)

    async def _look(self, group: asyncio.TaskGroup) -> bool:
        """Propose what changed, then start and stop attempts; return False if nothing could be proposed."""
        monotonic = self._loop.time.monotonic()
        self._pilot.take(self.driver.take(), monotonic)
        if not self._loop.may_act():
            return False
        try:
            state = (await self._loop.read()).state
        except CommandError:
            return False
        orders = self._pilot.orders(state, self.driver.connection(), self._loop.now(), monotonic)
        self._set_aside(orders)
        try:
            if orders.proposals:
                await self._propose(orders.proposals)
        except CommandError as error:
            log.warning("cannot process a cluster's update", cluster=self.driver.cluster, error=error.message)
            self._pilot.undo(orders)
            return False
        for lease, grace in orders.stops:
            group.create_task(self._stop(lease, grace))
        for lease in orders.keeps:
            group.create_task(self._keep_output(lease))
        if orders.starts:
            await self._start(group, orders.starts)
        return True

    def _set_aside(self, orders: DriverOrders) -> None:
        """Set jobs aside that failed in this pass, and clear those that no longer fail."""
        aside, failed = self._loop.aside, dict(orders.failed)
        for each in aside.of(self.work):
            if each.subject not in failed and not aside.waits(self.work, each.subject):
                aside.done(self.work, each.subject)
        for job, error in failed.items():
            self.ledger.look_at(job, aside.put(self.work, job, error).next_try)

    async def _propose(self, proposals: Sequence[Proposal]) -> None:
        """Propose what the driver saw; if a proposal fails, propose it again without the bad part."""
        replies = await self._loop.propose(*proposals)
        for proposal, reply in zip(proposals, replies, strict=True):
            if not (isinstance(reply, Refusal) and reply.kind is RefusalKind.INTERNAL):
                continue
            error = RuntimeError(reply.message)
            match proposal:
                case Result():
                    await self._loop.propose(unusable(proposal, reply.message))
                case SeeNodes():
                    await self._propose_nodes(proposal)
                case Started(lease=lease):
                    failed = self._loop.aside.put(self.work, lease.job, error)
                    self.ledger.look_at(lease.job, failed.next_try)
                case _:
                    self._loop.aside.put(self.work, "", error)

    async def _propose_nodes(self, seen: SeeNodes) -> None:
        """Propose nodes one by one, then together without the bad ones."""
        replies = await self._loop.propose(*[SeeNodes(seen.cluster, (node,)) for node in seen.nodes])
        good = [
            node for node, reply in zip(seen.nodes, replies, strict=True) if not isinstance(reply, Refusal)
        ]
        for node in seen.nodes:
            if node not in good:
                log.error("ignoring a node that cannot be processed", cluster=seen.cluster, node=node.name)
        await self._loop.propose(SeeNodes(seen.cluster, tuple(good), seen.gone, seen.whole))

    async def _start(self, group: asyncio.TaskGroup, wanted: Sequence[Lease]) -> None:
        """Start attempts that the state still has on this cluster, a few at a time."""
        jobs = [
            job
            for lease in wanted
            if (job := self._loop.state.jobs.get(lease.job)) is not None
            and job.lease == lease
            and type(job.phase) is Placed
        ]
        leases = {job.lease: None for job in jobs}
        if others := [lease.job for lease in wanted if lease not in leases]:
            # Events that are not durable yet ruled them out. These may never be written, so look again.
            self.ledger.recheck(others)
            self._news.set()
        for lease in leases:
            self.ledger.asking(lease)
        try:
            starts = await self._starts(jobs)
        except StoreError as error:
            for lease in leases:
                self._answered(lease, Answer(Made.UNSENT, str(error)))
            return
        for start in starts:
            leases.pop(start.lease, None)
            group.create_task(self._ask_for(start))
        for lease in leases:
            self._answered(lease, Answer(Made.REFUSED, "its spec is missing from the store"))

    async def _ask_for(self, start: Start) -> None:
        async with self._calls:
            if not self._loop.may_act():
                answer = Answer(Made.UNSENT)
            else:
                try:
                    answer = await self.driver.start(start)
                except Exception as error:  # noqa: BLE001 - no error may affect other jobs
                    self._loop.aside.put(self.work, start.lease.job, error)
                    answer = Answer(Made.UNKNOWN, reason_of(error))
        self._answered(start.lease, answer)

    def _answered(self, lease: Lease, answer: Answer) -> None:
        self.ledger.answered(lease, answer, self._loop.now(), self._loop.time.monotonic())
        self._news.set()

    async def _stop(self, lease: Lease, grace: int) -> None:
        try:
            async with self._calls:
                if self._loop.may_act():
                    await self.driver.stop(lease, grace)
                else:
                    self.ledger.not_asked(lease)
                    self._news.set()
        except DriverError as error:
            log.warning(
                "cannot delete an attempt; will retry",
                cluster=self.driver.cluster,
                job=lease.job,
                error=str(error),
            )
            self.ledger.not_stopped(lease, self._loop.time.monotonic())
            self._news.set()
        except Exception as error:  # noqa: BLE001 - no error may affect other jobs
            failed = self._loop.aside.put(self.work, lease.job, error)
            self.ledger.not_stopped(lease, failed.next_try)
            self._news.set()

    async def _keep_output(self, lease: Lease) -> None:
        """Save the output of an attempt; the attempt ends even if that fails."""
        outputs = ""
        if self._keep is not None:
            async with self._reads:
                try:
                    job = self._loop.state.jobs.get(lease.job)
                    tasks = 1 if job is None else job.shape.tasks
                    outputs = await self._keep(self.driver, lease, tasks)
                except (OutputGone, BlobError, OSError) as error:
                    log.warning(
                        "cannot save output", cluster=self.driver.cluster, job=lease.job, error=str(error)
                    )
                except Exception:  # the attempt ended anyway
                    log.exception("cannot save output", cluster=self.driver.cluster, job=lease.job)
        self.ledger.kept(lease, outputs)
        self._news.set()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Take in durable events."""
        if self.ledger.note(events):
            self._news.set()
        for event in events:
            if type(event) is ClusterChanged and event.cluster == self.driver.cluster:
                log.info("a cluster changed", cluster=event.cluster, health=event.health, why=event.why)
                self._news.set()  # the next health depends on this one
