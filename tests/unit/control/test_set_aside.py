"""What a controller fails on is set aside; the others go on, and it is tried again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from spillover.control.controllers import archiving as module
from spillover.control.controllers.archiving import Archiving, finished_of
from spillover.control.controllers.files import FileKeeping
from spillover.control.live.set_aside import SetAside, surviving
from spillover.core.events import Usage
from spillover.core.proposals import Outcome, Register, Result
from spillover.core.records.jobs import Job
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.archive import Finished
from spillover.ports.journal import Unwritable
from spillover.stores.blobs import FileBlobs
from tests.support.inside import Inside
from tests.support.virtual_time import VirtualTime, run_virtually

NODE = NodeName("n1")
HOLDER = NodeKey("onprem/n1")


async def ended(control: Inside, *names: str, **reported: object) -> tuple[str, ...]:
    """Jobs that ended well, as an agent of before reports were checked may have told."""
    number = control.loop.state.facts.incarnations + 1
    size = Resources(1000 * len(names), 2**40)
    await control.propose(Register(ClusterName("onprem"), NODE, number, size, (), {}, 0, ()))
    jobs = await control.submit(*names)
    for job in jobs:
        told = Result(HOLDER, control.lease(job), Outcome.EXITED, 0, None, Usage(1), 0)
        await control.propose(structs.replace(told, **reported))
    return jobs


@pytest.mark.parametrize("digest", ["{outside}", "0" * 63 + "\0", "../journal"])
async def test_a_journal_with_a_digest_that_is_none_is_archived(
    control: Inside, tmp_path: Path, digest: str
) -> None:
    outside = tmp_path / "journal"
    outside.write_bytes(b"history")
    before = outside.stat().st_mtime_ns
    (job,) = await ended(control, "train", value_digest=digest.format(outside=outside))
    files = FileKeeping(control.loop, control.specs, FileBlobs(tmp_path / "blobs"), DAY)
    await files.sweep()
    archiving = Archiving(control.loop, control.store.archive, files.keep)
    await archiving.find()
    assert await archiving.some()
    row = (await control.store.archive.some([JobId(job)]))[JobId(job)]
    assert (row.state, row.value_digest) == ("SUCCEEDED", "")
    assert outside.stat().st_mtime_ns == before


async def test_a_journal_with_numbers_that_no_column_takes_is_archived(control: Inside) -> None:
    (job,) = await ended(control, "train", usage=Usage(2**64 - 1, 2**64 - 1, 2**64 - 1), exit_code=0)
    found = finished_of(control.loop.state.jobs[JobId(job)])
    assert found is not None
    assert found.usage == (2**63 - 1,) * 3


class Picky:
    """An archive that takes all jobs but some."""

    def __init__(self, control: Inside, error: Exception, *bad: str) -> None:
        self._archive = control.store.archive
        self._error = error
        self.bad = set(bad)
        self.commits = 0

    async def put(self, finished: Sequence[Finished], epoch: int) -> None:
        self.commits += 1
        if any(each.job in self.bad for each in finished):
            raise self._error
        await self._archive.put(finished, epoch)


async def test_a_job_that_cannot_be_archived_is_set_aside_and_the_others_are(control: Inside) -> None:
    jobs = await ended(control, *[f"job{at}" for at in range(20)])
    archive = Picky(control, OverflowError("too large"), jobs[7])
    archiving = Archiving(control.loop, archive)  # type: ignore[arg-type]
    await archiving.find()
    while await archiving.some():
        pass
    assert list(control.loop.state.jobs) == [jobs[7]]
    (failed,) = control.loop.aside
    assert (failed.work, failed.subject, failed.tries) == ("archiving", jobs[7], 1)
    assert failed.reason == "OverflowError: too large"
    assert archive.commits < 12  # found by halves, not one by one
    assert not await archiving.some()  # it is not its time yet
    control.clock.pass_by(1)
    assert await archiving.some()
    (failed,) = control.loop.aside
    assert (failed.tries, failed.next_try - control.clock.monotonic()) == (2, 2 * SECOND)
    archive.bad.clear()
    control.clock.pass_by(2)
    assert await archiving.some()
    assert (len(control.loop.state.jobs), len(control.loop.aside)) == (0, 0)


async def test_a_job_that_the_store_itself_refuses_is_found_by_taking_fewer(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 8)
    jobs = await ended(control, *[f"job{at}" for at in range(20)])
    archiving = Archiving(control.loop, Picky(control, Unwritable("no such row"), jobs[7]))  # type: ignore[arg-type]
    await archiving.find()
    for _ in range(20):
        try:
            if not await archiving.some():
                break
        except Unwritable:
            continue
    assert list(control.loop.state.jobs) == [jobs[7]]
    assert [each.subject for each in control.loop.aside] == [jobs[7]]


async def test_files_that_cannot_be_kept_set_their_job_aside(control: Inside) -> None:
    jobs = await ended(control, "a", "b", "c")

    async def keep(some: Sequence[Job]) -> None:
        if any(job.id == jobs[1] for job in some):
            raise ValueError("embedded null byte")

    archiving = Archiving(control.loop, control.store.archive, keep)
    await archiving.find()
    while await archiving.some():
        pass
    assert list(control.loop.state.jobs) == [jobs[1]]


def test_a_controller_that_fails_as_a_whole_is_started_again_after_a_pause_that_grows() -> None:
    async def story(loop: VirtualTime) -> None:
        aside = SetAside(loop.monotonic)
        began: list[float] = []

        async def run() -> None:
            began.append(loop.time())
            if len(began) < 5:
                raise ValueError("a bug")
            await asyncio.Event().wait()

        task = asyncio.create_task(surviving("keeping", run, aside))
        await asyncio.sleep(0.5)
        (failed,) = aside
        assert (failed.work, failed.subject, failed.reason) == ("keeping", "", "ValueError: a bug")
        await asyncio.sleep(20)
        assert [round(at - began[0]) for at in began] == [0, 1, 3, 7, 15]
        assert len(aside) == 1  # it runs, and may fail again any moment
        await asyncio.sleep(60)
        assert len(aside) == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtually(story)
