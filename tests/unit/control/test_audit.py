"""What people did: kept for longer than events, complete, and only for those who may see it."""

from typing import Any

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.controllers.auditing import Auditing
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.views import audit as views
from spillover.core.proposals import Act, Change, SetPriority
from spillover.model.ids import JobId
from spillover.model.units import DAY, SECOND
from spillover.ports.audit import AuditQuery
from spillover.ports.commands import CommandError, ErrorKind, EventFilter
from spillover.wire.api import Action, AuditView
from tests.support.inside import Inside
from tests.unit.control.test_projects import VISION, of


@pytest.fixture
def commands(control: Inside) -> LiveCommands:
    store = control.store
    return LiveCommands(
        Parts(
            control.loop,
            store.journal,
            store.archive,
            Hub(),
            control.specs,
            control.lookup,
            control.submitting,
            audit=store.audit,
        )
    )


@pytest.fixture
def auditing(control: Inside) -> Auditing:
    store = control.store
    return Auditing(control.loop, store.journal, store.archive, store.audit)


async def told(control: Inside, **asked: Any) -> list[AuditView]:
    store = control.store
    query = AuditQuery(**asked)
    page = await views.audit_page(control.loop, store.journal, store.archive, store.audit, query)
    return page.entries


def words(entries: list[AuditView]) -> list[tuple[str, str]]:
    return [(each.user, each.type) for each in entries]


async def test_what_people_did_is_told_at_once_and_without_what_the_server_did(control: Inside) -> None:
    (job,) = await control.submit("train")
    await control.propose(SetPriority(JobId(job), 7, "bob"))
    await control.propose(Change(Act.CANCEL, (JobId(job),), "eve"))
    found = await told(control)
    assert words(found) == [("eve", "job_ended"), ("bob", "job_reprioritised"), ("ada", "job_submitted")]
    assert [(each.job, each.project) for each in found] == [(job, "default")] * 3
    assert found[1].text == "priority 7, by bob"


async def test_the_answer_is_the_same_before_and_after_it_is_written(
    control: Inside, auditing: Auditing
) -> None:
    await auditing.catch_up()
    jobs = [(await control.submit(f"job{number}"))[0] for number in range(6)]
    await control.propose(Change(Act.HOLD, tuple(map(JobId, jobs[:3])), "bob"))
    before = await told(control)
    assert len(before) == 9
    await auditing.some()
    assert await control.store.audit.audited() == control.loop.gate.durable
    assert await told(control) == before
    await control.propose(Change(Act.RELEASE, (JobId(jobs[0]),), "eve"))
    both = await told(control)
    assert (both[0].user, both[1:]) == ("eve", before)
    assert [each.user for each in await told(control, user="bob")] == ["bob"] * 3


async def test_what_people_did_has_the_time_of_the_journal_however_late_it_became_durable(
    control: Inside,
) -> None:
    control.loop.listen(lambda *_: control.clock.pass_by(3))  # before it is told of
    auditing = Auditing(control.loop, control.store.journal, control.store.archive, control.store.audit)
    await auditing.catch_up()
    await control.submit("train")
    before = await told(control)
    await auditing.some()
    assert await told(control) == before


async def test_pages_follow_each_other_across_what_is_written_and_what_is_not(
    control: Inside, auditing: Auditing
) -> None:
    store = control.store
    await auditing.catch_up()
    for number in range(4):
        await control.submit(f"job{number}")
    await auditing.some()
    for number in range(3):
        await control.submit(f"later{number}")
    whole = await told(control)
    found: list[AuditView] = []
    query = AuditQuery(limit=2)
    while True:
        page = await views.audit_page(control.loop, store.journal, store.archive, store.audit, query)
        found += page.entries
        if page.next is None:
            break
        query = AuditQuery(limit=2, before=int(page.next))
    assert found == whole
    assert len(found) == 7


