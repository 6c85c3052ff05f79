"""What calls become, and what becomes of their results, without a server."""

import pickle
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spillover.agent.runners.outcomes import RunnerCannotRun, failure, trace_of
from spillover.client.calling import INLINE, CallOptions, a_call, a_map
from spillover.client.errors import CallFailed, Refused, RemoteError
from spillover.client.executors import AsyncExecutor, Executor
from spillover.client.face import Behind
from spillover.client.gathering import MOST_RANGES, Gathering, error_of, outcome_of
from spillover.client.handles import Call
from spillover.client.synchronous.calls import Map
from spillover.client.synchronous.client import Client
from spillover.client.synchronous.sender import Sender
from spillover.forms.jobs.reading import BadForm, read_jobs, to_doc
from spillover.model import ranges
from spillover.model.job import PythonCall
from spillover.wire.api import ReasonView, ResultPage, ResultView
from spillover.wire.items import MAGIC


def ended(job: str = "abc", state: str = "SUCCEEDED", **more: Any) -> ResultView:
    fields: dict[str, Any] = {
        "exit_code": 0,
        "signal": None,
        "reason": None,
        "value": None,
        "value_digest": None,
    }
    return ResultView(job, state, **(fields | more))


def asked(gathering: Gathering, first: int = 0) -> str:
    ask = gathering.ask(0.0, first)
    assert ask is not None
    assert ask.body is not None
    return ask.body.decode()


def test_a_call_is_a_job_with_its_function_as_a_blob() -> None:
    parcel = a_call(len, ("abc",), {}, {"cpu": 2, "name": "counter"})
    python = parcel.doc["spec"]["python"]
    (blob,) = parcel.blobs.items()
    assert python["function"] == blob[0]
    assert blob[1].startswith(MAGIC + f"{sys.version_info[0]}.{sys.version_info[1]}\n".encode())
    assert pickle.loads(blob[1].partition(b"\n")[2]) is len
    assert pickle.loads(python["arguments"]) == (("abc",), {})
    assert parcel.doc["metadata"]["name"] == "counter"
    assert parcel.doc["spec"]["resources"] == {"cpu": 2}
    assert parcel.doc["spec"]["key"].startswith("call-")


def test_a_call_needs_the_python_that_pickled_it() -> None:
    own = f"python:{sys.version_info[0]}.{sys.version_info[1]}"
    assert a_call(len, ("abc",), {}, None).doc["spec"]["needs"] == [own]
    assert a_call(len, ("abc",), {}, {"needs": ["fast"]}).doc["spec"]["needs"] == ["fast", own]
    assert a_call(len, ("abc",), {}, {"needs": ["python:3.9"]}).doc["spec"]["needs"] == ["python:3.9"]


def test_large_arguments_are_a_blob_too() -> None:
    parcel = a_call(len, (b"x" * INLINE,), {"a": 1}, None)
    python = parcel.doc["spec"]["python"]
    assert pickle.loads(python["arguments"]) == ((), {"a": 1})
    assert set(parcel.blobs) == {python["function"], python["items"]}
    assert "array" not in parcel.doc["spec"]


def test_a_map_is_one_array() -> None:
    parcel, size = a_map(max, [(1, 2), (3, 4)], {}, None)
    assert size == 2
    assert parcel is not None
    assert parcel.doc["spec"]["array"] == "0-1"
    assert "arguments" not in parcel.doc["spec"]["python"]
    assert a_map(max, [], {}, None) == (None, 0)


def test_names_come_from_functions() -> None:
    assert a_call(lambda: 1, (), {}, None).doc["metadata"]["name"] == "lambda"

    class Callable_:  # noqa: N801 - its name is what is tested
        def __call__(self) -> None: ...

    assert a_call(Callable_(), (), {}, None).doc["metadata"]["name"] == "Callable"


def test_missing_results_are_asked_for_and_no_others() -> None:
    gathering = Gathering("abc", 10)
    assert '"members":"0-9"' in asked(gathering)
    assert gathering.take(ResultPage([ended("abc.3"), ended("abc.4"), ended("abc.0")])) == [3, 4, 0]
    assert '"members":"1-2,5-9"' in asked(gathering)
    assert '"members":"7-9"' in asked(gathering, first=7)
    assert gathering.take(ResultPage([ended("abc.3")])) == []
    assert not gathering.complete
    gathering.take(ResultPage([ended(f"abc.{index}") for index in range(10)]))
    assert gathering.complete


