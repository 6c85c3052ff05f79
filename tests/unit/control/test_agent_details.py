"""One agent with what runs there, and why it was drained."""

from collections.abc import AsyncIterator

import pytest

from spillover.core.proposals import Drain
from spillover.model.ids import ClusterName, NodeName
from spillover.model.reasons import AllDrained
from spillover.model.tokens import TokenRole
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import AgentAction
from spillover.wire.journal import decode_reason, encode_reason
from tests.support.inside import form
from tests.support.served import Served, served

ONPREM = ClusterName("onprem")


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


async def submit(server: Served, name: str) -> str:
    (job,) = await server.commands.submit([form(name)], "ada")
    return job


async def drain(server: Served, reason: str = "", act: str = "drain") -> None:
    await server.commands.act_on_agents(AgentAction(act, ["n1"], reason), "ann")  # type: ignore[arg-type]


async def test_an_agent_is_shown_with_what_it_runs(server: Served) -> None:
    agent = await server.agent(cpus=1)
    first, second = await submit(server, "first"), await submit(server, "second")
    await agent.start(first)
    shown = await server.commands.agent("onprem/n1")
    assert (shown.name, shown.cluster, shown.state) == ("n1", "onprem", "ready")
    assert shown.since is not None
    (running, *ahead) = shown.tasks
    assert (running.job, running.name, running.user, running.state, running.ahead) == (
        *(first, "first", "ada", "RUNNING", False),
    )
    assert (running.resources["cpu"], running.rank, running.started_at is None) == (1.0, 0, False)
    assert {task.job for task in ahead} <= {second}
    assert shown.tasks_in_all == len(shown.tasks)
    with pytest.raises(CommandError, match="there is no agent 'n9'") as unknown:
        await server.commands.agent("n9")
    assert unknown.value.kind is ErrorKind.UNKNOWN


async def test_a_token_of_a_project_sees_its_own_tasks_only(server: Served) -> None:
    agent = await server.agent()
    job = await submit(server, "first")
    await agent.start(job)
    other = server.commands.of(Caller(TokenRole.READ, "t", project="vision"))
    shown = await other.agent("n1")
    assert (shown.tasks, shown.tasks_in_all) == ([], 1)


async def test_the_reason_of_a_drain_is_shown_until_the_agent_is_resumed(server: Served) -> None:
    await server.agent()
    await drain(server, "new disk")
    shown = await server.commands.agent("n1")
    assert (shown.state, shown.drained_by, shown.drain_reason) == ("draining", "ann", "new disk")
    job = await submit(server, "waits")
    why = await server.commands.why(job)
    assert "drained (onprem/n1: new disk)" in why.sentence
    assert why.reason is not None
    assert why.reason.details["why"] == ("new disk",)
    await drain(server)
    assert (await server.commands.agent("n1")).drain_reason == "new disk"
    await drain(server, "new\nmemory")
    assert (await server.commands.agent("n1")).drain_reason == "new memory"
    await drain(server, act="resume")
    shown = await server.commands.agent("n1")
    assert (shown.state, shown.drained_by, shown.drain_reason) == ("ready", None, None)
    with pytest.raises(CommandError, match="is for `drain` only"):
        await drain(server, "again", act="resume")


async def test_the_reason_of_a_drain_survives_a_new_registration(server: Served) -> None:
    await server.agent()
    await drain(server, "new disk")
    await server.agent()
    shown = await server.commands.agent("n1")
    assert (shown.state, shown.drained_by, shown.drain_reason) == ("draining", "ann", "new disk")


async def test_a_shutdown_keeps_the_reason(server: Served) -> None:
    await server.agent()
    await drain(server, "new disk")
    await server.control.propose(Drain(ONPREM, NodeName("n1")))
    assert (await server.commands.agent("n1")).drain_reason == "new disk"


def test_reasons_without_words_read_as_before() -> None:
    old = AllDrained((ONPREM,), ("onprem/n1", "onprem/n2"))
    assert "are drained (onprem/n1, onprem/n2); resume" in str(old)
    some = AllDrained((ONPREM,), ("onprem/n1", "onprem/n2"), ("", "new disk"))
    assert "are drained (onprem/n1, onprem/n2: new disk); resume" in str(some)
    assert decode_reason(encode_reason(some)) == some
