"""Named queues as requests meet them: refusals with the field to change, defaults in what is stored, and the list of queues."""

from collections.abc import AsyncIterator

import pytest

from spillover.core.proposals import Configure
from spillover.model.queues import QueueDefaults, QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.units import HOUR, MINUTE
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind
from tests.support.inside import form
from tests.support.served import Served, served

SHORT = QueueSpec(
    "short",
    "up to an hour",
    default=True,
    defaults=QueueDefaults(30 * MINUTE, resources=Resources(2000)),
    each=QueueLimits(running=10, queued=2),
    walltime=HOUR,
)
VISION = QueueSpec(
    "vision", total=QueueLimits(resources=Resources(0, 0, 8)), projects=("vision",), priority=5
)


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        await configure(inside, SHORT, VISION)
        yield inside


async def configure(inside: Served, *queues: QueueSpec) -> None:
    loop = inside.control.loop
    await loop.propose(Configure("root", loop.state.facts.policies, queues=queues))


async def refusal(inside: Served, **fields: object) -> CommandError:
    with pytest.raises(CommandError) as caught:
        await inside.commands.submit([form("train", **fields)], "ada")
    return caught.value


async def test_an_unknown_queue_is_refused_with_those_that_there_are(inside: Served) -> None:
    error = await refusal(inside, queue="fast")
    assert (error.kind, error.message) == (
        ErrorKind.INVALID,
        "train: there is no queue 'fast'; write one of short, vision",
    )
    (problem,) = error.problems
    assert problem.path == "jobs[0].spec.queue"


async def test_all_problems_of_all_jobs_are_told(inside: Served) -> None:
    jobs = [form("a", walltime="2h"), form("b", queue="vision"), form("c")]
    with pytest.raises(CommandError) as caught:
        await inside.commands.submit(jobs, "ada")
    assert [(each.path, each.message) for each in caught.value.problems] == [
        ("jobs[0].spec.walltime", "a: a walltime of 2h is more than the 1h of queue short"),
        ("jobs[1].spec.queue", "b: queue vision is for project vision, not for default"),
    ]


async def test_what_is_stored_and_shown_has_the_defaults(inside: Served) -> None:
    (job,) = await inside.commands.submit([form("train")], "ada")
    shown = await inside.commands.job(job)
    assert (shown.queue, shown.walltime_s) == ("short", 1800.0)
    assert shown.spec["spec"]["resources"] == {"cpu": 2}
    assert shown.spec["spec"]["queue"] == "short"


async def test_a_key_stands_for_the_job_as_submitted(inside: Served) -> None:
    (job,) = await inside.commands.submit([form("train", key="k")], "ada")
    await configure(inside, QueueSpec("long", defaults=QueueDefaults(3 * HOUR)))
    assert await inside.commands.submit([form("train", key="k")], "ada") == (job,)
    await configure(inside, VISION)
    assert await inside.commands.submit([form("train", key="k")], "ada") == (job,), "it is there already"


async def test_a_full_queue_says_when_to_try_again(inside: Served) -> None:
    await inside.commands.submit([form("a"), form("b")], "ada")
    error = await refusal(inside)
    assert error.kind is ErrorKind.LIMITED
    assert "queue short holds 2 of at most 2 jobs of ada; 1 more" in error.message


async def test_a_dry_run_refuses_the_same(inside: Served) -> None:
    with pytest.raises(CommandError, match="there is no queue 'fast'"):
        await inside.commands.forecast([form("a", queue="fast")], "ada")
    (found,) = (await inside.commands.forecast([form("a")], "ada")).jobs
    assert found.name == "a"


async def test_queues_are_listed_with_what_is_in_them(inside: Served) -> None:
    await inside.commands.submit([form("a", array="1-2")], "ada")
    short, vision = await inside.commands.queues()
    assert (short.name, short.default, short.running, short.queued) == ("short", True, 0, 2)
    assert (short.user_limits.running, short.user_limits.queued, short.limits.running) == (10, 2, None)
    assert (short.walltime_s, short.defaults.walltime_s, short.defaults.cpu) == (3600.0, 1800.0, 2.0)
    assert (vision.limits.gpu, vision.projects, vision.priority) == (8, ["vision"], 5)


async def test_a_token_of_a_project_sees_the_queues_that_it_may_use(inside: Served) -> None:
    speech = inside.commands.of(Caller(TokenRole.SUBMIT, "t", project="speech"))
    assert [each.name for each in await speech.queues()] == ["short"]


async def test_without_queues_any_name_is_a_label(inside: Served) -> None:
    await configure(inside)
    (job,) = await inside.commands.submit([form("a", queue="fast")], "ada")
    assert (await inside.commands.job(job)).queue == "fast"
    assert await inside.commands.queues() == []
