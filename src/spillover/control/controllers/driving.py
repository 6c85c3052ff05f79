"""Has an external cluster do what the book says, and tells the core what is seen there."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from spillover.control.driving.ledger import DriverOrders
from spillover.control.driving.pilot import Pilot
from spillover.control.loop import Loop
from spillover.core.events import AnyEvent, ClusterChanged, Lease
from spillover.core.jobs import Job, Placed
from spillover.core.proposals import Proposal, Refusal, RefusalKind, Result, SeeNodes, Started, unusable
from spillover.model.backoff import reason_of
from spillover.model.units import SECOND
from spillover.ports.blobs import BlobError
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.commands import CommandError
from spillover.ports.driver import Answer, Driver, DriverError, DriverLink, Made, Manner
from spillover.ports.journal import StoreError

log = structlog.get_logger()

LINGER: Final = 0.02
"""Seconds between two looks at the least: what comes meanwhile is dealt with together."""
AGAIN: Final = 1.0
"""Seconds until another look while a cluster does not answer, or nothing can be written."""
CLEARED_WITHIN: Final = 30.0
"""Seconds that a cluster which was removed has to delete what is left there."""
AT_ONCE: Final = 32
"""Calls that a cluster is asked at a time."""


class Driving:
    """One cluster."""

    def __init__(
        self,
        loop: Loop,
        driver: Driver,
        starts: Callable[[Sequence[Job]], Awaitable[list[Start]]],
        manner: Manner | None = None,
        keep: Callable[[Driver, Lease], Awaitable[str]] | None = None,
    ) -> None:
        self.driver = driver
        self.work = f"cluster {driver.cluster}"
        """What is set aside of it is called so."""
        self._keep = keep
        """Keeps the output of an attempt; None if nobody wants it kept."""
        self._pilot = Pilot(driver.cluster, manner or Manner(), keep_output=keep is not None)
        self.ledger = self._pilot.ledger
        self._loop = loop
        self._starts = starts
        """What placed jobs run."""
        self._news = asyncio.Event()
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._reads = asyncio.Semaphore(AT_ONCE)
        """Apart, so that output that does not come keeps nothing from being started or stopped."""
        loop.listen(self._see)

    def retire(self) -> None:
        """Take in nothing more: the cluster is not one of ours any longer."""
        self._loop.unlisten(self._see)
        for each in self._loop.aside.of(self.work):
            self._loop.aside.done(self.work, each.subject)

    async def clear(self) -> None:
        """Delete what has ended and was left there for whoever wanted to look at it: nobody will later."""
        left = self.ledger.leases()
        try:
            async with asyncio.timeout(CLEARED_WITHIN):
                await asyncio.gather(*[self._delete(lease) for lease in left])
        except (DriverError, TimeoutError) as error:
            log.warning(
                "cannot delete all that is left",
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
        """Take over what is in the book, as soon as all of that is durable."""
        while True:
            try:
                return self.ledger.adopt((await self._loop.read()).state)
            except CommandError:
                await asyncio.sleep(AGAIN)

    def _pause(self) -> float:
        """Seconds after which to look although nothing happened."""
        if self.driver.connection().link is not DriverLink.UP:
            return AGAIN
        following = self.ledger.next_look()
        if following is None:
            return 60.0
        return max(0.0, (following - self._loop.time.monotonic()) / SECOND)

    async def _look(self, group: asyncio.TaskGroup) -> bool:
        """Say what is new, then ask for what is missing; False if nothing could be said, and so nothing was asked for."""
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
                await self._say(orders.proposals)
        except CommandError as error:
            log.warning(
                "cannot take in what is seen of a cluster", cluster=self.driver.cluster, error=error.message
            )
            self._pilot.unsaid(orders)
            return False
        for lease, grace in orders.stops:
            group.create_task(self._stop(lease, grace))
        for lease in orders.keeps:
            group.create_task(self._keep_output(lease))
        if orders.starts:
            await self._start(group, orders.starts)
        return True

    def _set_aside(self, orders: DriverOrders) -> None:
        """Look later at jobs of which it could not be told what to do, and forget of others that it could not."""
        aside, failed = self._loop.aside, dict(orders.failed)
        for each in aside.of(self.work):
            if each.subject not in failed and not aside.waits(self.work, each.subject):
                aside.done(self.work, each.subject)
        for job, error in failed.items():
            self.ledger.look_at(job, aside.put(self.work, job, error).next_try)

    async def _say(self, proposals: Sequence[Proposal]) -> None:
        """Propose what was seen. What cannot be decided is proposed again without what is wrong with it."""
        replies = await self._loop.propose(*proposals)
        for proposal, reply in zip(proposals, replies, strict=True):
            if not (isinstance(reply, Refusal) and reply.kind is RefusalKind.INTERNAL):
                continue
            error = RuntimeError(reply.message)
            match proposal:
                case Result():
                    await self._loop.propose(unusable(proposal, reply.message))
                case SeeNodes():
                    await self._say_nodes(proposal)
                case Started(lease=lease):
                    failed = self._loop.aside.put(self.work, lease.job, error)
                    self.ledger.look_at(lease.job, failed.next_try)
                case _:
                    self._loop.aside.put(self.work, "", error)

    async def _say_nodes(self, seen: SeeNodes) -> None:
        """Propose nodes one by one, then without those that cannot be taken in."""
        replies = await self._loop.propose(*[SeeNodes(seen.cluster, (node,)) for node in seen.nodes])
        good = [
            node for node, reply in zip(seen.nodes, replies, strict=True) if not isinstance(reply, Refusal)
        ]
        for node in seen.nodes:
            if node not in good:
                log.error("a node cannot be taken in, and is left out", cluster=seen.cluster, node=node.name)
        await self._loop.propose(SeeNodes(seen.cluster, tuple(good), seen.gone, seen.whole))

    async def _start(self, group: asyncio.TaskGroup, wanted: Sequence[Lease]) -> None:
        """Have attempts started that the book still has there, some at a time."""
        jobs = [
            job
            for lease in wanted
            if (job := self._loop.state.jobs.get(lease.job)) is not None
            and job.lease == lease
            and type(job.phase) is Placed
        ]
        leases = {job.lease: None for job in jobs}
        if others := [lease.job for lease in wanted if lease not in leases]:
            self.ledger.stir(others)  # what they were ahead of what is durable by may never have happened
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
            self._answered(lease, Answer(Made.REFUSED, "what it runs is missing from the store"))

    async def _ask_for(self, start: Start) -> None:
        async with self._calls:
            if not self._loop.may_act():
                answer = Answer(Made.UNSENT)
            else:
                try:
                    answer = await self.driver.start(start)
                except Exception as error:  # noqa: BLE001 - whatever it is, it costs this job alone
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
                "cannot delete an attempt; will try again",
                cluster=self.driver.cluster,
                job=lease.job,
                error=str(error),
            )
            self.ledger.not_stopped(lease, self._loop.time.monotonic())
            self._news.set()
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this job alone
            failed = self._loop.aside.put(self.work, lease.job, error)
            self.ledger.not_stopped(lease, failed.next_try)
            self._news.set()

    async def _keep_output(self, lease: Lease) -> None:
        """Keep what an attempt wrote; that it cannot be had is no reason not to say that it ended."""
        outputs = ""
        if self._keep is not None:
            async with self._reads:
                try:
                    outputs = await self._keep(self.driver, lease)
                except (OutputGone, BlobError, OSError) as error:
                    log.warning(
                        "cannot keep output", cluster=self.driver.cluster, job=lease.job, error=str(error)
                    )
                except Exception:  # it ended all the same
                    log.exception("cannot keep output", cluster=self.driver.cluster, job=lease.job)
        self.ledger.kept(lease, outputs)
        self._news.set()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Take in what has become durable."""
        if self.ledger.note(events):
            self._news.set()
        for event in events:
            if type(event) is ClusterChanged and event.cluster == self.driver.cluster:
                log.info("a cluster changed", cluster=event.cluster, health=event.health, why=event.why)
                self._news.set()  # what it is to become next follows from what it is
