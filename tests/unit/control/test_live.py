"""What open pages are told: everything first, then what changed, computed once for all of them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from spillover.control.controllers.sampling import Sampling
from spillover.control.requests.commands import LiveCommands
from spillover.control.views import live
from spillover.control.views.overview import Waits, rent_an_hour
from spillover.model.tokens import TokenRole
from spillover.model.units import SECOND
from spillover.ports.callers import Caller
from spillover.ports.commands import LiveMessage
from spillover.wire.api import LiveJobs, LiveMachines, LiveOverview, LiveProblem, Series
from tests.support.inside import Inside
from tests.support.waiting import until
from tests.unit.control.test_overview import begin, end, form, start

TYPES: dict[str, Any] = {
    "overview": LiveOverview,
    "machines": LiveMachines,
    "jobs": LiveJobs,
    "problem": LiveProblem,
}


class Page:
    """An open page."""

    def __init__(self, messages: AsyncIterator[LiveMessage]) -> None:
        self._messages = messages

    async def next(self, event: str) -> Any:
        """The next message of a kind; others are passed over."""
        async with asyncio.timeout(10):
            while True:
                message = await anext(self._messages)
                if message.event == event:
                    return msgspec.json.decode(message.data, type=TYPES[event])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)


def opened(commands: LiveCommands) -> aclosing[AsyncGenerator[LiveMessage, None]]:
    return aclosing(cast("AsyncGenerator[LiveMessage, None]", commands.live()))


async def test_a_page_gets_everything_first_and_then_what_changed(control: Inside) -> None:
    commands = await begin(control)
    one, two, waits = await control.submit("one", "two", "waits")
    async with opened(commands) as messages:
        page = Page(messages)
        shown: LiveOverview = await page.next("overview")
        assert (shown.jobs.queued, shown.jobs.placed, shown.jobs.running) == (1, 2, 0)
        assert [(each.name, each.role, each.machines, each.used.cpu) for each in shown.clusters] == [
            ("onprem", "owned", 1, 2.0),
            ("cloud", "rented", 1, 0.0),
        ]
        machines: LiveMachines = await page.next("machines")
        assert machines.full
        busy, idle = machines.machines
        assert (busy.cluster, busy.name, busy.tasks, busy.used.cpu) == ("onprem", "n1", 2, 2.0)
        assert [(each.id, each.name, each.state) for each in busy.jobs] == [
            (one, "one", "PLACED"),
            (two, "two", "PLACED"),
        ]
        assert (idle.name, idle.tasks, idle.jobs) == ("v1", 0, [])
        await start(control, one)
        await end(control, one)
        changed: LiveMachines = await page.next("machines")
        while not any(each.id == waits for machine in changed.machines for each in machine.jobs):
            changed = await page.next("machines")
        assert not changed.full
        assert [each.name for each in changed.machines] == ["n1"]


async def test_a_page_is_told_which_jobs_changed(control: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_JOBS", 3)
    commands = await begin(control)
    async with opened(commands) as messages:
        page = Page(messages)
        await page.next("machines")
        few = await control.submit("one", "two")
        told: LiveJobs = await page.next("jobs")
        assert (sorted(told.jobs), told.more) == (sorted(few), False)
        await control.submit(*"abcdefgh")
        told = await page.next("jobs")
        assert (len(told.jobs), told.more) == (3, True)


async def test_nothing_is_computed_while_nothing_changes_or_no_page_is_open(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = await begin(control)
    monkeypatch.setattr(live, "STALE", 5)
    async with opened(commands) as messages:
        page = Page(messages)
        await page.next("machines")
        await page.next("overview")  # times and costs go on, so it comes again after a while
        pending = asyncio.ensure_future(anext(messages))
        done, _ = await asyncio.wait({pending}, timeout=0.02)
        assert not done
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert "live pages" not in names


async def test_a_page_of_a_project_sees_its_own_jobs_and_no_other(control: Inside) -> None:
    commands = await begin(control)
    mine, theirs = await control.submitting.submit([form("m", "mine"), form("t", "theirs")], "ada")
    own = commands.of(Caller(TokenRole.READ, "t", project="mine"))
    async with opened(own) as messages:
        page = Page(messages)
        shown: LiveOverview = await page.next("overview")
        assert [(each.project, each.placed) for each in shown.projects] == [("mine", 1)]
        machines: LiveMachines = await page.next("machines")
        assert [each.id for machine in machines.machines for each in machine.jobs] == [mine]
        assert machines.machines[0].tasks == 2  # how much is used is not hidden
        await start(control, theirs)
        await start(control, mine)
        told: LiveJobs = await page.next("jobs")
        assert told.jobs == [mine]


async def test_a_page_that_is_too_far_behind_gets_everything_again(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_BEHIND", 4)
    commands = await begin(control)
    async with opened(commands) as slow, opened(commands) as fast:
        await Page(slow).next("machines")
        quick = Page(fast)
        await quick.next("machines")
        for number in range(5):
            await control.submit(f"job-{number}")
            await quick.next("jobs")
        page = Page(slow)
        while not (await page.next("machines")).full:
            pass


async def test_a_page_is_told_why_nothing_can_be_shown(control: Inside) -> None:
    commands = await begin(control)
    async with opened(commands) as messages:
        page = Page(messages)
        await page.next("machines")
        control.loop.applied += 1  # never becomes durable
        control.loop.lost_lead.set()
        control.loop.problem = "another server leads"
        told: LiveProblem = await page.next("problem")
        assert "another server leads" in told.message
        control.loop.applied -= 1


async def test_waits_of_the_last_minutes_are_averaged(control: Inside) -> None:
    waits = Waits(control.loop)
    await begin(control)
    assert waits.mean() is None
    one, _ = await control.submit("one", "two")
    assert waits.mean() == 0
    await control.submit("late")
    control.clock.pass_by(30)
    await start(control, one)
    await end(control, one)
    assert waits.mean() == pytest.approx(10)
    control.clock.pass_by(16 * 60)
    assert waits.mean() is None


async def test_waits_are_forgotten_also_while_nobody_asks(control: Inside) -> None:
    waits = Waits(control.loop)
    await begin(control)
    for _ in range(20):
        (job,) = await control.submit("job")
        await start(control, job)
        await end(control, job)
        control.clock.pass_by(60)
    assert len(waits._sums) == 15


async def test_samples_show_the_last_hours_as_lines(control: Inside, tmp_path: Path) -> None:
    await begin(control, wait="zero")
    sampling = Sampling(control.loop, tmp_path / "series.bin")
    begun = control.loop.now()
    sampling.take(control.loop.state)
    jobs = await control.submit("a", "b", "c")
    for job in jobs:
        await start(control, job)
    for _ in range(12):
        control.clock.pass_by(10)
        sampling.take(control.loop.state)
    shown = sampling.series(begun, costs=True)
    assert shown.step_s == 10
    assert shown.running == [0, *[3] * 12]
    owned, rented = shown.clusters
    assert (owned.used_cpus[0], owned.used_cpus[-1], owned.cpus[-1]) == (0, 2.0, 2.0)
    assert (rented.role, rented.used_cpus[-1]) == ("rented", 1.0)
    assert shown.cost_an_hour is not None
    assert shown.spent is not None
    assert shown.cost_an_hour[0] == 0 < shown.cost_an_hour[-1]
    assert shown.spent[-1] == pytest.approx(shown.cost_an_hour[-1] * 110 / 3600, abs=1e-5)
    assert sampling.series(begun, costs=False).spent is None


async def test_older_samples_are_coarser_and_outlive_a_restart(control: Inside, tmp_path: Path) -> None:
    await begin(control)
    begun = control.loop.now()
    sampling = Sampling(control.loop, tmp_path / "series.bin")
    for _ in range(2 * 360):
        sampling.take(control.loop.state)
        control.clock.pass_by(10)
    assert sampling.series(control.loop.now() - 600 * SECOND, costs=True).step_s == 10
    old: Series = sampling.series(begun, costs=True)
    assert (old.step_s, len(old.at)) == (60, 120)
    sampling.save()
    again = Sampling(control.loop, tmp_path / "series.bin")
    running = asyncio.create_task(again.run())
    await until(lambda: len(again.series(begun, costs=True).at) >= 120, "the samples of before")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_damaged_copy_of_samples_is_no_reason_not_to_start(control: Inside, tmp_path: Path) -> None:
    await begin(control)
    file = tmp_path / "series.bin"
    file.write_bytes(b"\xc1 nonsense")
    sampling = Sampling(control.loop, file)
    running = asyncio.create_task(sampling.run())
    await until(lambda: sampling.series(0, costs=True).at, "a sample")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_where_most_machines_change_all_the_time_they_are_told_of_less_often(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MANY", 1)
    monkeypatch.setattr(live, "EVERY", 1000)  # the test looks by itself
    commands = await begin(control, wait="zero")
    async with opened(commands) as messages:
        page = Page(messages)
        await page.next("machines")
        audience = commands._live._audiences[None]
        jobs = await control.submit("a", "b", "c", "d")
        await audience._look()
        both: LiveMachines = await page.next("machines")
        assert len(both.machines) == 2
        await page.next("jobs")
        await start(control, jobs[0])
        await audience._look()
        assert (await anext(messages)).event == "overview"
        assert (await anext(messages)).event == "jobs", "this look leaves machines out"
        await audience._look()  # though nothing else happened
        late: LiveMachines = await page.next("machines")
        assert [each.name for each in late.machines] == ["n1"]


async def test_a_look_that_fails_does_not_silence_pages(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = await begin(control)
    async with opened(commands) as messages:
        page = Page(messages)
        await page.next("machines")
        with monkeypatch.context() as broken:
            broken.setattr(live, "_state_of", lambda *_: 1 / 0)
            await control.submit("news")
            told: LiveProblem = await page.next("problem")
            assert "internal error" in told.message
        assert (await page.next("overview")).jobs.placed == 1


async def test_rent_counts_what_runs_on_rented_machines_alone(control: Inside) -> None:
    commands = await begin(control, cpus=1, wait="zero")
    jobs = await control.submitting.submit([form("owned", "a"), form("rented", "b")], "ada")
    for job in jobs:
        await start(control, job)
    state = control.loop.state
    assert rent_an_hour(state) == rent_an_hour(state, "b") == 3_600_000
    assert rent_an_hour(state, "a") == 0
    assert (await commands.overview(0, 0, 0)).cost_an_hour == 3.6