def test_what_came_to_two_threads_at_once_is_asked_for_once_more_at_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathering = Gathering("abc", 4)
    minus = ranges.minus

    def interrupted(one: ranges.Ranges, other: ranges.Ranges) -> ranges.Ranges:
        monkeypatch.setattr(ranges, "minus", minus)
        gathering.take(ResultPage([ended("abc.1")]))
        return minus(one, other)

    monkeypatch.setattr(ranges, "minus", interrupted)
    gathering.take(ResultPage([ended("abc.0")]))
    assert gathering.results.keys() == {0, 1}
    assert gathering.take(ResultPage([ended("abc.1")])) == []
    assert '"members":"2-3"' in asked(gathering)


def test_a_request_names_a_bounded_number_of_ranges() -> None:
    gathering = Gathering("abc", 10 * MOST_RANGES)
    gathering.take(ResultPage([ended(f"abc.{index}") for index in range(0, 10 * MOST_RANGES, 2)]))
    assert asked(gathering).count(",") < MOST_RANGES + 10


def test_a_single_job_is_asked_for_as_it_is() -> None:
    gathering = Gathering("abc", None)
    assert '"members":null' in asked(gathering)
    assert gathering.take(ResultPage([ended("abc")])) == [0]
    assert gathering.complete


def test_values_are_pickled_or_plain() -> None:
    assert outcome_of(ended(), pickle.dumps({1, 2})) == {1, 2}
    assert outcome_of(ended(), b'{"a": [1]}') == {"a": [1]}
    assert outcome_of(ended(), None) is None


def test_what_was_raised_is_raised_with_its_cause() -> None:
    value = pickle.dumps((pickle.dumps(KeyError("k")), "KeyError: 'k'", "Traceback ..."))
    error = error_of(ended(state="FAILED"), value)
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteError)
    assert error.__cause__.traceback == "Traceback ..."
    with pytest.raises(KeyError):
        outcome_of(ended(state="FAILED"), value)


def test_a_call_that_could_not_be_made_is_an_error_of_the_client() -> None:
    said = "No module named 'numpy'; install it there"
    earlier = pickle.dumps((pickle.dumps(RunnerCannotRun(said)), f"RunnerCannotRun: {said}", said))
    for value in (failure(RunnerCannotRun(said), trace_of(RunnerCannotRun(said)), plain=False), earlier):
        error = error_of(ended(state="FAILED"), value)
        assert type(error) is CallFailed
        assert str(error) == f"abc FAILED: {said}"


@pytest.mark.parametrize("whole", [b"", b"no pickle", pickle.dumps("no exception")])
def test_what_cannot_be_raised_is_told(whole: bytes) -> None:
    error = error_of(ended(state="FAILED"), pickle.dumps((whole, "Odd: it", "Traceback of it")))
    assert type(error) is RemoteError
    assert "Odd: it" in str(error)
    assert "Traceback of it" in str(error)
    plain = error_of(ended(state="FAILED"), b'{"error": "E: x", "traceback": "T"}')
    assert type(plain) is RemoteError


def test_a_call_without_a_value_says_why() -> None:
    reason = ReasonView("past_walltime", "reached its walltime", never=False, details={})
    error = error_of(ended(state="TIMED_OUT", reason=reason), None)
    assert type(error) is CallFailed
    assert str(error) == "abc TIMED_OUT: reached its walltime"
    assert (error.job, error.state) == ("abc", "TIMED_OUT")


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("{}", "needs either `call` or `function`"),
        ('{call: "m:f", function: "' + "a" * 64 + '"}', "needs either `call` or `function`"),
        ("{function: abc}", "is not a SHA-256"),
        ('{call: "m:f", items: "' + "a" * 64 + '"}', "is only allowed with `function`"),
        ('{function: "' + "a" * 64 + '", args: [1]}', "is only allowed with `call`"),
        ('{function: "' + "a" * 64 + '", values: [prepare]}', "is not the full id of a job"),
        ('{call: "m:f", values: [aaaaaaaaaaaa]}', "is only allowed with `function`"),
    ],
)
def test_what_a_job_file_says_of_calls_is_checked(python: str, said: str) -> None:
    text = f"apiVersion: spillover/v1\nkind: Job\nspec: {{python: {python}}}\n"
    with pytest.raises(BadForm) as bad:
        read_jobs(text.encode(), "job.yaml")
    assert any(said in problem.message for problem in bad.value.problems)


