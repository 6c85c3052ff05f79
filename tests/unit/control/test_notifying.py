"""Messages to people: written once for what happened, for those who asked, also after a crash."""

import pytest
from msgspec.structs import replace

from spillover.control.controllers import notifying as module
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.controllers.notifying import Notifying
from spillover.control.notifications.receivers import messages_of
from spillover.control.notifications.settings import Settings
from spillover.core.events import Outcome, Usage
from spillover.core.proposals import Act, AgentGone, Change, Register, Result, Started
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.notifications import Mail, Notifications, Notify, Rule, Webhook, When
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.outbox import Message, OutboxQuery
from spillover.wire.notices import Notice, decode_notice, encode_notice
from tests.support.inside import Inside

CHAT = Webhook("chat", "https://chat.example.org/", "secret", projects=None)
MAIL = Mail("smtp.example.org", "spill@example.org")


@pytest.fixture
def settings() -> Settings:
    return Settings(Notifications((CHAT,), MAIL), "USD")


@pytest.fixture
def notifying(control: Inside, settings: Settings) -> Notifying:
    return of(control, settings)


def of(control: Inside, settings: Settings) -> Notifying:
    store = control.store
    return Notifying(control.loop, store.journal, store.archive, store.outbox, control.specs, settings)


async def agent(control: Inside, name: str = "n1", cpus: int = 4) -> None:
    """Register an agent, which runs nothing by itself."""
    capacity = Resources(cpus * 1000, 2**40)
    await control.propose(Register(ClusterName("onprem"), NodeName(name), 1, capacity, (), {}, 0, ()))


async def start(control: Inside, job: str) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed), found
    await control.propose(Started(found.phase.key, found.lease, 0))


async def end(
    control: Inside, job: str, code: int = 0, outcome: Outcome = Outcome.EXITED, ran: int = SECOND
) -> None:
    found = control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed | Running), found
    await control.propose(Result(found.phase.key, found.lease, outcome, code, None, Usage(ran), 0))


async def messages(control: Inside) -> list[Message]:
    """Return all messages, oldest first."""
    return (await control.store.outbox.page(OutboxQuery(limit=1000)))[::-1]


async def told(control: Inside, notifying: Notifying) -> list[tuple[str, str]]:
    """Write what was seen; return for each message whom it tells, and what."""
    await notifying.some()
    return sorted((each.to, decode_notice(each.body).kind) for each in await messages(control))


def rules(settings: Settings, *found: Rule) -> None:
    settings.now = replace(settings.now, rules=found)


async def test_a_job_tells_those_whom_it_names_what_they_asked_for(
    control: Inside, notifying: Notifying
) -> None:
    await agent(control)
    await notifying.catch_up()
    notify = ["begin,end:ada@example.org", "fail,time_limit:chat"]
    good, bad = await control.submit("good", "bad", notify=notify)
    for job in (good, bad):
        await start(control, job)
    await end(control, good)
    await end(control, bad, 3)
    assert await told(control, notifying) == [
        *[("ada@example.org", "begin")] * 2,
        *[("ada@example.org", "end")] * 2,
        ("chat", "fail"),
    ]
    (failed,) = [each for each in await messages(control) if each.to == "chat"]
    assert (failed.channel, failed.project, failed.tries, failed.failed) == (
        "webhook/chat",
        "default",
        0,
        False,
    )
    notice = decode_notice(failed.body)
    assert notice.text == f"job bad ({bad}) of project default failed: exited with code 3"
    assert notice.kinds == ["fail", "end"]
    assert notice.job is not None
    assert (notice.job.state, notice.job.exit_code, notice.job.ran_s) == ("FAILED", 3, 1.0)
    assert (notice.job.cluster, notice.job.node, notice.job.user) == ("onprem", "n1", "ada")
    assert notice.id == failed.id


async def test_a_job_that_names_nobody_tells_nobody(control: Inside, notifying: Notifying) -> None:
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("quiet")
    await start(control, job)
    await end(control, job)
    assert await told(control, notifying) == []
    assert await control.store.outbox.noted() == control.loop.gate.durable


