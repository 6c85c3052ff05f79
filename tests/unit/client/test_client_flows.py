"""Waiting, following and repeating, without a server and without time passing."""

import inspect
from typing import Any

import msgspec
import pytest

from spillover.client import AsyncClient, Client, asks
from spillover.client.asks import ask
from spillover.client.errors import Refused, SpillError, Unavailable, Unreachable, WaitTimeout
from spillover.client.flows import LIMITED_TRIES, Attempts, HistoryFlow, OutputFlow, Past, waiting
from spillover.wire import endpoints
from spillover.wire.api import EventView, FieldProblem, JobView, Problem, ServerView
from spillover.wire.parameters import EventsQuery, OfJob


class Clock:
    """Time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def view(job: str, state: str, *, attempt: int = 1, cluster: str | None = None) -> JobView:
    return JobView(
        job, job, "u", "p", "q", state, cluster, None, attempt, None, "t", None, None, None, None, 0.0, None
    )


def test_both_faces_have_the_same_methods() -> None:
    def face(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") or name == "__init__"
        }

    assert face(Client) == face(AsyncClient)


def test_patience_is_spent_in_growing_steps(clock: Clock) -> None:
    attempts = Attempts(5.0, clock)
    error = Unreachable("no")
    delays: list[float] = []
    while clock.now < 5:
        delays.append(attempts.after(error, repeatable=True))
        clock.now += delays[-1]
    with pytest.raises(Unreachable):
        attempts.after(error, repeatable=True)
    assert delays[:4] == [0.05, 0.1, 0.2, 0.4]
    assert sum(delays) == pytest.approx(5.0)
    assert max(delays) == 1.0


def test_without_patience_nothing_is_repeated(clock: Clock) -> None:
    with pytest.raises(Unreachable):
        Attempts(0.0, clock).after(Unreachable("no"), repeatable=True)


def test_what_began_is_followed_with_more_patience(clock: Clock) -> None:
    attempts = Attempts(0.0, clock)
    attempts.succeeded(30.0)
    assert attempts.after(Unreachable("no", sent=True), repeatable=True) > 0


@pytest.mark.parametrize(
    ("error", "repeatable", "again"),
    [
        (Unreachable("no"), False, True),
        (Unreachable("no", sent=True), False, False),
        (Unreachable("no", sent=True), True, True),
        (Unavailable("no"), False, False),
        (Unavailable("no"), True, True),
        (Unavailable("no", kind="internal"), True, False),
        (Refused("no", status=400, kind="invalid"), True, False),
    ],
)
def test_only_what_does_no_harm_is_repeated(
    clock: Clock, error: SpillError, repeatable: bool, again: bool
) -> None:
    attempts = Attempts(5.0, clock)
    if again:
        assert attempts.after(error, repeatable=repeatable) > 0
    else:
        with pytest.raises(type(error)):
            attempts.after(error, repeatable=repeatable)


def test_a_server_that_says_when_is_asked_then(clock: Clock) -> None:
    assert Attempts(5.0, clock).after(Unavailable("no", retry_after=0.7), repeatable=True) == 0.7


def test_a_server_that_takes_no_more_is_asked_again_a_few_times_without_patience(clock: Clock) -> None:
    attempts, error = Attempts(0.0, clock), Unavailable("full", kind="limited", retry_after=2.0)
    assert [attempts.after(error, repeatable=True) for _ in range(LIMITED_TRIES)] == [2.0] * LIMITED_TRIES
    for again, limited in (
        (attempts, error),
        (Attempts(0.0, clock), Unavailable("full", kind="limited", retry_after=3600.0)),
    ):
        with pytest.raises(Unavailable):
            again.after(limited, repeatable=True)
    with pytest.raises(Unavailable):
        Attempts(0.0, clock).after(error, repeatable=False)


def test_a_limit_is_known_to_have_changed_nothing() -> None:
    body = msgspec.json.encode(
        {
            "type": "urn:spillover:problem:limited",
            "title": "",
            "status": 429,
            "detail": "full",
            "retry_after_s": 1.5,
        }
    )
    error = asks.refusal(asks.submit([{}]), 429, body)
    assert isinstance(error, Unavailable)
    assert (str(error), error.kind, error.retry_after) == ("full", "limited", 1.5)


def test_waiting_goes_on_until_all_have_ended(clock: Clock) -> None:
    flow = waiting(["name", "b"], None, clock)
    assert next(flow).path == "/v1/jobs/name/wait"
    assert flow.send(view("abc", "RUNNING")).path == "/v1/jobs/abc/wait"
    assert flow.send(view("abc", "FAILED")).path == "/v1/jobs/b/wait"
    with pytest.raises(StopIteration) as end:
        flow.send(view("b", "SUCCEEDED"))
    assert [job.id for job in end.value.value] == ["abc", "b"]


def test_waiting_ends_at_its_timeout(clock: Clock) -> None:
    flow = waiting(["a", "b", "c", "d", "e"], 40.0, clock)
    assert next(flow).query == {"timeout": "0.000"}
    assert flow.send(view("a", "QUEUED")).query == {"timeout": "30.000"}
    clock.now = 30
    assert flow.send(view("a", "QUEUED")).query == {"timeout": "10.000"}
    clock.now = 40
    with pytest.raises(WaitTimeout, match="a, b, c and 2 more did not end") as error:
        flow.send(view("a", "QUEUED"))
    assert error.value.jobs == ("a", "b", "c", "d", "e")


def test_waiting_for_nothing_is_over_at_once(clock: Clock) -> None:
    with pytest.raises(StopIteration):
        next(waiting([], None, clock))


def test_history_is_taken_up_after_the_last_event() -> None:
    history = HistoryFlow(EventsQuery(3, True, "j"))
    assert history.ask().query == {"after": "3", "job": "j", "follow": "true"}
    line = msgspec.json.encode(EventView(7, "t", "x", None, ""))
    assert history.take(b"") == []
    assert [event.revision for event in history.take(b"\n" + line + b"\n" + line[:5])] == [7]
    history.broke()
    assert history.ask().query["after"] == "7"
    assert [event.revision for event in history.take(line + b"\n")] == [7]


def test_history_that_is_none_is_told() -> None:
    with pytest.raises(Unavailable, match="not a Spillover server"):
        HistoryFlow(EventsQuery()).take(b"<html>\n")


def test_output_is_taken_up_at_its_byte() -> None:
    output = OutputFlow("j", follow=True, stderr=True, attempt=2, task=1)
    assert output.look() is None
    assert [*output.take(b""), *output.take(b"12345")] == [b"12345"]
    output.broke()
    assert output.ask().query == {
        "stream": "stderr",
        "attempt": "2",
        "task": "1",
        "offset": "5",
        "follow": "true",
    }
    assert not output.over
    output.ended()
    assert output.over


def test_output_that_is_not_followed_is_that_of_the_newest_attempt() -> None:
    output = OutputFlow("j", follow=False, stderr=False, attempt=None, task=0)
    assert output.look() is None
    assert output.ask().query == {}
    output.ended()
    assert output.over


def test_following_output_counts_the_bytes_of_each_attempt() -> None:
    output = OutputFlow("name", follow=True, stderr=False, attempt=None, task=0)
    output.looked(view("j", "RUNNING", cluster="onprem"))
    assert output.look() is None
    output.take(b"12345")
    output.ended()
    output.looked(view("j", "RUNNING", attempt=3, cluster="onprem"))
    assert output.ask().query == {"attempt": "2", "follow": "true"}
    output.take(b"123")
    output.broke()
    assert output.look() is None
    ask = output.ask()
    assert (ask.path, ask.query) == ("/v1/jobs/j/logs", {"attempt": "2", "offset": "3", "follow": "true"})
    output.ended()
    output.looked(view("j", "SUCCEEDED", attempt=3, cluster="onprem"))
    assert output.ask().query == {"attempt": "3", "follow": "true"}
    output.ended()
    assert not output.over
    output.looked(view("j", "SUCCEEDED", attempt=3, cluster="onprem"))
    assert output.over


@pytest.mark.parametrize(
    ("attempt", "cluster", "first"), [(1, None, "1"), (3, None, "2"), (3, "onprem", "3"), (1, "onprem", "1")]
)
def test_following_output_begins_with_the_last_attempt_that_had_a_place(
    attempt: int, cluster: str | None, first: str
) -> None:
    output = OutputFlow("j", follow=True, stderr=False, attempt=None, task=0)
    look = output.look()
    assert look is not None
    assert (look.path, look.query) == ("/v1/jobs/j/wait", {"timeout": "0.000"})
    output.looked(view("j", "QUEUED", attempt=attempt, cluster=cluster))
    assert output.ask().query["attempt"] == first


def test_a_followed_stream_that_ends_too_early_is_taken_up_after_a_pause() -> None:
    output = OutputFlow("j", follow=True, stderr=False, attempt=None, task=0)
    output.looked(view("j", "RUNNING", cluster="onprem"))
    output.take(b"12")
    for timeout in ("0.000", "1.000", "1.000"):
        output.ended()
        look = output.look()
        assert look is not None
        assert look.query == {"timeout": timeout}
        output.looked(view("j", "RUNNING", cluster="onprem"))
        assert output.ask().query == {"attempt": "1", "offset": "2", "follow": "true"}


def test_a_submission_is_repeatable_only_if_every_job_has_a_key() -> None:
    keyed: dict[str, Any] = {"spec": {"key": "k"}}
    not_keyed: dict[str, Any] = {"spec": {}}
    assert asks.submit([keyed, keyed]).repeatable
    assert not asks.submit([keyed, not_keyed]).repeatable
    assert not asks.submit([{"spec": 3}]).repeatable


def test_names_cannot_change_the_path() -> None:
    assert ask(endpoints.SHOW, OfJob("../x?y")).path == "/v1/jobs/..%2Fx%3Fy"
    assert ask(endpoints.SHOW, OfJob("")).path == "/v1/jobs/-"


def test_a_refusal_tells_all_its_problems() -> None:
    problem = Problem(
        "urn:spillover:problem:invalid",
        "",
        400,
        "2 problems",
        [FieldProblem("a", "b"), FieldProblem("", "c")],
    )
    error = asks.refusal(ask(endpoints.SERVER), 400, msgspec.json.encode(problem))
    assert isinstance(error, Refused)
    assert (error.status, error.kind, str(error)) == (400, "invalid", "2 problems\n  a: b\n  c")


def test_an_unknown_outcome_is_told_where_repeating_does_harm() -> None:
    body = msgspec.json.encode(Problem("urn:spillover:problem:unavailable", "", 503, "no", retry_after_s=2.0))
    error = asks.refusal(asks.submit([{}]), 503, body)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 2.0
    assert "may have taken effect" in str(error)
    assert "`key`" in str(error)
    assert str(asks.refusal(ask(endpoints.SERVER), 503, body)) == "no"


@pytest.mark.parametrize("status", [200, 404, 502])
def test_another_server_is_noticed(status: int) -> None:
    with pytest.raises(SpillError, match="not a Spillover server"):
        asks.answer(ask(endpoints.SERVER), status, b"<html>")


def test_jobs_that_ended_are_given_once_though_their_stream_breaks_off() -> None:
    def line(job: str) -> bytes:
        texts = {
            "id": job,
            "name": "n",
            "user": "u",
            "project": "p",
            "queue": "q",
            "state": "FAILED",
            "burst": "auto",
        }
        numbers = dict.fromkeys(
            (
                "submitted_ns",
                "ready_ns",
                "finished_ns",
                "ran_ns",
                "cost",
                "cpu_milli",
                "memory",
                "gpu",
                "data",
            ),
            0,
        )
        none = dict.fromkeys(
            (
                "started_ns",
                "cluster",
                "node",
                "walltime_ns",
                "estimate_ns",
                "predicted_ns",
                "deadline_ns",
                "max_cost",
            )
        )
        more = {"priority": 0, "attempt": 1, "tasks": 1, "needs": []}
        return msgspec.json.encode(texts | numbers | none | more) + b"\n"

    flow = Past("2027-01-01T00:00:00Z", None)
    assert flow.ask().query == {"since": "2027-01-01T00:00:00Z"}
    assert [job.id for job in flow.take(line("a") + line("b") + line("c")[:9])] == ["a", "b"]
    flow.broke()
    assert [job.id for job in flow.take(line("a") + line("b") + line("c"))] == ["c"]
    flow.ended()
    assert flow.over
    with pytest.raises(Unavailable, match="not a Spillover server of this version"):
        flow.take(b"{}\n")


@pytest.mark.parametrize(
    ("after", "follow", "asks_first"), [(None, True, True), (3, True, False), (None, False, False)]
)
def test_history_that_is_followed_from_now_on_begins_where_it_ends_now(
    after: int | None, follow: bool, asks_first: bool
) -> None:
    history = HistoryFlow(EventsQuery(after, follow))
    look = history.look()
    assert (look is not None and look.path == "/v1/server") is asks_first
    if asks_first:
        history.looked(server_at(7))
        assert history.look() is None
        assert history.ask().query == {"after": "7", "follow": "true"}
        history.broke()
        assert history.look() is None


def server_at(revision: int) -> ServerView:
    """A server, of which only that is of interest."""
    known = {field.name: None for field in msgspec.structs.fields(ServerView) if field.required}
    return ServerView(**{**known, "revision": revision})  # type: ignore[arg-type] # nothing else is read
