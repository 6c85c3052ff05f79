"""Files of jobs on the server: what is asked for is there, what came back is listed, and what nobody needs goes."""

import hashlib
import time

import msgspec
import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.controllers.archiving import Archiving
from spillover.control.controllers.files import FileKeeping
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.files import JobFiles
from spillover.control.requests.submitting import Submitting
from spillover.core.events import JobState, Usage
from spillover.core.proposals import Outcome, Register, Result
from spillover.core.records.jobs import Ended, Job, Placed
from spillover.forms.jobs.reading import read_job
from spillover.model.files import File
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, SECOND
from spillover.ports.blobs import one_piece
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind
from spillover.stores.blobs import MemoryBlobs
from spillover.wire.api import ResultsAsked
from tests.support.inside import Inside, form

RETENTION = 10 * DAY
NODE = NodeName("n1")
HOLDER = NodeKey("onprem/n1")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(path: str, data: bytes) -> dict[str, object]:
    return {"path": path, "digest": digest(data), "size": len(data)}


class Yard:
    """A server's inside with a store of blobs, and one agent."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.blobs = MemoryBlobs(now=control.clock.wall)
        self.job_files = JobFiles(self.blobs, max_inputs=100)
        self.keeping = FileKeeping(control.loop, control.specs, self.blobs, RETENTION)
        self.archiving = Archiving(control.loop, control.store.archive, self.keeping.keep)
        self.submitting = Submitting(
            control.loop, control.store.archive, control.lookup, control.specs, files=self.job_files
        )

    async def put(self, data: bytes) -> str:
        await self.blobs.put(digest(data), one_piece(data))
        return digest(data)

    async def agent(self) -> None:
        register = Register(ClusterName("onprem"), NODE, 1, Resources(9000, 2**40), (), {}, 0, ())
        await self.control.propose(register)

    async def submit(self, name: str, **fields: object) -> JobId:
        (job,) = await self.submitting.submit([form(name, **fields)], "ada")
        return JobId(job)

    async def end(
        self, job: JobId, outputs: dict[str, bytes], code: int = 0, outcome: Outcome = Outcome.EXITED
    ) -> None:
        """An agent tells that a job ended, and what it made."""
        files = [File(path, await self.put(data), len(data)) for path, data in outputs.items()]
        listed = await self.put(msgspec.json.encode(files)) if files else ""
        found = self.control.loop.state.jobs[job]
        assert isinstance(found.phase, Placed)
        result = Result(
            HOLDER, found.lease, outcome, code, None, Usage(ran=SECOND), 0, "too large", outputs=listed
        )
        await self.control.propose(result)

    async def archive(self) -> None:
        while await self.archiving.some():
            pass

    async def there(self, *data: bytes) -> list[bool]:
        # Asked without the question itself keeping them.
        return [digest(each) in self.blobs._blobs for each in data]


@pytest.fixture
async def yard(control: Inside) -> Yard:
    yard = Yard(control)
    await yard.agent()
    return yard


async def test_a_job_is_taken_when_all_that_it_needs_is_there(yard: Yard) -> None:
    await yard.put(b"data")
    job = await yard.submit("train", inputs=[entry("in/data", b"data")])
    assert yard.control.loop.state.jobs[job].extra.blobs
    plain = await yard.submit("plain")
    assert not yard.control.loop.state.jobs[plain].extra.blobs


@pytest.mark.parametrize(
    ("inputs", "where", "said"),
    [
        ([entry("x", b"none")], "jobs[0].spec.inputs[0]", "train: x is not on the server; upload it first"),
        ([entry("x", b"data") | {"size": 5}], "jobs[0].spec.inputs[0].size", "train: x has 4 bytes, not 5"),
        (["x"], "jobs[0].spec.inputs", "train: 'x' has no digest; submit the job with `spill`"),
        (
            [entry("x", b"data"), entry("y", b"y" * 97)],
            "jobs[0].spec.inputs",
            "train: its inputs total 101, above the maximum of 100 (files.max_inputs); the largest is y with 97",
        ),
    ],
)
async def test_what_is_missing_or_too_much_is_refused(
    yard: Yard, inputs: list[object], where: str, said: str
) -> None:
    for data in (b"data", b"y" * 97):
        await yard.put(data)
    with pytest.raises(CommandError) as refused:
        await yard.submit("train", inputs=inputs)
    assert refused.value.kind is ErrorKind.INVALID
    assert refused.value.problems[0].path == where
    assert said in refused.value.problems[0].message
    assert not yard.control.loop.state.jobs


async def test_the_files_of_every_attempt_are_listed_live_and_archived(yard: Yard) -> None:
    job = await yard.submit("train", outputs=["*"], retry={"exit": 1})
    await yard.end(job, {"log": b"first"}, code=1)
    await yard.end(job, {"log": b"second", "result": b"42"})

    async def check() -> None:
        found = await yard.control.lookup.find(job)
        newest = await yard.job_files.brought_back(found, None)
        assert (newest.attempt, newest.attempts) == (2, [1, 2])
        assert [(file.path, file.digest) for file in newest.files] == [
            ("log", digest(b"second")),
            ("result", digest(b"42")),
        ]
        first = await yard.job_files.brought_back(found, 1)
        assert [file.digest for file in first.files] == [digest(b"first")]
        with pytest.raises(CommandError, match=rf"^{job} has no attempt 3; it has had 2$") as error:
            await yard.job_files.brought_back(found, 3)
        assert error.value.kind is ErrorKind.UNKNOWN

    await check()
    await yard.archive()
    assert job not in yard.control.loop.state.jobs
    await check()


async def test_what_a_task_left_for_later_attempts_stays_until_its_job_has_ended(yard: Yard) -> None:
    job = await yard.submit("train", keep_state=True, retry={"exit": 2, "lost": 1})
    jobs, later = yard.control.loop.state.jobs, yard.control.clock

    async def attempt(saved: bytes, code: int, outcome: Outcome = Outcome.EXITED) -> None:
        blob = await yard.put(saved) if saved else ""
        result = Result(HOLDER, jobs[job].lease, outcome, code, None, Usage(ran=SECOND), 0, saved=blob)
        await yard.control.propose(result)

    await attempt(b"first", 1)
    assert jobs[job].saved(0) == digest(b"first")
    await attempt(b"", 0, Outcome.LOST)
    assert jobs[job].saved(0) == digest(b"first"), "what was last saved"
    await attempt(b"third", 1)
    later.pass_by(3 * DAY / SECOND)
    await yard.keeping.sweep()
    assert await yard.there(b"first", b"third") == [False, True]
    await attempt(b"", 0)
    assert jobs[job].state is JobState.SUCCEEDED
    later.pass_by(3 * DAY / SECOND)
    await yard.keeping.sweep()
    assert await yard.there(b"third") == [False]


async def test_outputs_that_could_not_be_kept_fail_a_job_and_count_as_an_exit(yard: Yard) -> None:
    job = await yard.submit("train", outputs=["*"], retry={"exit": 1})
    for _ in range(2):
        await yard.end(job, {"log": b"kept"}, outcome=Outcome.UNKEPT)
    found = yard.control.loop.state.jobs[job]
    assert (found.state, found.attempt, found.exits) == (JobState.FAILED, 2, 1)
    assert isinstance(found.phase, Ended)
    assert str(found.phase.why) == "its outputs could not be saved: too large"


@pytest.mark.parametrize(
    "listed",
    [b"no JSON", b'[{"path": "../x", "digest": "%s", "size": 1}]' % (b"0" * 64), b'[{"path": "x"}]', b"{}"],
)
async def test_a_list_that_is_none_is_told_and_harms_nobody(yard: Yard, listed: bytes) -> None:
    job = await yard.submit("train", outputs=["*"])
    found = yard.control.loop.state.jobs[job]
    await yard.control.propose(
        Result(HOLDER, found.lease, Outcome.EXITED, 0, None, Usage(), 0, outputs=await yard.put(listed))
    )
    with pytest.raises(CommandError, match=r"is not a list of files|is not a stored file"):
        await yard.job_files.brought_back(await yard.control.lookup.find(job), None)
    await yard.keeping.sweep()
    await yard.archive()


async def test_files_stay_while_a_job_needs_them_and_for_its_retention(yard: Yard) -> None:
    clock = yard.control.clock
    for data in (b"input", b"unused"):
        await yard.put(data)
    job = await yard.submit("train", inputs=[entry("in", b"input")], outputs=["*"], not_before=_later())
    clock.pass_by(DAY / SECOND + 1)
    assert await yard.keeping.sweep() == 1
    assert await yard.there(b"input", b"unused") == [True, False]
    found = yard.control.loop.state.jobs[job]
    assert found.state is JobState.HELD
    second = await yard.submit("second", inputs=[entry("in", b"input")], outputs=["*"])
    await yard.end(second, {"out": b"output"})
    await yard.archive()
    clock.pass_by(5 * DAY / SECOND)
    assert await yard.keeping.sweep() == 0
    assert await yard.there(b"input", b"output") == [True, True]
    clock.pass_by(6 * DAY / SECOND + 1)
    dropped = await yard.keeping.sweep()
    assert dropped == 2, "the output and its list"
    assert await yard.there(b"input", b"output") == [True, False]


async def test_members_share_the_inputs_of_their_array(yard: Yard) -> None:
    await yard.put(b"input")
    array = await yard.submit("sweep", inputs=[entry("in", b"input")], outputs=["*"], array="1-2")
    members = [JobId(f"{array}.{index}") for index in (1, 2)]
    await yard.end(members[0], {"out": b"one"})
    await yard.archive()
    yard.control.clock.pass_by(2 * DAY / SECOND)
    assert await yard.keeping.sweep() == 0
    assert await yard.there(b"input", b"one") == [True, True]
    await yard.end(members[1], {"out": b"two"})
    await yard.archive()
    yard.control.clock.pass_by((RETENTION + DAY) / SECOND + 1)
    assert await yard.keeping.sweep() == 5
    assert await yard.blobs.used() == (0, 0)


def _later() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(4_000_000_000))


class Project:
    """Somebody who is let in for one project."""

    def __init__(self, yard: Yard, name: str) -> None:
        self.yard = yard
        self.name = name
        self.commands = LiveCommands(
            Parts(
                yard.control.loop,
                yard.control.store.journal,
                yard.control.store.archive,
                Hub(),
                yard.control.specs,
                yard.control.lookup,
                yard.submitting,
                files=yard.job_files,
            )
        ).of(Caller(TokenRole.SUBMIT, name, project=name))

    async def sees(self, data: bytes) -> bool:
        return bool(await self.yard.blobs.sizes([digest(data)], self.name))


async def test_a_job_of_a_project_may_need_only_what_is_of_the_project(yard: Yard) -> None:
    vision, nlp = Project(yard, "vision"), Project(yard, "nlp")
    await yard.blobs.put(digest(b"data"), one_piece(b"data"), "vision")
    job = form("train", inputs=[entry("x", b"data")])
    with pytest.raises(CommandError, match="train: x is not on the server; upload it first"):
        await nlp.commands.submit([job], "eve")
    await vision.commands.submit([job], "ada")


async def test_what_a_job_brought_back_may_be_read_by_its_project_once_it_is_listed(yard: Yard) -> None:
    vision, nlp = Project(yard, "vision"), Project(yard, "nlp")
    (job,) = await vision.commands.submit([form("train", outputs=["*"])], "ada")
    await yard.end(JobId(job), {"model": b"weights"})
    assert not await vision.sees(b"weights")
    with pytest.raises(CommandError):
        await nlp.commands.files(job, None)
    (model,) = (await vision.commands.files(job, None)).files
    assert model.digest == digest(b"weights")
    assert await vision.sees(b"weights")
    assert not await nlp.sees(b"weights")


async def test_what_somebody_else_submitted_a_job_of_a_project_with_may_be_read_once_the_job_is_shown(
    yard: Yard,
) -> None:
    await yard.put(b"data")
    vision, nlp = Project(yard, "vision"), Project(yard, "nlp")
    doc = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"project": "vision"},
        "spec": {"run": "true", "inputs": [entry("x", b"data")]},
    }
    (job,) = await yard.submitting.submit([read_job(doc)], "admin")
    with pytest.raises(CommandError):
        await nlp.commands.job(job)
    assert [await each.sees(b"data") for each in (vision, nlp)] == [False, False]
    await vision.commands.job(job)
    assert [await each.sees(b"data") for each in (vision, nlp)] == [True, False]


async def test_what_a_call_returned_may_be_read_by_its_project_once_it_is_told(yard: Yard) -> None:
    vision = Project(yard, "vision")
    (job,) = await vision.commands.submit([form("call")], "ada")
    value = await yard.put(b"large")
    found = yard.control.loop.state.jobs[JobId(job)]
    result = Result(HOLDER, found.lease, Outcome.EXITED, 0, None, Usage(), 0, value_digest=value)
    await yard.control.propose(result)
    page = await vision.commands.results(job, ResultsAsked(timeout=0.1))
    assert [each.value_digest for each in page.results] == [value]
    assert await vision.sees(b"large")


async def test_a_job_whose_files_cannot_be_told_keeps_nothing_from_being_dropped(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.put(b"data")
    good = await yard.submit("good", inputs=[entry("x", b"data")])
    bad = await yard.submit("bad")
    await yard.end(bad, {"out": b"made"})
    await yard.put(b"nobody's")
    made = yard.keeping._made

    async def failing(job: Job) -> set[str]:
        if job.id == bad:
            raise ZeroDivisionError
        return await made(job)

    monkeypatch.setattr(yard.keeping, "_made", failing)
    yard.control.clock.pass_by(2 * DAY / SECOND)
    await yard.keeping.sweep()
    assert await yard.there(b"data", b"nobody's") == [True, False]
    assert [(each.work, each.subject) for each in yard.control.loop.aside] == [("files", bad)]
    assert good in yard.control.loop.state.jobs
    monkeypatch.undo()
    await yard.keeping.sweep()
    assert not yard.control.loop.aside