async def test_rules_tell_of_all_jobs_or_of_those_of_some_projects(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    rules(
        settings,
        Rule(("chat",), (When.END,), ("vision",)),
        Rule(("ops@example.org", "chat"), (When.FAIL,)),
    )
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("a", notify=["chat"])
    await start(control, job)
    await end(control, job, 1)
    assert await told(control, notifying) == [("chat", "fail"), ("ops@example.org", "fail")], (
        "one message, although the job asked for its end too"
    )


async def test_what_a_person_cancelled_has_ended_and_not_failed(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    rules(settings, Rule(("chat",), (When.FAIL,)), Rule(("ops@example.org",), (When.END,)))
    await notifying.catch_up()
    first, then = await control.submit("first", "then")
    (after,) = await control.submit("after", after=[{"job": then, "on": "success"}])
    await control.propose(Change(Act.CANCEL, (JobId(first), JobId(then)), "eve"))
    assert await told(control, notifying) == [
        ("chat", "fail"),
        *[("ops@example.org", "end")] * 3,
    ]
    (failed,) = [decode_notice(each.body) for each in await messages(control) if each.to == "chat"]
    assert failed.job is not None
    assert (failed.job.id, failed.job.state) == (after, "CANCELLED")


async def test_an_array_begins_once_and_ends_once_however_many_members_it_has(
    control: Inside, notifying: Notifying
) -> None:
    await agent(control, cpus=500)
    await notifying.catch_up()
    (array,) = await control.submit("sweep", array="1-300", notify=["begin,end,fail,requeue:ada@example.org"])
    for index in range(1, 301):
        await start(control, f"{array}.{index}")
    for index in range(1, 301):
        await end(control, f"{array}.{index}", int(index <= 7))
    assert await told(control, notifying) == [("ada@example.org", "begin"), ("ada@example.org", "fail")]
    (notice,) = [
        found for each in await messages(control) if (found := decode_notice(each.body)).kind == "fail"
    ]
    assert notice.text == f"array sweep ({array}) of project default failed: 7 of its members did not succeed"
    assert notice.job is not None
    assert notice.job.members == {"FAILED": 7, "SUCCEEDED": 293}


async def test_a_return_to_the_queue_is_told_if_a_task_had_begun(
    control: Inside, notifying: Notifying
) -> None:
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("again", retry={"exit": 1}, notify=["begin,requeue,end:ada@example.org"])
    await start(control, job)
    await end(control, job, 1)
    await start(control, job)
    await end(control, job)
    assert await told(control, notifying) == [
        ("ada@example.org", "begin"),
        ("ada@example.org", "end"),
        ("ada@example.org", "requeue"),
    ]


async def test_a_job_that_is_only_heard_of_when_it_ended_began_too(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    rules(settings, Rule(("ops@example.org",), (When.BEGIN,)))
    await agent(control)
    await notifying.catch_up()
    short, array = [
        (await control.submit(name, notify=["begin,end:chat"], **more))[0]
        for name, more in (("short", {}), ("sweep", {"array": "1-2"}))
    ]
    for job in (short, f"{array}.2", f"{array}.1"):
        await end(control, job)
    assert await told(control, notifying) == [
        *(("chat", "begin"), ("chat", "begin"), ("chat", "end"), ("chat", "end")),
        *[("ops@example.org", "begin")] * 2,
    ]
    of_short = [
        found
        for each in await control.store.outbox.next("webhook/chat", 10)
        if (found := decode_notice(each.body)).job is not None and found.job.id == short
    ]
    assert [each.kind for each in of_short] == ["begin", "end"], "in the order in which they are sent"
    assert of_short[0].text == f"job short ({short}) of project default began"
    assert of_short[0].job is not None
    assert of_short[0].job.state == "RUNNING"


async def test_what_never_ran_never_began(control: Inside, notifying: Notifying) -> None:
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("a", retry={"exit": 1}, notify=["begin,requeue,end:chat"])
    for _ in range(2):
        await end(control, job, 1, Outcome.NOT_STARTED, ran=0)
    assert await told(control, notifying) == [("chat", "end")], (
        "its return to the queue is none after a begin"
    )


async def test_a_job_begins_with_the_first_attempt_that_runs(control: Inside, notifying: Notifying) -> None:
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("a", retry={"exit": 2}, notify=["begin,requeue,end:chat"])
    await end(control, job, 1, Outcome.NOT_STARTED, ran=0)
    for code in (1, 0):
        await start(control, job)
        await end(control, job, code)
    assert await told(control, notifying) == [("chat", "begin"), ("chat", "end"), ("chat", "requeue")]
    (begun,) = [
        found for each in await messages(control) if (found := decode_notice(each.body)).kind == "begin"
    ]
    assert begun.job is not None
    assert begun.job.attempt == 2


async def test_an_array_begins_with_a_member_that_was_tried_before(
    control: Inside, notifying: Notifying
) -> None:
    await agent(control)
    await notifying.catch_up()
    (array,) = await control.submit("sweep", array="1-2", retry={"exit": 1}, notify=["begin:chat"])
    await end(control, f"{array}.1", 1, Outcome.NOT_STARTED, ran=0)
    for index in (1, 2):
        await start(control, f"{array}.{index}")
        await end(control, f"{array}.{index}")
    assert await told(control, notifying) == [("chat", "begin")]


async def test_a_short_attempt_that_is_retried_began_and_returned(
    control: Inside, notifying: Notifying
) -> None:
    await agent(control)
    await notifying.catch_up()
    (job,) = await control.submit("a", retry={"exit": 1}, notify=["begin,requeue,end:chat"])
    for code in (1, 0):
        await end(control, job, code)
    assert await told(control, notifying) == [("chat", "begin"), ("chat", "end"), ("chat", "requeue")]


async def test_a_new_server_tells_of_each_begin_once(control: Inside, settings: Settings) -> None:
    """Whether an earlier server told of it, or nobody did, also if the job is in the archive by now."""
    await agent(control, cpus=8)
    first = of(control, settings)
    await first.catch_up()
    ran, later, short, gone, array, young = [
        (await control.submit(name, retry={"exit": 1}, notify=["begin:ada@example.org"], **more))[0]
        for name, more in (
            *(("ran", {}), ("later", {}), ("short", {}), ("gone", {})),
            *(("sweep", {"array": "1-2"}), ("young", {"array": "1-2"})),
        )
    ]
    control.clock.pass_by(10)
    await start(control, ran)
    await start(control, f"{array}.1")
    await end(control, f"{array}.1")
    await control.propose(Change(Act.CANCEL, (JobId(f"{young}.1"),), "eve"))
    await end(control, f"{young}.1", 0, Outcome.STOPPED, ran=0)
    await control.archive()
    await first.some()
    assert len(await messages(control)) == 2
    control.clock.pass_by(10)
    await start(control, later)
    await end(control, later, 1)
    await end(control, gone)
    await control.archive()
    again = of(control, settings)
    await again.catch_up()
    control.clock.pass_by(10)
    await end(control, ran, 1)
    await start(control, ran)
    await end(control, short)
    await start(control, later)
    for each in (array, young):
        await start(control, f"{each}.2")
    await again.some()
    found = [decode_notice(each.body) for each in await messages(control)]
    assert sorted((each.job.name if each.job else "", each.kind) for each in found) == [
        *(("gone", "begin"), ("later", "begin"), ("ran", "begin"), ("short", "begin")),
        *(("sweep", "begin"), ("young", "begin")),
    ]


async def test_agents_that_are_lost_together_are_one_message(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    rules(settings, Rule(("ops@example.org",), (When.AGENT_LOST,)))
    for number in range(1, 15):
        await agent(control, f"n{number}")
    await notifying.catch_up()
    for number in range(1, 14):
        node = control.loop.state.nodes[f"onprem/n{number}"]
        await control.propose(AgentGone(node.cluster, node.name, node.incarnation))
    node = control.loop.state.nodes["onprem/n14"]
    await control.propose(AgentGone(node.cluster, node.name, node.incarnation, left=True))
    assert await told(control, notifying) == [("ops@example.org", "agent_lost")]
    notice = decode_notice((await messages(control))[0].body)
    names = ", ".join(f"n{number}" for number in range(1, 11))
    assert notice.text == f"13 agents of onprem are lost: {names} and 3 more", "n14 signed off"
    assert notice.cluster is not None
    assert notice.cluster.agents is not None
    assert len(notice.cluster.agents) == 13


async def test_a_new_server_writes_what_an_earlier_one_did_not(control: Inside, settings: Settings) -> None:
    await agent(control)
    first = of(control, settings)
    await first.catch_up()
    live, gone, array = [
        (await control.submit(name, notify=["begin,end:ada@example.org"], **more))[0]
        for name, more in (("live", {}), ("gone", {}), ("sweep", {"array": "1-2"}))
    ]
    for job in (live, gone, f"{array}.1"):
        await start(control, job)
    control.clock.pass_by(10)
    await control.submit("between")
    await first.some()
    assert len(await messages(control)) == 3
    await end(control, gone, 1)
    await end(control, f"{array}.1")
    await control.archive()
    assert JobId(gone) not in control.loop.state.jobs
    await control.submit("other")
    again = of(control, settings)
    await again.catch_up()
    notices = [decode_notice(each.body) for each in await messages(control)]
    (ended,) = [each for each in notices if each.kind == "end"]
    assert len(notices) == 4
    assert ended.text == f"job gone ({gone}) of project default failed: exited with code 1"
    await start(control, f"{array}.2")
    await end(control, f"{array}.2")
    await end(control, live)
    await again.some()
    found = [decode_notice(each.body) for each in await messages(control)]
    assert sorted((each.job.name if each.job else "", each.kind) for each in found) == [
        *(("gone", "begin"), ("gone", "end"), ("live", "begin"), ("live", "end")),
        *(("sweep", "begin"), ("sweep", "end")),
    ], "the array had begun before"


async def test_a_message_that_is_written_again_has_the_same_id(control: Inside, settings: Settings) -> None:
    await agent(control)
    first = of(control, settings)
    await first.catch_up()
    (job,) = await control.submit("a", notify=["chat"])
    await start(control, job)
    await end(control, job)
    (seen,) = [each for each in first._found if When.END in each.kinds]
    again = of(control, settings)
    await again.catch_up()
    (written,) = await messages(control)
    assert messages_of(seen, [Notify("chat")], settings.now, "USD") == [written]


async def test_events_stay_until_what_they_tell_is_written(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    store = control.store
    keeping = Keeping(
        control.loop, store.journal, store.archive, store.audit, Retention(DAY, DAY, DAY), None, store.outbox
    )
    (job,) = await control.submit("a", notify=["chat"])
    await control.propose(Change(Act.CANCEL, (JobId(job),), "eve"))
    await store.audit.put(0, control.loop.gate.durable, [], control.loop.epoch)
    control.clock.pass_by(2 * DAY / SECOND)
    await control.submit("later")
    await control.loop.checkpoints.write()
    await keeping.sweep()
    assert await store.journal.oldest() == 1, "nobody was told"
    await notifying.catch_up()
    await keeping.sweep()
    assert await store.journal.oldest() > 1
    assert len(await messages(control)) == 1


async def test_more_messages_than_a_channel_has_room_for_fail_at_once(
    control: Inside, notifying: Notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    monkeypatch.setattr(module, "MOST_FAILED", 2)
    await notifying.catch_up()
    jobs = await control.submit(*[f"j{number}" for number in range(5)], notify=["chat"])
    await control.propose(Change(Act.CANCEL, tuple(map(JobId, jobs)), "eve"))
    await notifying.some()
    found = await messages(control)
    assert [each.failed for each in found].count(True) == 2, "the newest of those that failed"
    assert len(found) == 4
    assert {each.error for each in found if each.failed} == {"2 messages waited before it, the most that may"}


async def test_receivers_that_are_not_configured_any_more_get_nothing(
    control: Inside, settings: Settings, notifying: Notifying
) -> None:
    await notifying.catch_up()
    jobs = await control.submit("a", notify=["chat", "ada@example.org"])
    settings.now = Notifications()
    await control.propose(Change(Act.CANCEL, tuple(map(JobId, jobs)), "eve"))
    assert await told(control, notifying) == []


def test_a_notice_is_a_document_that_says_its_version() -> None:
    notice = Notice("id", "end", "2027-01-01T00:00:00Z", "job a ended")
    assert encode_notice(notice).startswith(b'{"version":1,"id":"id"')
    assert decode_notice(encode_notice(notice)) == notice
