"""What calls return and raise, as bytes."""

import json
import marshal
import pickle
from pathlib import Path

import pytest

from spillover.agent.runners import frames
from spillover.agent.runners.outcomes import (
    MOST_TRACE,
    RunnerCannotRun,
    failure,
    json_of,
    named_function,
    pickled,
    trace_of,
)
from spillover.wire.items import Items, pack_items


def test_values_are_pickled_the_fast_way_or_the_other() -> None:
    assert pickle.loads(pickled({"a": 1})) == {"a": 1}
    assert pickle.loads(pickled(lambda: 5))() == 5


def test_plain_data_are_json_and_nothing_else_is() -> None:
    assert json_of([1, "a", None, {"b": 2.5}]) == b'[1, "a", null, {"b": 2.5}]'
    for odd in (object(), {1, 2}, float("nan"), b"bytes"):
        with pytest.raises(RunnerCannotRun, match="not plain data"):
            json_of(odd)


def test_a_failure_can_be_read_even_if_its_exception_cannot() -> None:
    class Odd(Exception):
        def __reduce__(self) -> tuple[object, ...]:
            return (int, ("no number",))

    whole, said, trace = pickle.loads(failure(Odd("odd"), "x" * 50_000, plain=False))
    assert (whole, len(trace)) == (b"", MOST_TRACE)
    assert said.endswith("Odd: odd")
    whole, said, _ = pickle.loads(failure(KeyError("k"), "", plain=False))
    assert repr(pickle.loads(whole)) == "KeyError('k')"
    assert json.loads(failure(KeyError("k"), "t", plain=True)) == {"error": "KeyError: 'k'", "traceback": "t"}


def test_a_call_that_cannot_be_made_has_no_traceback() -> None:
    assert trace_of(RunnerCannotRun("because")) == "because\n"


def test_functions_are_found_by_module_and_path() -> None:
    assert named_function("json:dumps") is json.dumps
    assert named_function("pathlib:Path.cwd") == Path.cwd
    with pytest.raises(AttributeError):
        named_function("json:nothing")


def test_records_come_back_as_they_were() -> None:
    records = [(1, 0, b"value"), (2, 1, b"")]
    data = b""
    for record in records:
        body = marshal.dumps(record, frames.FORM)
        data += frames.LENGTH.pack(len(body)) + body
    assert frames.unpack_records(data) == records
    assert frames.unpack_records(b"") == []


def test_items_are_found_without_reading_the_others(tmp_path: Path) -> None:
    path = tmp_path / "items"
    path.write_bytes(pack_items([b"one", b"", b"three"]))
    items = Items(str(path))
    assert [items[0], items[1], items[2], items.count] == [b"one", b"", b"three", 3]
    with pytest.raises(IndexError, match="there are 3 items, and none for index 3"):
        items[3]
    with pytest.raises(IndexError):
        items[-1]
