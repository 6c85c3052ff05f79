"""Modules of the page that compute something, run by the browser itself."""

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from tests.browser.conftest import Site
from tests.support.processes import ServerProcess


@pytest.fixture(scope="module")
def page(shared_server: ServerProcess, chromium: Browser) -> Any:
    site = Site(shared_server, chromium)
    someone = site.person(role=None).goes_to("/sign-in")
    yield someone.page
    assert site.leave() == []


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        "yes",
        "1.5",
        "0x1f",
        "1e3",
        "2027-01-31",
        "null",
        "~",
        "a: b",
        "a #b",
        "- a",
        "a\n  b\n",
        "\na",
        "a\n\n",
        "a \nb",
        "\tx",
        "1:30",
        "=",
        "!a",
        "&a",
        "*a",
        "%a",
        "@a",
        "a\r\nb",
        "\u2028",
        "...",
        "---",
    ]
)
# The driver of the browser drops `__proto__` on the way there.
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts.filter(lambda key: key != "__proto__"), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.dictionaries(st.sampled_from(["run", "env", "spec", "array"]), values, max_size=4))
def test_job_files_that_the_page_writes_are_read_as_what_they_were(page: Page, value: dict[str, Any]) -> None:
    text = page.evaluate("async (value) => (await import('/assets/yaml.js')).yaml(value)", value)
    assert yaml.safe_load(text) == value, text


LINES = """async (chunks) => {
    const { Terminal } = await import('/assets/log.js');
    const terminal = new Terminal();
    const lines = [];
    for (const chunk of chunks) terminal.take(chunk, (line) => lines.push(line));
    lines.push(terminal.line);
    return lines.map((line) => line.pieces.map((piece) => [piece.text, piece.style]));
}"""


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        (["a\nb"], [[["a", {}]], [["b", {}]]]),
        (["\x1b[1;31mred\x1b[0m plain"], [[["red", {"b": True, "front": 1}], [" plain", {}]]]),
        (["\x1b[3", "1mred\x1b[", "39m"], [[["red", {"front": 1}]]]),
        (["10 %\r20 %\r\n"], [[["20 %", {}]], []]),
        (
            ["\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(Bc\x1b[2Kd"],
            [[["a", {}], ["b", {}], ["c", {}], ["d", {}]]],
        ),
        (
            ["\x1b[38;5;196mx\x1b[48;2;1;2;3my"],
            [[["x", {"front": "rgb(255 0 0)"}], ["y", {"front": "rgb(255 0 0)", "back": "rgb(1 2 3)"}]]],
        ),
        (["\x1b]never ends\n", "next"], [[], [["next", {}]]]),
        (["\x1b[31mkept\n", "red"], [[["kept", {"front": 1}]], [["red", {"front": 1}]]]),
    ],
)
def test_output_is_read_as_a_terminal_would(page: Page, chunks: list[str], lines: list[Any]) -> None:
    assert page.evaluate(LINES, chunks) == lines


def test_many_sequences_without_an_end_do_not_stop_the_page(page: Page) -> None:
    took = page.evaluate(
        """async () => {
            const { Terminal } = await import('/assets/log.js');
            const begun = performance.now();
            new Terminal().take('\\u001b]'.repeat(131072), () => {});
            return performance.now() - begun;
        }"""
    )
    assert took < 4_000, "looked at all that follows for each of them"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(
        st.text(st.sampled_from("a\n\r\x1b[]m;0318\\\x07?("), max_size=30) | st.just("\x1b[" + "1" * 5000),
        max_size=6,
    )
)
def test_any_output_is_read_to_its_end_however_it_comes(page: Page, chunks: list[str]) -> None:
    whole, parts = (page.evaluate(LINES, each) for each in (["".join(chunks)], chunks))
    if not any(
        len(chunk) > 1000 for chunk in chunks
    ):  # a sequence that is too long ends where its chunk does
        assert ["".join(text for text, _ in line) for line in whole] == [
            "".join(text for text, _ in line) for line in parts
        ]
    assert len(parts) == "".join(chunks).count("\n") + 1


def test_texts_that_a_spreadsheet_would_compute_are_quoted(page: Page) -> None:
    made = page.evaluate(
        """async () => (await import('/assets/costs.js')).csv(['a', 'b'], [['=1+1', 'x,"y"'], ['-1', 2]])"""
    )
    assert made == 'a,b\r\n\'=1+1,"x,""y"""\r\n\'-1,2\r\n'
