"""What would let a job start now, in words, with what to send to make it so."""

import threading
from typing import Any

import pytest

from spillover.control.requests import counterfactual
from spillover.deciding.counterfactual import ends_before
from spillover.model.tokens import TokenRole
from spillover.ports.callers import Caller
from spillover.ports.commands import CommandError, ErrorKind
from tests.support.inside import Inside
from tests.unit.control.test_overview import begin, end, form, start


async def test_a_smaller_job_would_start_and_its_change_can_be_sent(control: Inside) -> None:
    commands = await begin(control, cpus=4)
    (busy,) = await control.submit("busy", resources={"cpu": 3}, estimate="1h")
    (train,) = await control.submit("train", resources={"cpu": 2})
    await start(control, busy)
    found = await commands.changes(train)
    assert found.complete
    assert found.sentence == (await commands.why(train)).sentence
    told = {each.what: each for each in found.changes}
    assert told["cpu"].sentence == "with 1 CPU instead of 2, it would start on onprem"
    assert told["burst"].sentence == "if it were rented at once (`burst: always`), it would start on cloud"
    assert (told["cpu"].changes, told["burst"].changes) == ({"spec": {"resources": {"cpu": "1000m"}}}, None)
    assert [(each.id, each.name) for each in found.ends] == [(busy, "busy")]
    assert (await commands.job(train)).state == "QUEUED"


async def test_what_ends_first_is_looked_for_beside_the_loop_and_not_for_ever(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = await begin(control, cpus=4)
    (busy,) = await control.submit("busy", resources={"cpu": 3}, estimate="1h")
    (train,) = await control.submit("train", resources={"cpu": 2})
    await start(control, busy)
    threads: list[threading.Thread] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return ends_before(*given)

    monkeypatch.setattr(counterfactual, "ends_before", noted)
    assert [each.id for each in (await commands.changes(train)).ends] == [busy]
    assert threading.main_thread() not in threads
    monkeypatch.setattr(counterfactual, "time_for", lambda engine: 0)
    assert (await commands.changes(train)).ends == []


async def test_it_says_who_is_ahead(control: Inside) -> None:
    commands = await begin(control)
    await control.submit("busy", resources={"cpu": 2})
    waiting = await control.submit(*(f"job-{number}" for number in range(8)))
    found = await commands.changes(waiting[-1])
    assert [each.name for each in found.ahead] == [f"job-{number}" for number in range(5)]
    assert found.ahead_in_all == 7


async def test_jobs_of_other_projects_have_no_names(control: Inside) -> None:
    commands = await begin(control)
    ids = await control.submitting.submit(
        [form("theirs", "theirs", 2), form("next", "theirs"), form("mine", "mine")], "ada"
    )
    await start(control, ids[0])
    found = await commands.of(Caller(TokenRole.READ, "t", project="mine")).changes("mine")
    assert [(each.id, each.name, each.user) for each in found.ahead] == [
        (None, "a job of another project", "")
    ]
    assert {each.id for each in found.ends} == {None}


async def test_a_job_that_runs_or_has_ended_has_nothing_to_change(control: Inside) -> None:
    commands = await begin(control)
    (job,) = await control.submit("train")
    assert (await commands.changes(job)).changes == []
    await start(control, job)
    await end(control, job)
    with pytest.raises(CommandError, match="has ended") as error:
        await commands.changes(job)
    assert error.value.kind is ErrorKind.CONFLICT


async def test_a_search_that_takes_too_long_tells_what_it_has_found(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = await begin(control, cpus=4)
    await control.submit("busy", resources={"cpu": 3})
    (train,) = await control.submit("train", resources={"cpu": 2})
    monkeypatch.setattr(counterfactual, "MOST_TIME", 0)
    found = await commands.changes(train)
    assert (found.changes, found.tried, found.complete) == ([], 0, False)
