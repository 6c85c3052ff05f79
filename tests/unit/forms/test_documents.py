import time

import pytest
import yaml

from spillover.forms import documents
from spillover.forms.documents import MOST_BYTES, Document, read_documents
from spillover.forms.problems import BadForm


@pytest.fixture(autouse=True, params=["as installed", "in Python alone"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may have been built without its C parser: both say the same."""
    if request.param == "in Python alone":
        monkeypatch.setattr(documents, "_LOADER", yaml.SafeLoader)


def one(text: str) -> Document:
    (document,) = read_documents(text, "x.yaml")
    return document


def problem_of(text: bytes | str) -> str:
    with pytest.raises(BadForm) as error:
        read_documents(text, "x.yaml")
    (problem,) = error.value.problems
    assert "\n" not in str(problem)
    return str(problem)


def test_values_come_with_the_line_of_their_key() -> None:
    document = one("a: 1\nb:\n  c: [x,\n   y]\n")
    assert document.value == {"a": 1, "b": {"c": ["x", "y"]}}
    assert document.lines[("a",)] == 1
    assert document.lines[("b", "c")] == 3
    assert document.lines[("b", "c", 1)] == 4
    assert document.problems == ()


def test_several_documents_keep_their_own_lines_and_empty_ones_are_left_out() -> None:
    first, second = read_documents("a: 1\n---\n---\nb: 2\n", "x.yaml")
    assert (first.value, second.value) == ({"a": 1}, {"b": 2})
    assert second.lines[("b",)] == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2027-01-31T18:00:00Z", "2027-01-31T18:00:00Z"),
        ("2027-01-31", "2027-01-31"),
        ("1:30", "1:30"),
        ("on", "on"),
        ("no", "no"),
        ("1_000", "1_000"),
        ("010", "010"),
        ("'4'", "4"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("-7", -7),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("!!str 4", "4"),
        ("!!int 4", 4),
        ("|\n   two\n   lines\n", "two\nlines\n"),
    ],
)
def test_scalars_are_read_as_people_mean_them(text: str, value: object) -> None:
    assert one(f"a: {text}\n").value == {"a": value}


def test_on_is_a_key() -> None:
    assert one("{job: x, on: success}").value == {"job": "x", "on": "success"}


def test_json_is_read_even_with_tabs_and_escaped_pairs() -> None:
    assert one('{"a": [1, null, true, "\\u00e9"]}').value == {"a": [1, None, True, "é"]}
    assert one('{\n\t"a": "\\ud83d\\ude00"\n}').value == {"a": "😀"}


def test_a_byte_order_mark_is_not_content() -> None:
    assert read_documents(b"\xef\xbb\xbfa: 1", "x")[0].value == {"a": 1}


def test_aliases_repeat_values() -> None:
    assert one("a: &x {b: 1}\nc: *x\n").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n---\n", "null\n"])
def test_an_empty_file_is_said_to_be_empty(text: str) -> None:
    assert problem_of(text) == "x.yaml: is empty; write a configuration"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1,\nb: 2\n", 2), ("a: 1\n\tb: 2\n", 2), ("%bad\n", 1), ('a: "x\n', 1), ("{", 1), ("a: \x07", 1)],
)
def test_what_is_not_yaml_is_refused_with_its_line(text: str, line: int) -> None:
    assert problem_of(text).startswith(f"x.yaml:{line}: is not valid YAML: ")


def test_bytes_that_are_not_utf8_are_refused_with_their_line() -> None:
    assert problem_of(b"a: 1\nb: \xff\n") == "x.yaml:2: is not UTF-8 text; save it as UTF-8"
    assert "UTF-8" in problem_of("a: 1".encode("utf-16"))
    assert "UTF-8" in problem_of("a: \udcff")


def test_a_nul_is_refused() -> None:
    assert problem_of(b"a: 1\n\0") == "x.yaml:2: contains a NUL byte; this is not a text file"


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    before = time.perf_counter()
    assert "larger than 4 MiB" in problem_of(b"a: [" * MOST_BYTES)
    assert time.perf_counter() - before < 2


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert "expands aliases" in problem_of("\n".join(lines))


def test_a_chain_of_aliases_is_refused_when_it_is_too_deep() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)]
    assert "nested deeper" in problem_of("\n".join(lines))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 10_000 + "x", "? " * 5_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "nested deeper" in problem_of(text)


def test_aliases_of_themselves_or_of_nothing_are_refused() -> None:
    assert problem_of("a: &a [*a]") == "x.yaml:1: uses the alias 'a' inside its own definition"
    assert problem_of("\na: *b") == "x.yaml:2: uses the undefined alias 'b'"


def problems(text: str) -> list[str]:
    return [str(problem) for problem in one(text).problems]


def test_keys_that_come_twice_are_told_with_both_lines() -> None:
    assert problems("{a: 1, a: 2}") == ["x.yaml:1: a: is defined twice in line 1; remove one"]
    assert problems("a: 1\nb: 2\na: 3\n") == ["x.yaml:3: a: is defined twice, in lines 1 and 3; remove one"]


def test_keys_that_are_not_text_are_told() -> None:
    assert problems("x:\n  1: a\n  null: b\n  [c]: d\n  <<: e\n") == [
        "x.yaml:2: x: the key 1 is not text; write it in quotes",
        "x.yaml:3: x: the key null is not text; write it in quotes",
        "x.yaml:4: x: a mapping or list cannot be a key",
        "x.yaml:5: x: merge keys (`<<`) are not supported; repeat the fields",
    ]


@pytest.mark.parametrize("text", [".nan", ".inf", "-.INF", "1e999", "9" * 30, "9" * 100 + ".5", str(2**63)])
def test_numbers_that_cannot_be_counted_with_are_told(text: str) -> None:
    (problem,) = problems(f"a: {text}")
    assert problem.startswith("x.yaml:1: a: ")


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!local", "!!timestamp", "!!binary", "!!int"])
def test_tags_construct_nothing(tag: str) -> None:
    (problem,) = problems(f"a: {tag} x")
    assert "is not supported" in problem


def test_a_tab_that_indents_is_named() -> None:
    hint = "; indent with spaces, not tabs"
    assert problem_of("a:\n\tb: 1\n").endswith(hint)
    assert problem_of("a:\n  b:\n  \tc: 1\n").endswith(hint)
    assert not problem_of("a: {b: [\n").endswith(hint)
    assert not problem_of("a: @b\tc\n").endswith(hint)
