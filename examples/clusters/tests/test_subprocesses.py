"""The driver by itself: what a server would ask of it, and what it says that it sees."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import JobSpec, Shape, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.driver import Ending, Made, Stage
from spillover_subprocesses import Subprocesses, SubprocessesForm, SubprocessesKind

SCRATCH = ClusterName("scratch")
LEASE = Lease(JobId("job"), 1, 1)


def a_start(line: str, folder: Path) -> Start:
    spec = JobSpec(Shell(line), "job", "default", "default", Shape(Resources(1000)), workdir=str(folder))
    return Start(LEASE, spec, SCRATCH)


async def ended(driver: Subprocesses) -> Ending:
    """What the driver says of the only attempt once it has ended."""
    async with asyncio.timeout(10):
        while True:
            for seen in driver.take().attempts:
                if seen.stage is Stage.ENDED:
                    assert seen.ending is not None
                    return seen.ending
            await asyncio.sleep(0.01)


def test_a_form_is_checked() -> None:
    kind = SubprocessesKind()
    assert kind.check(SubprocessesForm(), SCRATCH) == []
    (flaw,) = kind.check(SubprocessesForm(ram="much"), SCRATCH)
    assert flaw.path == ("ram",)


def test_a_command_runs_and_its_output_is_there_until_it_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Subprocesses(SCRATCH, Resources(2000), tmp_path / "out")
        whole = driver.take()
        assert (whole.whole, [node.name for node in whole.nodes]) == (True, ["here"])
        start = a_start("echo hello $SPILL_CLUSTER; exit 3", tmp_path)
        assert (await driver.start(start)).made is Made.MADE
        assert (await driver.start(start)).made is Made.MADE, "a second wish for the same is none"
        ending = await ended(driver)
        assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, 3)
        assert [piece async for piece in driver.output(LEASE, 0, 6, follow=True)] == [b"scratch\n"]
        await driver.stop(LEASE, SECOND)
        assert driver.take().gone == (LEASE,)
        with pytest.raises(OutputGone):
            await anext(driver.output(LEASE, 0, 0, follow=False))

    asyncio.run(story())


def test_a_process_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Subprocesses(SCRATCH, Resources(2000), tmp_path / "out")
        await driver.start(a_start("trap '' TERM; while :; do sleep 0.1; done", tmp_path))
        await asyncio.sleep(0.2)
        await driver.stop(LEASE, SECOND // 10)
        assert LEASE in driver.take().gone or not driver.take().attempts

    asyncio.run(story())


def test_walltime_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Subprocesses(SCRATCH, Resources(2000), tmp_path / "out")
        start = a_start("sleep 100", tmp_path)
        terms = structs.replace(start.spec.terms, walltime=SECOND // 5)
        await driver.start(structs.replace(start, spec=structs.replace(start.spec, terms=terms)))
        assert (await ended(driver)).outcome is Outcome.WALLTIME

    asyncio.run(story())
