from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from spillover.forms.checking import check, nearest
from spillover.forms.problems import MOST_SHOWN, BadForm, Findings, FormProblem, path_text


class Inner(Struct, forbid_unknown_fields=True):
    name: str
    kind: Literal["big", "small"] = "big"


class Outer(Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=0, le=5)]
    ratio: float = 0
    flag: bool = False
    note: Annotated[str, Meta(min_length=1, max_length=3)] | None = None
    inner: Inner | None = None
    many: Annotated[list[Inner | str], Meta(max_length=3)] = []
    pairs: dict[str, str] = {}
    quantity: str | int | float = 1
    anything: Any = None


def problems(value: object) -> dict[str, str]:
    found = Findings()
    check(Outer, value, found)
    return {problem.path: problem.message for problem in found.located()}


def test_what_is_right_has_no_problem_and_comes_back_whole() -> None:
    value = {"count": 1, "ratio": 1, "inner": {"name": "x"}, "many": ["a", {"name": "b"}], "anything": [{}]}
    found = Findings()
    assert check(Outer, value, found) == value
    assert found.found == []


def test_every_problem_is_told_at_once() -> None:
    assert problems(
        {
            "cuont": 3,
            "ratio": "x",
            "flag": 1,
            "note": "long",
            "inner": {"kind": "bigg"},
            "many": [{"name": 1}, 2],
            "pairs": {"a": 4, "b": True},
            "quantity": [],
        }
    ) == {
        "cuont": "unknown field; did you mean `count`?",
        "ratio": "must be a number, found the text 'x'",
        "flag": "must be true or false, found 1",
        "note": "has 4 characters; the maximum is 3",
        "inner.kind": "'bigg' must be big or small; did you mean `big`?",
        "inner.name": "is missing",
        "many[0].name": 'must be text, found 1; write it in quotes: "1"',
        "many[1]": 'must be a mapping or text, found 2; write it in quotes: "2"',
        "pairs.a": 'must be text, found 4; write it in quotes: "4"',
        "pairs.b": 'must be text, found true; write it in quotes: "true"',
        "quantity": "must be text or a whole number or a number, found a list",
        "count": "is missing",
    }


def test_bounds_are_told() -> None:
    assert problems({"count": -1}) == {"count": "-1 is too small; the minimum is 0"}
    assert problems({"count": 6}) == {"count": "6 is too large; the maximum is 5"}
    assert problems({"count": 1, "many": ["a"] * 4}) == {"many": "has 4 entries; the maximum is 3"}


def test_something_else_than_a_mapping_is_told() -> None:
    assert problems([1]) == {"": "must be a mapping, found a list"}
    assert problems(None) == {"": "must be a mapping, found nothing"}


def test_what_is_right_keeps_its_place_when_wrong_items_are_left_out() -> None:
    found = Findings()
    right = check(Outer, {"count": 1, "many": ["a", 1, "b"]}, found)
    assert right == {"count": 1, "many": ["a", "b"]}
    assert found.written(("many", 1)) == ("many", 2)


def test_the_nearest_word_is_named_or_all_are() -> None:
    assert nearest("not-befor", ["not_before", "array"]) == "; did you mean `not_before`?"
    assert nearest("xyz", ["fifo", "priority"]) == "; expected one of fifo, priority"


def test_a_problem_is_one_line() -> None:
    assert str(FormProblem("train.yaml", 7, "spec.cpu", "is bad")) == "train.yaml:7: spec.cpu: is bad"
    assert str(FormProblem("", None, "", "is bad")) == "is bad"
    assert path_text(("spec", "env", "a\nb", "c", 0)) == "spec.env['a\\nb'].c[0]"


def test_many_problems_are_counted() -> None:
    error = BadForm([FormProblem("", None, "", str(number)) for number in range(MOST_SHOWN + 7)])
    assert len(error.problems) == MOST_SHOWN
    assert str(error).endswith("\nand 7 more problems")
