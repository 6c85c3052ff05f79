"""Calls as arguments of other calls: a graph that the server runs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest

from spillover import Client, Executor
from spillover.client import CallFailed
from tests.support.processes import ServerProcess

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def client(standing: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    with Client(data=standing.data) as client:
        yield client


class Box:
    """An object of the caller's own, with a call in it."""

    def __init__(self, content: object) -> None:
        self.content = content


def square(x: int) -> int:
    return x * x


def fail(text: str) -> None:
    raise ValueError(text)


def test_the_value_of_a_call_is_an_argument_of_the_next(client: Client) -> None:
    three = client.call(square, 3)
    sum_of = client.call(lambda x, *, plus: x + plus, three, plus=client.call(square, three))
    assert sum_of.result(60) == 9 + 81
    assert client.job(sum_of.job).spec["spec"]["after"]


def test_calls_are_found_in_lists_mappings_and_objects(client: Client) -> None:
    one, two = client.call(square, 1), client.call(square, 2)
    told = client.call(
        lambda x: (x["a"], x["b"][0].content, x["b"][1]), {"a": [one, one], "b": (Box(two), 7)}
    )
    assert told.result(60) == ([1, 1], 4, 7)


def test_values_of_maps_and_of_their_members_are_passed_on(client: Client) -> None:
    squares = client.map(square, range(20))
    total = client.call(sum, squares)
    last = client.call(square, squares[-1])
    assert total.result(60) == sum(x * x for x in range(20))
    assert last.result(60) == 361**2
    pairs = client.map(lambda x, y: x + y, [client.call(square, x) for x in range(5)], range(5))
    assert pairs.results(60) == [x * x + x for x in range(5)]


def test_large_and_many_values_are_passed_on(client: Client) -> None:
    large = client.call(lambda: b"x" * 1_000_000)
    assert client.call(len, large).result(60) == 1_000_000
    many = client.map(lambda x: bytes([x]) * 10_000, range(50))
    assert client.call(lambda them: b"".join(them)[::10_000], many).result(60) == bytes(range(50))


def test_nobody_needs_to_be_connected_while_the_graph_runs(standing: ServerProcess, tmp_path: Path) -> None:
    with Client(data=standing.data) as client:
        call = client.call(time.sleep, 1, options={"workdir": "/"})
        after = client.call(lambda value: (value, "done"), call, options={"workdir": "/"})
        last = client.call(len, after, options={"workdir": "/"})
    with Client(data=standing.data) as other:
        (job,) = other.wait(last.job, timeout=60)
        assert job.state == "SUCCEEDED"
        assert other.call_of(last.job).result(60) == 2


def test_a_failure_cancels_what_depends_on_it_and_is_named(client: Client) -> None:
    bad = client.call(fail, "of all things")
    after = client.call(square, bad)
    last = client.call(square, after)
    with pytest.raises(CallFailed, match=bad.job) as caught:
        after.result(60)
    assert "of all things" in str(caught.value)
    with pytest.raises(CallFailed, match=after.job) as far:
        last.result(60)
    assert f"because of {bad.job}: ValueError: of all things" in str(far.value)
    assert client.job(last.job).state == "CANCELLED"


def test_a_call_of_what_has_ended_and_was_archived_gets_its_value(client: Client) -> None:
    nine = client.call(square, 3)
    nine.result(60)
    again = client.call_of(nine.job)
    with Executor(client) as executor:
        assert executor.submit(square, again).result(60) == 81


def test_what_cannot_be_passed_is_refused_at_once(client: Client) -> None:
    call = client.call(square, 3)
    with pytest.raises(TypeError, match="a call cannot be pickled"):
        client.call(lambda: call)