async def test_a_new_server_adds_what_an_earlier_one_did_not_write(
    control: Inside, auditing: Auditing
) -> None:
    (job,) = await control.submit("train")
    await control.propose(Change(Act.CANCEL, (JobId(job),), "eve"))
    await control.archive()
    assert not control.loop.state.jobs
    await auditing.catch_up()
    entries = await control.store.audit.list(AuditQuery(user="eve"))
    assert [(each.type, each.project) for each in entries] == [("job_ended", "default")], "of the archive"


async def test_events_stay_until_what_they_say_is_in_the_audit(control: Inside, auditing: Auditing) -> None:
    store = control.store
    kept = Retention(DAY, DAY, 3 * DAY)
    keeping = Keeping(control.loop, store.journal, store.archive, store.audit, kept)
    (job,) = await control.submit("train")
    await control.propose(Change(Act.CANCEL, (JobId(job),), "eve"))
    await control.archive()
    control.clock.pass_by(2 * DAY / SECOND)
    await control.submit("later")
    await control.loop.checkpoints.write()
    await keeping.sweep()
    assert await store.journal.oldest() == 1, "nothing is in the audit"
    await auditing.catch_up()
    await keeping.sweep()
    assert await store.journal.oldest() > 1
    assert words(await told(control, job=job)) == [("eve", "job_ended"), ("ada", "job_submitted")]
    control.clock.pass_by(2 * DAY / SECOND)
    await keeping.sweep()
    assert await told(control, job=job) == []


async def test_a_token_of_a_project_shows_what_was_done_in_that_project(
    control: Inside, commands: LiveCommands
) -> None:
    (own,) = await commands.submit([of("train", "vision")], "ada")
    await commands.submit([of("train", "nlp")], "bob")
    await commands.act(Action("cancel", [own]), "eve")
    mine = commands.of(VISION)
    page = await mine.audit(AuditQuery())
    assert [(each.user, each.project) for each in page.entries] == [("eve", "vision"), ("ada", "vision")]
    assert (await mine.audit(AuditQuery(project="nlp"))).entries == []
    assert len((await commands.audit(AuditQuery())).entries) == 3


async def test_a_job_of_the_audit_is_named_as_everywhere(commands: LiveCommands) -> None:
    train, other = await commands.submit([of("train", "vision"), of("other", "vision")], "ada")
    for ref in (train, train[:8], "train"):
        page = await commands.audit(AuditQuery(job=ref))
        assert [(each.job, each.type) for each in page.entries] == [(train, "job_submitted")], ref
    with pytest.raises(CommandError, match="there is no job 'tarin'") as raised:
        await commands.audit(AuditQuery(job="tarin"))
    assert raised.value.kind is ErrorKind.UNKNOWN
    gone = "abcdefghijkl"
    assert gone not in {train, other}
    assert (await commands.audit(AuditQuery(job=gone))).entries == [], "the audit outlives jobs"


async def test_an_audit_that_is_far_behind_says_so(control: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    await control.submit("train")
    monkeypatch.setattr(views, "MOST_BEHIND", 0)
    with pytest.raises(CommandError, match="is being completed from the journal") as raised:
        await told(control)
    assert raised.value.kind is ErrorKind.UNAVAILABLE


async def test_history_is_filtered_by_person_time_and_without_cycles(
    control: Inside, commands: LiveCommands
) -> None:
    await commands.submit([of("early", "vision")], "ada")
    control.clock.pass_by(60)
    between = control.loop.now()
    await commands.submit([of("late", "vision")], "bob")

    async def kinds(**only: Any) -> list[tuple[str | None, str]]:
        wanted = EventFilter(**only)
        return [(each.user, each.type) async for each in commands.events(0, False, None, wanted)]

    assert await kinds(user="bob") == [("bob", "job_submitted")]
    whole = await kinds()
    assert "decided" in {kind for _, kind in whole}
    assert await kinds(cycles=False) == [each for each in whole if each[1] != "decided"]
    early, late = await kinds(until=between), await kinds(since=between)
    assert early + late == whole
    assert ("ada", "job_submitted") in early
    assert ("bob", "job_submitted") in late
