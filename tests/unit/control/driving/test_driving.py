"""An external cluster, driven by a loop that cannot always write."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from spillover.control.controllers import driving as driving_module
from spillover.control.controllers.driving import Driving
from spillover.control.controllers.removed import RemovedClusters
from spillover.control.driving.drivers import Drivers
from spillover.control.driving.ledger import Ledger
from spillover.control.live import loop as loop_module
from spillover.control.live.set_aside import surviving
from spillover.control.views.clusters import cluster_view
from spillover.control.views.jobs import why_view
from spillover.core.events import JobState, Lease, SeenNode
from spillover.core.proposals import DRIVER, HandBack, Outcome, SetPolicies, StartEpoch
from spillover.core.records.jobs import Job
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NotStarting
from spillover.model.resources import Resources
from spillover.ports.cluster import Start
from spillover.ports.commands import CommandError
from spillover.ports.driver import Answer, Changes, Connection, Driver, DriverLink, Ending, Made, Seen, Stage
from spillover.testing.builders import a_job
from tests.support.live import Live, a_live_loop
from tests.support.waiting import turn, until

LAB = ClusterName("lab")
NEVER = PolicySet(wait=Choice("never"))
SPEC = ClusterSpec(LAB, "kubernetes", Role.OWNED, gangs=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(loop_module, "RETRY", 0.001)
    monkeypatch.setattr(driving_module, "AGAIN", 0.01)


class Plain:
    """A driver of a cluster of one node that makes whatever it is asked for."""

    cluster = LAB

    def __init__(self) -> None:
        node = SeenNode(NodeName("n1"), Resources(4000, 2**30), Resources())
        self._changes = Changes(True, (node,))
        self.started: list[Lease] = []
        self._news: Callable[[], None] = lambda: None

    async def run(self, news: Callable[[], None]) -> None:
        self._news = news
        news()
        await asyncio.Event().wait()

    def connection(self) -> Connection:
        return Connection(DriverLink.UP, 0)

    def take(self) -> Changes:
        changes, self._changes = self._changes, Changes(False)
        return changes

    def see(self, *attempts: Seen) -> None:
        """Have something seen."""
        self._changes = Changes(False, attempts=attempts)
        self._news()

    async def start(self, start: Start) -> Answer:
        self.started.append(start.lease)
        return Answer(Made.MADE)

    async def stop(self, lease: Lease, grace: int) -> None:
        raise NotImplementedError

    def output(self, lease: Lease, task: int, offset: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to let go of."""

    async def check(self) -> Sequence[str]:
        return ()


async def starts_of(jobs: Sequence[Job]) -> list[Start]:
    return [Start(job.lease, a_job(job.id).build().spec, LAB) for job in jobs]


@asynccontextmanager
async def running(*tasks: "asyncio.Task[None]") -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def unwritten(live: Live) -> "asyncio.Task[object]":
    """Have something decided that is not written."""
    live.journal.fault = "before"
    deciding = asyncio.create_task(live.loop.propose(SetPolicies(PolicySet(wait=Choice("zero")), "ada")))
    applied = live.loop.applied
    while live.loop.applied == applied:
        await turn()
    return deciding


async def test_a_server_that_cannot_write_as_it_begins_takes_over_what_is_there_later() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        deciding = await unwritten(live)
        driver = Plain()
        driving = asyncio.create_task(Driving(live.loop, driver, starts_of).run())
        giving_up = asyncio.create_task(RemovedClusters(live.loop).run())
        async with running(driving, giving_up):
            with pytest.raises(CommandError):
                await deciding
            live.journal.fault = None
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("one"))
            await until(lambda: driver.started, "its being asked for")
            assert not driving.done()
            assert not giving_up.done()


