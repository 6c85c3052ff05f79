"""Tests the driver alone: what a server asks of it, and what it reports."""

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
from spillover.ports.cluster import Start
from spillover.ports.driver import Ending, Stage
from spillover.testing.driver_suite import DriverSuite, OpenDriver, an_opening
from spillover_subprocesses import Subprocesses, SubprocessesForm, SubprocessesKind

SCRATCH = ClusterName("scratch")
LEASE = Lease(JobId("job"), 1, 1)


def a_start(line: str, folder: Path) -> Start:
    spec = JobSpec(Shell(line), "job", "default", "default", Shape(Resources(1000)), workdir=str(folder))
    return Start(LEASE, spec, SCRATCH)


async def ended(driver: Subprocesses) -> Ending:
    """Return what the driver reports of the only attempt once it has ended."""
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


class TestDriver(DriverSuite):
    """What every driver must do."""

    survives = False  # the processes end with the server

    @pytest.fixture
    def open_driver(self, tmp_path: Path) -> OpenDriver:
        """Open a driver as a server does."""
        return lambda: SubprocessesKind().open(SubprocessesForm(), an_opening(tmp_path))


def test_a_process_knows_its_job_and_its_cluster(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Subprocesses(SCRATCH, Resources(2000), tmp_path / "out")
        await driver.start(a_start("echo $SPILL_JOB_ID on $SPILL_CLUSTER", tmp_path))
        await ended(driver)
        assert [piece async for piece in driver.output(LEASE, 0, 0, follow=False)] == [b"job on scratch\n"]

    asyncio.run(story())


def test_walltime_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Subprocesses(SCRATCH, Resources(2000), tmp_path / "out")
        start = a_start("sleep 100", tmp_path)
        terms = structs.replace(start.spec.terms, walltime=SECOND // 5)
        await driver.start(structs.replace(start, spec=structs.replace(start.spec, terms=terms)))
        assert (await ended(driver)).outcome is Outcome.WALLTIME

    asyncio.run(story())
