"""Which jobs get which secrets: at their submission, and again when their tasks start."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from spillover.control.secrets.delivery import LEAST_BACKOFF, MOST_BACKOFF, Withheld
from spillover.control.secrets.sealing import SecretKey, draw_key, key_from
from spillover.core.events import JobState, Lease, Stop
from spillover.core.proposals import Act, Change, HandBack, Outcome
from spillover.forms.jobs.reading import JobForm
from spillover.model.ids import JobId, NodeKey
from spillover.model.job import Retry
from spillover.model.reasons import NoSecret
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Unwritable
from spillover.ports.secrets import SealedSecret
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.api import Rerun, SecretRef, SecretRequest
from spillover.wire.journal import encode_spec
from tests.support.inside import form
from tests.support.served import Served, served
from tests.support.waiting import until

NODE = "onprem/n1"


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served() as inside:
        for name, users in (("db", None), ("key", ["ada", "lee"])):
            await inside.commands.set_secret(request(name, users=users), "root")
        yield inside


def request(name: str, value: str = "hunter2", users: list[str] | None = None) -> SecretRequest:
    return SecretRequest(name, project="vision", value=value, users=users)


def job(*secrets: str, name: str = "train", **fields: object) -> JobForm:
    read = form(name, secrets=list(secrets), **fields)
    return structs.replace(read, spec=structs.replace(read.spec, project="vision"))


async def refused(server: Served, *jobs: JobForm, user: str = "ada") -> CommandError:
    for ask in (server.commands.submit, server.commands.forecast):
        with pytest.raises(CommandError) as caught:
            await ask(list(jobs), user)
    return caught.value


async def placed(server: Served, *secrets: str, **fields: Any) -> tuple[str, Lease]:
    """Submit a job that an agent gets at once; return it and its lease."""
    (name,) = await server.commands.submit([job(*secrets, **fields)], "ada")
    return name, server.control.lease(name)


async def withheld(server: Served, lease: Lease, node: str = NODE) -> str:
    with pytest.raises(Withheld) as caught:
        await server.delivery.values(node, lease)
    return str(caught.value)


# --- submissions


async def test_a_job_with_a_secret_that_there_is_not_is_refused_with_a_line_for_each(server: Served) -> None:
    error = await refused(server, job("db", "nope", "none"), job("gone", name="test"))
    assert error.kind is ErrorKind.INVALID
    assert [(problem.path, problem.message) for problem in error.problems] == [
        (
            "jobs[0].spec.secrets[1]",
            "train: project vision has no secret nope; `spill secret ls` lists secrets",
        ),
        (
            "jobs[0].spec.secrets[2]",
            "train: project vision has no secret none; `spill secret ls` lists secrets",
        ),
        (
            "jobs[1].spec.secrets[0]",
            "test: project vision has no secret gone; `spill secret ls` lists secrets",
        ),
    ]
    assert server.jobs == {}


async def test_a_secret_of_another_project_is_none(server: Served) -> None:
    error = await refused(server, form("train", secrets=["db"]))
    assert error.message == "train: project default has no secret db; `spill secret ls` lists secrets"


async def test_a_secret_that_is_for_others_is_refused(server: Served) -> None:
    error = await refused(server, job("key"), user="eve")
    assert error.kind is ErrorKind.FORBIDDEN
    assert error.message == "train: secret key of project vision is for jobs of ada, lee, not of eve"
    await server.commands.submit([job("key")], "lee")
    await server.commands.submit([job("db")], "eve")


async def test_a_person_who_may_not_use_a_secret_cannot_run_a_job_again_that_has_it(server: Served) -> None:
    (name,) = await server.commands.submit([job("key")], "ada")
    await server.control.propose(Change(Act.CANCEL, (JobId(name),), "ada"))
    with pytest.raises(CommandError, match="is for jobs of ada, lee, not of eve"):
        await server.commands.rerun(Rerun([name]), "eve")
    assert (await server.commands.rerun(Rerun([name]), "lee")).jobs


async def test_a_repeated_submission_is_answered_with_its_job_also_without_the_secret(server: Served) -> None:
    first = await server.commands.submit([job("db", key="k1")], "ada")
    await server.commands.remove_secret(SecretRef("db", "vision"), "root")
    assert await server.commands.submit([job("db", key="k1")], "ada") == first
    await refused(server, job("db", key="k2"))


async def test_a_secret_that_the_server_cannot_read_is_refused(server: Served) -> None:
    server.keys.there = [key_from(draw_key())]
    error = await refused(server, job("db"))
    told = "the server has no key for secret db of project vision; `spill doctor` says more"
    assert error.message == f"train: {told}"


async def test_a_server_without_secrets_says_so(server: Served) -> None:
    server.control.submitting.secrets = None
    assert (await refused(server, job("db"))).message == "this server does not store secrets"
    assert await server.commands.submit([job()], "ada")


# --- starts


async def test_the_agent_that_holds_a_lease_gets_the_values_and_nobody_else(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db", "key=K")
    assert await server.delivery.values(NODE, lease) == {"db": b"hunter2", "key": b"hunter2"}
    assert await withheld(server, lease, "onprem/n2") == "its lease is not valid any more"
    assert (
        await withheld(server, structs.replace(lease, seq=lease.seq + 1)) == "its lease is not valid any more"
    )
    assert server.jobs[JobId(name)].state is JobState.PLACED, "a wrong question ends no job"


async def test_a_start_gets_the_value_of_that_time(server: Served) -> None:
    agent = await server.agent()
    name, lease = await placed(server, "db")
    await server.commands.set_secret(request("db", "new"), "root")
    assert await server.delivery.values(NODE, lease) == {"db": b"new"}
    await agent.start(name)
    assert await server.delivery.values(NODE, lease) == {"db": b"new"}, "a task may start again in its place"


async def test_no_event_and_no_spec_has_a_value(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db")
    await server.delivery.values(NODE, lease)
    found = server.jobs[JobId(name)]
    spec = (await server.control.specs.get([found.spec]))[found.spec]
    assert b"hunter2" not in encode_spec(spec)[1]
    assert "hunter2" not in repr([each async for each in server.control.store.journal.tail(0)])


async def test_a_secret_that_is_gone_when_a_job_starts_ends_it_with_that_reason(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db", retry={"exit": 5, "lost": 5})
    await server.commands.remove_secret(SecretRef("db", "vision"), "root")
    told = "project vision has no secret db; `spill secret ls` lists secrets"
    assert await withheld(server, lease) == told
    ended = server.jobs[JobId(name)]
    assert ended.state is JobState.FAILED, "another try would not find it either"
    why = await server.commands.why(name)
    assert why.reason is not None
    assert (why.reason.code, why.reason.message) == ("no_secret", f"could not get its secrets: {told}")


async def test_a_secret_that_is_not_for_its_user_any_more_ends_a_job(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db")
    await server.commands.set_secret(request("db", users=["lee"]), "root")
    assert await withheld(server, lease) == "secret db of project vision is for jobs of lee, not of ada"
    assert server.jobs[JobId(name)].state is JobState.FAILED


async def test_a_job_waits_while_the_key_is_lost_and_starts_when_it_is_back(server: Served) -> None:
    await server.agent()
    keys, server.keys.there = server.keys.there, []
    name, lease = await placed_without_key(server, keys)
    told = "secret db of project vision cannot be read: there is no key file secrets.key; restore it"
    assert await withheld(server, lease) == told
    waits = server.jobs[JobId(name)]
    assert (waits.state, waits.attempt) == (JobState.QUEUED, 1), "it uses none of its retries"
    why = await server.commands.why(name)
    assert told in str(why)
    assert await withheld(server, lease) == "its lease is not valid any more"
    server.keys.there = keys
    await passes(server, name, LEAST_BACKOFF // SECOND)
    assert await server.delivery.values(NODE, server.control.lease(name)) == {"db": b"hunter2"}


async def test_a_job_is_tried_less_often_the_longer_the_key_is_lost(server: Served) -> None:
    await server.agent()
    keys, server.keys.there = server.keys.there, []
    name, lease = await placed_without_key(server, keys)
    waited: list[int] = []
    for _ in range(8):
        await withheld(server, lease)
        (backoff,) = server.jobs[JobId(name)].extra.backoffs
        waited.append((backoff.until - server.control.loop.now()) // SECOND)
        await passes(server, name, waited[-1] + 1)
        lease = server.control.lease(name)
    assert waited[0] == LEAST_BACKOFF // SECOND
    assert waited == sorted(waited)
    assert waited[-1] == MOST_BACKOFF // SECOND


async def placed_without_key(server: Served, keys: list[SecretKey]) -> tuple[str, Lease]:
    """Submit a job with these keys, and start it without any."""
    server.keys.there = keys
    found = await placed(server, "db")
    server.keys.there = []
    return found


async def passes(server: Served, name: str, seconds: int) -> None:
    """Let time pass until a job is tried again."""
    server.control.clock.pass_by(seconds)
    await server.control.propose(HandBack(NodeKey(NODE), ()))  # any step looks at the clock
    await until(lambda: server.jobs[JobId(name)].state is JobState.PLACED, "the next try", every=0.001)


async def test_a_value_that_no_key_opens_ends_no_job_as_it_can_be_set_again(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db")
    server.keys.there = [key_from(draw_key())]
    assert (await withheld(server, lease)).startswith(
        "secret db of project vision cannot be read: it needs key"
    )
    await server.commands.set_secret(request("db", "new"), "root")
    await passes(server, name, LEAST_BACKOFF // SECOND)
    assert await server.delivery.values(NODE, server.control.lease(name)) == {"db": b"new"}


async def test_a_task_that_runs_has_its_agent_ask_again(server: Served) -> None:
    agent = await server.agent()
    name, lease = await placed(server, "db")
    await agent.start(name)
    server.keys.there = []
    with pytest.raises(CommandError) as caught:
        await server.delivery.values(NODE, lease)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert server.jobs[JobId(name)].state is JobState.RUNNING


async def test_a_value_that_is_set_while_it_is_read_is_read_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.agent()
    _, lease = await placed(server, "db")
    get, asked = server.control.store.secrets.get, list[int]()

    async def overtaken(project: str, name: str, version: int) -> SealedSecret | None:
        asked.append(version)
        if len(asked) == 1:
            await server.commands.set_secret(request("db", "new"), "root")
        return await get(project, name, version)

    monkeypatch.setattr(server.control.store.secrets, "get", overtaken)
    assert await server.delivery.values(NODE, lease) == {"db": b"new"}
    assert asked == [1, 2]


async def test_a_store_that_cannot_be_read_ends_no_job(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.agent()
    name, lease = await placed(server, "db")

    async def broken(*_: object) -> None:
        raise Unwritable("disk on fire")

    monkeypatch.setattr(server.control.store.secrets, "get", broken)
    with pytest.raises(Unwritable):
        await server.delivery.values(NODE, lease)
    assert server.jobs[JobId(name)].state is JobState.PLACED


async def test_a_job_that_somebody_cancels_stays_cancelled(server: Served) -> None:
    await server.agent()
    name, lease = await placed(server, "db")
    await server.commands.remove_secret(SecretRef("db", "vision"), "root")
    server.control.loop.state.jobs[JobId(name)].phase = structs.replace(
        server.jobs[JobId(name)].phase, stopping=Stop.CANCEL, by="ada"
    )
    await withheld(server, lease)
    assert server.jobs[JobId(name)].state is not JobState.FAILED


# --- gangs


@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 0, 1)])
def test_a_gang_of_which_a_task_cannot_have_its_secrets_ends_and_is_not_tried_again(
    ranks: tuple[int, ...],
) -> None:
    world = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    world.agent("n1", cpus=3)
    world.submit(a_job("g").cpus(1).tasks(3).terms(retry=Retry(3, 3)))
    first, *rest = ranks
    world.finish_task("g", first, outcome=Outcome.NO_SECRET)
    for rank in rest:
        world.finish_task("g", rank, outcome=Outcome.NOT_STARTED)
    assert world.job("g").phase.why == NoSecret("")  # type: ignore[union-attr]


def test_a_gang_whose_secrets_cannot_be_read_backs_off_and_uses_no_retry() -> None:
    world = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    world.agent("n1", cpus=2)
    world.submit(a_job("g").cpus(1).tasks(2).terms(retry=Retry(0, 0)))
    world.propose(HandBack(NodeKey(NODE), (world.job("g").lease_of(0),), "no key", 30 * SECOND))
    world.finish_task("g", 1, outcome=Outcome.STOPPED, ran=0)
    waits = world.job("g")
    assert (waits.state, waits.attempt) == (JobState.QUEUED, 1)
    (backoff,) = waits.extra.backoffs
    assert (backoff.because, backoff.until) == ("no key", world.now + 30 * SECOND)
    world.wait(seconds=31)
    assert world.job("g").state == JobState.PLACED