async def test_what_was_not_asked_for_because_of_something_that_never_happened_is_asked_for_later() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Plain()
        driving = Driving(live.loop, driver, starts_of)
        async with running(asyncio.create_task(driving.run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
        await live.submit(a_job("one"))
        lease = live.job("one").lease
        driving.ledger.orders(live.loop.state, live.loop.now(), 0)
        live.journal.fault = "before"
        returning = asyncio.create_task(live.loop.propose(HandBack(DRIVER, (lease,))))
        while live.job("one").lease == lease:
            await turn()
        async with asyncio.TaskGroup() as group:
            await driving._start(group, [lease])
        assert driver.started == []
        with pytest.raises(CommandError):
            await returning
        live.journal.fault = None
        await until(lambda: live.loop.problem is None, "its being able to write")
        assert (live.job("one").state, live.job("one").lease) == (JobState.PLACED, lease)
        assert driving.ledger.orders(live.loop.state, live.loop.now(), 0).starts == [lease]


async def test_output_that_does_not_come_keeps_nothing_from_being_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driving_module, "AT_ONCE", 1)
    kept = asyncio.Event()

    async def keep(_: Driver, lease: Lease, tasks: int) -> str:
        await kept.wait()
        return ""

    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Plain()
        driving = Driving(live.loop, driver, starts_of, keep=keep)
        async with running(asyncio.create_task(driving.run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("one"))
            await until(lambda: driver.started, "its being asked for")
            ending = Ending(Outcome.EXITED, 0, finished=live.loop.now())
            driver.see(Seen(driver.started[0], Stage.ENDED, started=live.loop.now(), ending=ending))
            await live.submit(a_job("two"))
            await until(lambda: len(driver.started) == 2, "another being asked for")
            kept.set()
            await until(lambda: live.job("one").state is JobState.SUCCEEDED, "the end of the first")


class Odd(Plain):
    """A driver that fails on some jobs for a reason that nobody foresaw."""

    def __init__(self, *bad: str) -> None:
        super().__init__()
        self.bad = set(bad)
        self.stopped: list[Lease] = []

    async def start(self, start: Start) -> Answer:
        if start.lease.job in self.bad:
            raise ZeroDivisionError
        return await super().start(start)

    async def stop(self, lease: Lease, grace: int) -> None:
        del grace
        if lease.job in self.bad:
            raise ZeroDivisionError
        self.stopped.append(lease)


async def test_a_job_that_a_driver_fails_on_is_set_aside_and_the_others_are_started() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Odd("bad")
        driving = asyncio.create_task(Driving(live.loop, driver, starts_of).run())
        async with running(driving):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("bad"), a_job("good"))
            await until(lambda: driver.started, "the other being asked for")
            assert [each.job for each in driver.started] == ["good"]
            await until(lambda: live.loop.aside, "its being set aside")
            (failed,) = live.loop.aside
            assert (failed.work, failed.subject) == ("cluster lab", "bad")
            driver.bad.clear()
            live.clock.pass_by(seconds=1)
            driver.see()
            await until(lambda: len(driver.started) == 2, "its being asked for again")
            live.clock.pass_by(seconds=1)
            driver.see()
            await until(lambda: not live.loop.aside, "its being forgotten")
            assert not driving.done()


async def test_a_job_of_which_nobody_can_tell_what_to_do_is_looked_at_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, bad = Ledger._ask, True

    def failing(self: Ledger, case: Any, orders: Any) -> None:
        if bad and case.job.id == "bad":
            raise ZeroDivisionError
        ask(self, case, orders)

    monkeypatch.setattr(Ledger, "_ask", failing)
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Odd()
        async with running(asyncio.create_task(Driving(live.loop, driver, starts_of).run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("bad"), a_job("good"))
            await until(lambda: driver.started, "the other being asked for")
            assert [each.subject for each in live.loop.aside] == ["bad"]
            bad = False
            live.clock.pass_by(seconds=1)
            driver.see()
            await until(lambda: len(driver.started) == 2, "its being asked for")


async def test_a_node_that_cannot_be_taken_in_costs_no_other() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Odd()
        nodes = [SeenNode(NodeName(name), Resources(4000, 2**30), Resources()) for name in ("n1", "n2", "n3")]
        nodes[1] = SeenNode(NodeName("n2"), Resources(2**70), Resources())
        driver._changes = Changes(True, tuple(nodes))
        async with running(asyncio.create_task(Driving(live.loop, driver, starts_of).run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await until(lambda: len(live.loop.state.nodes) == 2, "the others being known")
            assert list(live.loop.state.nodes) == ["lab/n1", "lab/n3"]


async def test_a_result_that_cannot_be_decided_ends_its_job() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Odd()
        async with running(asyncio.create_task(Driving(live.loop, driver, starts_of).run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("one"))
            await until(lambda: driver.started, "its being asked for")
            ending = Ending(Outcome.EXITED, 2**70, finished=live.loop.now())
            driver.see(Seen(driver.started[0], Stage.ENDED, started=live.loop.now(), ending=ending))
            await until(lambda: live.job("one").state is JobState.FAILED, "its end")


async def test_a_cluster_that_is_driven_again_after_a_failure_asks_again_for_what_it_was_asking_for() -> None:
    hang = asyncio.Event()

    class Slow(Odd):
        async def start(self, start: Start) -> Answer:
            if not hang.is_set():
                hang.set()
                await asyncio.Event().wait()
            return await super().start(start)

    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Slow()
        driving = Driving(live.loop, driver, starts_of)
        async with running(asyncio.create_task(driving.run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("one"))
            await hang.wait()
        async with running(asyncio.create_task(driving.run())):
            await until(lambda: driver.started, "its being asked for again")


class Broken(Plain):
    """A driver of which one method fails."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    async def run(self, news: Callable[[], None]) -> None:
        if self.what == "run":
            raise ValueError("no such host")
        await super().run(news)

    def take(self) -> Changes:
        if self.what == "take":
            raise ValueError("no such host")
        return super().take()

    async def start(self, start: Start) -> Answer:
        if self.what == "start":
            raise ValueError("no such host")
        return await super().start(start)


@pytest.mark.parametrize("what", ["run", "take"])
async def test_why_a_driver_failed_is_told_of_its_cluster_and_of_jobs_that_wait_for_it(what: str) -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        await live.submit(a_job("one"))
        driving = Driving(live.loop, Broken(what), starts_of)
        drivers = Drivers([driving])
        assert drivers.problem(LAB) is None
        work = surviving(driving.work, driving.run, live.loop.aside)
        async with running(asyncio.create_task(work)):
            await until(lambda: drivers.problem(LAB), "its failing")
            told = "its driver failed, and the server retries: ValueError: no such host"
            assert drivers.problem(LAB) == told
            view = why_view(live.loop.engine, live.job("one"), live.loop.now(), problem=drivers.problem)
            assert view.reason is not None
            assert view.reason.message == f"lab has not answered yet: {told}"
            assert view.clusters[0].reason == view.reason
            (listed,) = [cluster_view(live.loop.state, SPEC, drivers.problem(LAB))]
            assert (listed.state, listed.why) == ("PROVISIONING", told)
    assert drivers.problem("elsewhere") is None


async def test_why_a_driver_failed_to_start_a_job_is_told_of_the_job() -> None:
    async with a_live_loop(NEVER) as live:
        await live.loop.propose(StartEpoch(live.loop.epoch, (SPEC,), NEVER))
        driver = Broken("start")
        driving = Driving(live.loop, driver, starts_of)
        drivers = Drivers([driving])
        async with running(asyncio.create_task(driving.run())):
            await until(lambda: live.loop.state.health(LAB) is ClusterHealth.READY, "its being ready")
            await live.submit(a_job("one"))
            await until(lambda: drivers.reason_of(live.job("one")), "its being told")
            reason = drivers.reason_of(live.job("one"))
            assert isinstance(reason, NotStarting)
            assert (reason.what, reason.message) == ("unanswered", "ValueError: no such host")
            driver.what = ""
            live.clock.pass_by(seconds=10)
            driver.see()
            await until(lambda: driver.started, "its being asked for")
            await until(lambda: drivers.reason_of(live.job("one")) is None, "nothing more being wrong")
