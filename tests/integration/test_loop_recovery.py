"""The live loop when its journal fails: what was decided on a state that is given up is never acknowledged."""

import asyncio

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests
from spillover.control.live import loop as loop_module
from spillover.control.live.gate import Gate
from spillover.control.live.leader import Leader
from spillover.core.events import ClockJumped, JobSubmitted
from spillover.core.proposals import Submitted
from spillover.deciding.engine import Engine
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import FOREVER, MINUTE, SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.election import Holder
from spillover.ports.journal import Batch, Loaded, Unreadable, Unwritable
from spillover.testing.builders import a_job
from tests.support.live import Hands, Live, Told, a_live_loop
from tests.support.waiting import until

POLICIES = PolicySet(wait=Choice("constant", {"wait": 10 * MINUTE}))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(loop_module, "RETRY", 0.001)


async def writable(live: Live) -> None:
    """Return once changes are accepted again."""
    async with asyncio.timeout(5):
        with live.loop.subscribers.to_all() as news:
            while live.loop.problem is not None:
                await news.wait()


async def refused(live: Live, name: str, key: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        await live.submit(a_job(name).key(key))
    return caught.value


async def test_what_could_not_be_written_is_refused_and_reading_goes_on() -> None:
    async with a_live_loop(POLICIES) as live:
        await live.submit(a_job("kept").key("kept"))
        live.journal.fault = "before"
        error = await refused(live, "lost", "key")
        assert error.kind is ErrorKind.UNAVAILABLE
        assert "the disk is full" in error.message
        assert "the same key" in error.message
        async with asyncio.timeout(5):
            assert list((await live.loop.read()).state.jobs) == ["kept"]
        assert "the disk is full" in (await refused(live, "lost", "key")).message
        live.journal.fault = None
        await writable(live)
        assert await live.submit(a_job("again").key("key")) == Submitted((JobId("again"),))
        submitted = [event.job for event in live.heard if isinstance(event, JobSubmitted)]
        assert submitted == ["kept", "again"]


async def test_who_reads_while_the_store_can_be_neither_written_nor_read_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable() -> Loaded:
        raise Unreadable("the connection is lost")

    async with a_live_loop(POLICIES) as live:
        await live.submit(a_job("kept").key("kept"))
        live.journal.fault = "before"
        with monkeypatch.context() as away:
            away.setattr(live.journal, "load", unreadable, raising=False)
            await refused(live, "lost", "key")
            for _ in range(3):
                with pytest.raises(CommandError, match="the connection is lost") as caught:
                    async with asyncio.timeout(5):
                        await live.loop.read()
                assert caught.value.kind is ErrorKind.UNAVAILABLE
        live.journal.fault = None
        await writable(live)
        async with asyncio.timeout(5):
            assert list((await live.loop.read()).state.jobs) == ["kept"]


async def test_what_was_written_although_nobody_could_tell_is_found_under_its_key() -> None:
    async with a_live_loop(POLICIES) as live:
        live.journal.fault = "after"
        error = await refused(live, "taken", "key")
        assert error.kind is ErrorKind.UNAVAILABLE
        tries = live.journal.tries  # which go on, each written although it is told to have failed
        await until(lambda: live.journal.tries >= tries + 2, "another try", every=0.001)
        live.journal.fault = None
        await writable(live)
        assert await live.submit(a_job("again").key("key")) == Submitted((JobId("taken"),))
        assert [event.job for event in live.heard if isinstance(event, JobSubmitted)] == ["taken"]
        stored = [each async for each in live.journal.tail(0)]
        assert len(stored) == live.loop.applied == live.loop.gate.durable == len(live.heard)


async def test_time_in_which_nothing_could_be_written_is_no_waiting() -> None:
    async with a_live_loop(POLICIES) as live:
        await live.agent("cloud", cpus=4)
        await live.submit(a_job("waits"))
        live.journal.fault = "before"
        await refused(live, "lost", "key")
        live.clock.pass_by(seconds=3600)
        live.journal.fault = None
        await writable(live)
        await live.look()
        assert live.where("waits") is None
        assert sum(event.by for event in live.heard if isinstance(event, ClockJumped)) == 3600 * SECOND
        live.clock.pass_by(seconds=601)
        await live.look()
        assert live.where("waits") == "cloud"


async def test_time_away_counts_once_if_the_loop_is_held_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_live_loop(POLICIES) as live:
        append = live.journal.append

        async def held_meanwhile(after: int, batch: Batch, epoch: int) -> int:
            revision = await append(after, batch, epoch)
            live.loop.hold("leadership was not renewed in time")
            return revision

        live.journal.fault = "before"
        await refused(live, "lost", "key")
        live.clock.pass_by(seconds=3600)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(live.journal, "append", held_meanwhile)
            live.journal.fault = None
            with live.loop.subscribers.to_all() as news:
                async with asyncio.timeout(5):
                    await news.wait()
        live.clock.pass_by(seconds=60)
        live.loop.led_until(FOREVER)
        await writable(live)
        away = [event.by for event in live.heard if isinstance(event, ClockJumped)]
        assert away == [3600 * SECOND, 60 * SECOND]


async def test_what_is_due_while_nothing_can_be_written_is_not_asked_for_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0
    next_time = Engine.next_time

    def counted(engine: Engine) -> int:
        nonlocal asked
        asked += 1
        return next_time(engine)

    monkeypatch.setattr(loop_module, "LONGEST_WAIT", 0.001)
    async with a_live_loop(POLICIES) as live:
        await live.agent("cloud", cpus=4)
        await live.submit(a_job("waits"))
        live.journal.fault = "before"
        await refused(live, "lost", "key")
        live.clock.pass_by(seconds=3600)
        monkeypatch.setattr(Engine, "next_time", counted)
        tries = live.journal.tries
        await until(lambda: live.journal.tries >= tries + 20, "twenty more tries", every=0.001)
        assert asked <= 2
        live.journal.fault = None
        await writable(live)
        await live.submit(a_job("again").key("key"))


async def test_a_fenced_append_ends_the_lead() -> None:
    async with a_live_loop(POLICIES) as live:
        live.journal.fault = "fenced"
        with pytest.raises(CommandError, match="another server leads"):
            await live.submit(a_job("late"))
        assert live.loop.lost_lead.is_set()
        assert (await refused(live, "later", "key")).kind is ErrorKind.NOT_LEADER
        assert not [event for event in live.heard if isinstance(event, JobSubmitted)]


async def test_who_reads_what_is_not_durable_once_the_lead_is_lost_is_told_so() -> None:
    async with a_live_loop(POLICIES) as live:
        live.journal.fault = "fenced"
        with pytest.raises(CommandError, match="another server leads"):
            await live.submit(a_job("late"))
        with pytest.raises(CommandError, match="another server leads") as caught:
            async with asyncio.timeout(5):
                await live.loop.read()
        assert caught.value.kind is ErrorKind.NOT_LEADER


async def test_a_loop_that_is_held_answers_no_agent_and_goes_on_where_it_was() -> None:
    async with a_live_loop(POLICIES) as live:
        requests = AgentRequests(live.loop, Hub(), 0)
        await live.agent("cloud", cpus=4)
        await live.submit(a_job("waits"))
        live.loop.hold("the store does not answer")
        assert "the store does not answer" in (await refused(live, "other", "key")).message
        with pytest.raises(CommandError, match="the store does not answer"):
            await requests.heartbeat(1)
        live.clock.pass_by(seconds=3600)
        async with asyncio.timeout(5):
            assert list((await live.loop.read()).state.jobs) == ["waits"]
        live.loop.led_until(FOREVER)
        await writable(live)
        await live.look()
        assert live.where("waits") is None, "time in which nothing could be decided is no waiting"
        assert await live.submit(a_job("other").key("key")) == Submitted((JobId("other"),))


async def test_an_answer_that_rests_on_a_dropped_state_is_never_given() -> None:
    gate, answer = Gate(3), asyncio.get_running_loop().create_future()
    gate.answer(4, answer, "taken")
    gate.drop(Gate.dropped("the disk is full"))
    gate.open(4)  # by other events of that number
    with pytest.raises(CommandError, match="the disk is full"):
        await answer


class Silent:
    """An election whose store fails for a while."""

    term = 0.04

    def __init__(self, clock: Hands) -> None:
        self._clock = clock
        self.fails = False
        self.ours = True

    async def renew(self, epoch: int) -> bool:
        del epoch
        self._clock.pass_by(seconds=0.01)
        if self.fails:
            raise Unwritable("the disk is full")
        return self.ours

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        raise NotImplementedError

    async def resign(self, epoch: int) -> None:
        raise NotImplementedError

    async def holder(self) -> Holder | None:
        raise NotImplementedError


async def test_a_leader_that_cannot_renew_holds_and_leads_on_if_nobody_took_over() -> None:
    clock = Hands()
    election = Silent(clock)
    led = Told()
    keeping = asyncio.create_task(Leader(election, clock, "test").keep(led))
    async with asyncio.timeout(5):
        election.fails = True
        await led.hears("hold: the disk is full")
        election.fails = False
        led.heard.clear()
        await led.hears("lead on")
        assert not keeping.done()
        election.ours = False
        await keeping
    assert led.heard[-1] == "step down: another server leads"
