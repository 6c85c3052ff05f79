"""Jobs whose agent does not answer say so in lists and in `why`, and what happens next."""

from spillover.core.proposals import AgentGone
from spillover.model.ids import ClusterName, NodeName
from spillover.model.units import MINUTE, SECOND, format_time
from spillover.ports.commands import JobQuery
from tests.support.served import Served, served

START = 1_800_000_000 * SECOND
LAST = "2027-01-15 08:00:00 UTC"


async def told(server: Served, job: str) -> tuple[str, str]:
    """What a list and `why` say about a job."""
    (listed,) = [each for each in (await server.commands.jobs(JobQuery())).jobs if each.id == job]
    assert listed.state in {"RUNNING", "PLACED"}
    why = await server.commands.why(job)
    assert (listed.reason is None) == (why.reason is None)
    return "" if listed.reason is None else listed.reason.message, why.sentence


async def kill(server: Served) -> None:
    """Let the agent die, and the server notice that its connection closed."""
    await server.close()
    node = server.control.loop.state.agents["onprem/n1"]
    await server.control.propose(AgentGone(ClusterName("onprem"), NodeName("n1"), node.incarnation))


async def test_the_job_of_an_agent_that_was_killed_may_still_run_until_its_lease_expires() -> None:
    async with served(START) as server:
        agent = await server.agent()
        (job,) = await server.control.submit("train")
        await agent.start(job)
        assert await told(server, job) == ("", f"{job} has run on onprem/n1 for 0s: owned capacity had room")
        await kill(server)
        server.control.clock.pass_by(40)
        reason = (
            f"agent onprem/n1 has not answered since {LAST}; if it does not come back by "
            "2027-01-15 08:05:02 UTC (lost_after), the job returns to the queue"
        )
        assert await told(server, job) == (reason, f"{job} may still run on onprem/n1: {reason}")
        why = (await server.commands.why(job)).reason
        assert why is not None
        assert (why.code, why.details["at"]) == ("agent_silent", format_time(START))
        assert why.details["until"] == format_time(START + 5 * MINUTE + 2 * SECOND)


async def test_a_job_that_has_not_started_there_waits_for_the_short_term() -> None:
    async with served(START) as server:
        await server.agent()
        (job,) = await server.control.submit("train")
        await kill(server)
        server.control.clock.pass_by(20)
        listed, sentence = await told(server, job)
        assert listed.endswith(
            "by 2027-01-15 08:00:32 UTC (the term of its lease), the job returns to the queue"
        )
        assert sentence.startswith(f"{job} was placed on onprem/n1 20s ago: ")
        assert sentence.endswith(listed)


async def test_a_job_without_retries_says_that_it_fails() -> None:
    async with served(START) as server:
        agent = await server.agent()
        (job,) = await server.control.submit("train", retry={"lost": 0})
        await agent.start(job)
        await kill(server)
        assert (await told(server, job))[0].endswith(
            "the job fails, because retry.lost allows no more attempts"
        )


async def test_an_agent_that_only_stopped_sending_counts_after_three_heartbeats() -> None:
    async with served(START) as server:
        agent = await server.agent()
        (job,) = await server.control.submit("train")
        await agent.start(job)
        server.control.clock.pass_by(6)
        assert (await told(server, job))[0] == ""
        server.control.clock.pass_by(1)
        assert (await told(server, job))[0].startswith(f"agent onprem/n1 has not answered since {LAST}")
