"""Tests that every driver of an external cluster must pass, for authors of a kind of cluster.

`spillover.ports.driver` defines the contract. Inherit the suite and add a fixture `open_driver` that opens a driver.
All drivers of one test belong to the same cluster, as before and after a restart of the server:

    class TestDriver(DriverSuite):
        @pytest.fixture
        def open_driver(self, tmp_path):
            return lambda: MyKind().open(MyForm(), an_opening(tmp_path))

The tests need no pytest plugin. They run short shell commands.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from spillover.core.events import Lease, SeenNode
from spillover.core.proposals import Outcome
from spillover.model.ids import ClusterName, JobId, NodeName, job_id
from spillover.model.job import Shell, Work
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.driver import Driver, DriverLink, Made, Seen, Stage
from spillover.ports.kinds import Opening
from spillover.testing.builders import a_job

OpenDriver = Callable[[], Driver]
CLUSTER = ClusterName("lab")


class AlwaysLeads:
    """The term of a leader that no other server replaces."""

    epoch = 1

    def leads(self) -> bool:
        """See Lead."""
        return True


def an_opening(folder: Path) -> Opening:
    """Return what a server passes to a kind to open the cluster `lab`; `folder` is its data folder."""
    return Opening(CLUSTER, "owner-of-lab", AlwaysLeads(), folder)


class WatchedDriver:
    """A running driver and everything it reported, as a server would keep it."""

    def __init__(self, driver: Driver, patience: float) -> None:
        self.driver = driver
        self.nodes: dict[NodeName, SeenNode] = {}
        self.attempts: dict[Lease, Seen] = {}
        self.gone: set[Lease] = set()
        self.lists = 0
        """How many full lists the driver reported."""
        self._patience = patience
        self._news = asyncio.Event()

    def news(self) -> None:
        """Note that the driver has changes to take."""
        self._news.set()

    def look(self) -> None:
        """Take the changes."""
        changes = self.driver.take()
        if changes.whole:
            self.lists += 1
            self.nodes.clear()
            self.gone |= self.attempts.keys() - {each.lease for each in changes.attempts}
            self.attempts.clear()
        else:
            assert self.lists or changes == type(changes)(False), "changes were told before the first list"
        self.nodes |= {each.name: each for each in changes.nodes}
        for name in changes.gone_nodes:
            self.nodes.pop(name, None)
        self.attempts |= {each.lease: each for each in changes.attempts}
        self.gone -= {each.lease for each in changes.attempts}
        for lease in changes.gone:
            self.attempts.pop(lease, None)
            self.gone.add(lease)

    async def until(self, so: Callable[[], bool], what: str) -> None:
        """Take changes until a condition holds; fail if it never does, or if the driver did not announce the change."""
        ends = time.monotonic() + self._patience
        self.look()
        while not so():
            left = ends - time.monotonic()
            assert left > 0, f"the driver did not tell of {what}; it told of {self.attempts or 'nothing'}"
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()
            self.look()

    async def at_stage(self, lease: Lease, stage: Stage) -> Seen:
        """Wait until an attempt reaches a stage, and return it."""
        await self.until(
            lambda: lease in self.attempts and self.attempts[lease].stage is stage, f"{lease} {stage}"
        )
        return self.attempts[lease]


class DriverSuite:
    """The contract of `Driver`. Add a fixture `open_driver`, and override what differs for your kind."""

    patience: ClassVar[float] = 30.0
    """Seconds within which the cluster starts, stops and reports a short command."""
    survives: ClassVar[bool] = True
    """Whether attempts continue while no server runs."""
    resources: ClassVar[Resources] = Resources(100)
    """Resources that each attempt requests."""

    def work(self, line: str) -> Work:
        """Return work that runs a shell line. Override it if the cluster runs only containers."""
        return Shell(line)

    def a_start(self, line: str) -> Start:
        """Return a new attempt that runs a shell line."""
        job = job_id(secrets.randbits(60))
        spec = a_job(job).spec()
        shape = replace(spec.shape, resources=self.resources)
        return Start(Lease(JobId(job), 1, 1), replace(spec, work=self.work(line), shape=shape), CLUSTER)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a test; fail if it hangs."""

        async def bounded() -> None:
            async with asyncio.timeout(10 * self.patience):
                await story

        asyncio.run(bounded())

    @asynccontextmanager
    async def watching(self, driver: Driver) -> AsyncIterator[WatchedDriver]:
        """Run a driver, from its first full list on."""
        watched = WatchedDriver(driver, self.patience)
        running = asyncio.create_task(driver.run(watched.news))
        try:
            await watched.until(lambda: watched.lists > 0, "all that is there")
            yield watched
        finally:
            running.cancel()
            (end,) = await asyncio.gather(running, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), f"run ended before it was cancelled: {end!r}"

    async def made(self, driver: Driver, line: str) -> Lease:
        """Start an attempt and return its lease."""
        start = self.a_start(line)
        answer = await driver.start(start)
        assert answer.made is Made.MADE, answer
        return start.lease

    # --- the contract

    def test_it_lists_nodes_that_take_tasks_once_it_runs(self, open_driver: OpenDriver) -> None:
        """The server places nothing on a cluster before its first list."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                assert seen.driver.connection().link is DriverLink.UP
                ready = [node for node in seen.nodes.values() if node.ready and node.tasks]
                assert any(self.resources.fits(node.capacity) for node in ready)
                assert not list(await seen.driver.check())

        self.play(story())

    def test_an_attempt_ends_with_its_exit_code(self, open_driver: OpenDriver) -> None:
        """The driver also reports when and where it ran, and that it no longer uses anything."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                lease = await self.made(seen.driver, "exit 3")
                ended = await seen.at_stage(lease, Stage.ENDED)
                assert ended.ending is not None
                assert (ended.ending.outcome, ended.ending.exit_code) == (Outcome.EXITED, 3)
                assert ended.started is not None
                assert set(ended.nodes) <= seen.nodes.keys()
                assert not ended.uses

        self.play(story())

    def test_a_running_attempt_reports_its_resources_and_node(self, open_driver: OpenDriver) -> None:
        """Otherwise the server would count its resources as used by others."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                lease = await self.made(seen.driver, "sleep 60")
                running = await seen.at_stage(lease, Stage.RUNNING)
                assert running.started is not None
                ((node, uses),) = running.uses
                assert running.nodes == (node,)
                assert node in seen.nodes
                assert self.resources.fits(uses)
                await seen.driver.stop(lease, SECOND)

        self.play(story())

    def test_the_same_lease_is_made_once(self, open_driver: OpenDriver) -> None:
        """A server asks again if the answer was lost."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                start = self.a_start("echo once")
                for _ in range(2):
                    assert (await seen.driver.start(start)).made is Made.MADE
                ended = await seen.at_stage(start.lease, Stage.ENDED)
                assert (await seen.driver.start(start)).made is Made.MADE, "it is there, though it has ended"
                seen.look()
                again = seen.attempts[start.lease]
                assert (again.stage, again.started) == (Stage.ENDED, ended.started), "it was started again"
                assert await self.read(seen.driver, start.lease) == b"once\n"

        self.play(story())

    def test_a_stopped_attempt_is_gone_and_can_be_stopped_again(self, open_driver: OpenDriver) -> None:
        """Also if it ignores SIGTERM, and if it never existed."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                deaf = await self.made(seen.driver, "trap '' TERM; while :; do sleep 0.1; done")
                await seen.at_stage(deaf, Stage.RUNNING)
                await seen.driver.stop(deaf, SECOND // 10)
                await seen.until(lambda: deaf in seen.gone, f"the end of {deaf}")
                never = self.a_start("true").lease
                for lease in (deaf, never):
                    await seen.driver.stop(lease, 0)
                seen.look()
                assert not {deaf, never} & seen.attempts.keys()

        self.play(story())

    def test_an_ended_attempt_stays_until_it_is_deleted(self, open_driver: OpenDriver) -> None:
        """The server deletes it once its end is in the journal."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                lease = await self.made(seen.driver, "echo done")
                await seen.at_stage(lease, Stage.ENDED)
                assert await self.read(seen.driver, lease) == b"done\n"
                await seen.driver.stop(lease, 0)
                await seen.until(lambda: lease in seen.gone, f"the end of {lease}")
                with pytest.raises(OutputGone):
                    await self.read(seen.driver, lease)

        self.play(story())

    def test_output_is_read_from_a_byte_on_and_followed_to_its_end(self, open_driver: OpenDriver) -> None:
        """A reader that follows also gets later output; any other gets what exists now."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                lease = await self.made(seen.driver, "echo one; sleep 1; echo two")
                await seen.at_stage(lease, Stage.RUNNING)
                assert await self.read(seen.driver, lease, follow=True) == b"one\ntwo\n"
                await seen.at_stage(lease, Stage.ENDED)
                assert await self.read(seen.driver, lease, offset=4) == b"two\n"
                assert await self.read(seen.driver, lease, offset=8, follow=True) == b""

        self.play(story())

    def test_an_unknown_attempt_has_no_output(self, open_driver: OpenDriver) -> None:
        """An empty answer would look like a task that wrote nothing."""

        async def story() -> None:
            async with self.watching(open_driver()) as seen:
                with pytest.raises(OutputGone):
                    await self.read(seen.driver, self.a_start("true").lease)

        self.play(story())

    def test_a_driver_opened_again_lists_existing_attempts(self, open_driver: OpenDriver) -> None:
        """The server adopts attempts that continued; an attempt that is not listed must not run."""

        async def story() -> None:
            async with self.watching(open_driver()) as before:
                lease = await self.made(before.driver, "sleep 60")
                await before.at_stage(lease, Stage.RUNNING)
            async with self.watching(open_driver()) as after:
                if not self.survives:
                    assert lease not in after.attempts or after.attempts[lease].ending is not None
                    return
                again = await after.at_stage(lease, Stage.RUNNING)
                assert again.started == before.attempts[lease].started
                await after.driver.stop(lease, SECOND)
                await after.until(lambda: lease in after.gone, f"the end of {lease}")

        self.play(story())

    def test_a_driver_that_never_ran_can_be_closed(self, open_driver: OpenDriver) -> None:
        """As after the check of a cluster that a person wants to add."""

        async def story() -> None:
            driver = open_driver()
            assert driver.cluster == CLUSTER
            assert not list(await driver.check())
            await driver.close()

        self.play(story())

    async def read(self, driver: Driver, lease: Lease, *, offset: int = 0, follow: bool = False) -> bytes:
        """Return the output of an attempt."""
        async with aclosing(driver.output(lease, 0, offset, follow=follow)) as pieces:
            return b"".join([piece async for piece in pieces])
