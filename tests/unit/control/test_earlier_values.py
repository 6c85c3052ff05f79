"""What earlier calls returned goes into the tasks of those that need it."""

import pytest
from msgspec.structs import replace

from spillover.control.agents import earlier
from spillover.control.agents.earlier import EarlierValues, Missing
from spillover.model.files import is_digest
from spillover.model.job import EarlierValue, JobSpec, PythonCall
from spillover.ports.blobs import whole
from spillover.stores.blobs import MemoryBlobs
from spillover.testing.builders import a_job
from tests.support.inside import Inside
from tests.unit.control.test_results import end, register


def needing(*jobs: str) -> JobSpec:
    work = PythonCall(function="0" * 64, values=tuple(EarlierValue(each) for each in jobs))
    return replace(a_job("later").spec(), work=work)


def values_of(spec: JobSpec) -> list[tuple[bytes, str]]:
    assert isinstance(spec.work, PythonCall)
    return [(each.value, each.digest) for each in spec.work.values]


async def test_values_are_the_same_before_and_after_they_are_archived(control: Inside) -> None:
    await register(control)
    small, large = await control.submit("small", "large")
    await end(control, small, b"value")
    await end(control, large, b"", digest="ab" * 32)
    values = EarlierValues(control.loop, control.store.archive, MemoryBlobs())
    for archived in (False, True):
        if archived:
            await control.archive()
        assert values_of(await values.filled(needing(small, large))) == [(b"value", ""), (b"", "ab" * 32)]


async def test_many_values_become_blobs(control: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "INLINE", 10)
    await register(control)
    jobs = await control.submit("one", "two")
    blobs = MemoryBlobs()
    for job in jobs:
        await end(control, job, b"value of " + job.encode())
    filled = await EarlierValues(control.loop, control.store.archive, blobs).filled(needing(*jobs))
    digests = [digest for value, digest in values_of(filled) if not value and is_digest(digest)]
    assert [await whole(blobs.get(each), 100) for each in digests] == [
        b"value of " + job.encode() for job in jobs
    ]


async def test_a_value_that_is_not_there_is_named(control: Inside) -> None:
    await register(control)
    (job,) = await control.submit("no-call")
    await end(control, job, b"")
    values = EarlierValues(control.loop, control.store.archive, MemoryBlobs())
    for name in (job, "aaaaaaaaaaaa"):
        with pytest.raises(Missing, match=f"the value of {name} is not on the server"):
            await values.filled(needing(name))


async def test_other_jobs_stay_as_they_are(control: Inside) -> None:
    spec = a_job("later").spec()
    assert await EarlierValues(control.loop, control.store.archive, MemoryBlobs()).filled(spec) is spec