def test_a_map_may_limit_how_many_of_its_calls_run_at_a_time() -> None:
    parcel, _ = a_map(len, [("a",), ("b",)], {}, {"at_a_time": 1, "hold": True})
    assert parcel is not None
    assert (parcel.doc["spec"]["array"], parcel.doc["spec"]["hold"]) == ("0-1%1", True)
    assert "at_a_time" not in parcel.doc["spec"]


def test_a_call_runs_after_the_calls_in_its_arguments() -> None:
    runs = Map[int](Client("http://127.0.0.1:1", "token")._behind, Gathering("bbbbbbbbbbbb", 2))
    one = Call[int](Client("http://127.0.0.1:1", "token")._behind, Gathering("aaaaaaaaaaaa", None))
    parcel = a_call(print, ([one, {"b": runs}],), {"end": one}, {"workdir": "/"})
    (form,) = read_jobs(msgspec.json.encode(parcel.doc), "job.json")
    assert isinstance(form.spec.work, PythonCall)
    assert [each.job for each in form.spec.work.values] == [
        "aaaaaaaaaaaa",
        "bbbbbbbbbbbb.0",
        "bbbbbbbbbbbb.1",
    ]
    assert [(each.ref, each.on) for each in form.after] == [
        ("aaaaaaaaaaaa", "success"),
        ("bbbbbbbbbbbb", "success"),
    ]
    assert to_doc(form)["spec"]["python"]["values"] == parcel.doc["spec"]["python"]["values"]


def test_a_call_names_a_bounded_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.client.earlier.MOST", 3)
    runs = Map[int](Client("http://127.0.0.1:1", "token")._behind, Gathering("bbbbbbbbbbbb", 4))
    with pytest.raises(ValueError, match="refer to more than 3 calls"):
        a_call(print, (runs,), {}, None)


@pytest.mark.parametrize("environment", ["requirements.txt", ["numpy"], 3])
def test_an_environment_that_is_not_written_as_one_is_refused_with_what_to_write(environment: object) -> None:
    with pytest.raises(Refused, match=r'write \{"requirements": "requirements.txt"\}'):
        a_call(len, ("abc",), {}, {"environment": environment})  # type: ignore[arg-type]


def test_a_call_in_an_image_asks_for_no_version_because_only_the_image_has_one() -> None:
    options: CallOptions = {"environment": {"image": "python:3.12"}, "needs": ["ssd"]}
    assert a_call(len, ("abc",), {}, options).doc["spec"]["needs"] == ["ssd"]
    assert options["needs"] == ["ssd"]


def made(kind: Any, **where: Any) -> object:
    return kind(**where)


def nowhere() -> Client:
    return Client("http://127.0.0.1:9", "token")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda client: client.call(7), r"^int is not a function; write `call\(f, 3\)` and not `call\(f\(3\)\)`$"),
        (lambda client: client.map([1], [2]), "^list is not a function"),
        (lambda client: client.submit(len), r"^submit takes jobs; write client\.call\(function, \.\.\.\)"),
        (lambda client: client.job(a_handle()), "^Call is not the id or the name of a job; write `.job` behind it$"),
        (lambda client: client.why(a_handle()), "^Call is not the id"),
        (lambda client: client.wait(a_handle()), "^Call is not the id"),
        (lambda client: client.cancel("a", a_handle()), "^Call is not the id"),
        (lambda client: client.job(7), "^int is not the id or the name of a job$"),
        (lambda client: client.exec("a", "ls -l"), r"^'ls -l' is one text; write a list, as in \[\"sh\", \"-c\", 'ls -l'\]$"),
        (lambda _: made(Executor, max_workers=4), "^an executor has no max_workers: the cluster says how many"),
        (lambda _: made(Executor, walltime="2m"), r'^walltime is a field of the jobs; write it in options, as in options=\{"walltime"'),
        (lambda _: made(Executor, cpu=2), "^cpu is a field of the jobs"),
        (lambda _: made(AsyncExecutor, threads=2), "^an executor has no threads; it takes client or server, token"),
    ],
)  # fmt: skip
def test_habits_of_other_libraries_are_told_what_to_write(asked: Callable[[Any], object], told: str) -> None:
    with nowhere() as client, pytest.raises(TypeError, match=told):
        asked(client)


def a_handle() -> Call[int]:
    return Call[int](Behind(Sender.__new__(Sender), None, None, None), Gathering("abc", None))  # type: ignore[arg-type]
