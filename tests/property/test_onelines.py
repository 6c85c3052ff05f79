"""Texts on one line: whatever is written is read or refused with a problem, and what is written for a value is read as that value."""

import string
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.config.clusteroption import read_options
from spillover.forms.jobs.arrays import ArrayError, parse_array
from spillover.forms.oneline import Piece
from spillover.forms.policies import REQUIRED
from spillover.forms.policystring import named_axes, points, read_policies
from spillover.forms.problems import BadForm
from spillover.forms.quantities import MOST_TIME
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import (
    LINE_AXES,
    MOST_RESERVATIONS,
    OPTIONS,
    Option,
    Takes,
    write_policies,
)
from spillover.sim.fleet import read_owned, read_rented, read_site
from spillover.sim.traces.recipe import read_recipe

WORDS: Final = (
    *LINE_AXES,
    *(policy.partition(".")[2] for policy in OPTIONS),
    *("depth", "unknown_runtime", "coefficient", "shares", "max_wait", "max_queue"),
    *(
        "nan",
        "inf",
        "-1",
        "1e400",
        "1e-400",
        "9" * 30,
        "0",
        "1",
        "2.5",
        "²",
        "٣",
        "1h",
        "0.1h..4h/8",
        "1e20..2e20/3",
    ),
    *("x", "8gpu", "48cpu", "256GB", "gpu", "cpu", "memory_gib", "step", "startup"),
    *(
        "synthetic:",
        "jobs",
        "load",
        "runtime",
        "lognormal",
        "constant",
        "gpus",
        "like",
        "users",
        "1:0.7|4:0.3",
    ),
    *("agents", "kubernetes", "owned", "rented", "context", "label.a", "in_cluster", "keep"),
)
marks = st.sampled_from(["=", ",", "(", ")", ":", ";", "|", "..", "/", "-", " "])
lines = st.lists(st.sampled_from(WORDS) | marks | st.text(max_size=3), max_size=16).map("".join)
READERS: Final[dict[str, Callable[[str], object]]] = {
    "policies": read_policies,
    "policies of a study": lambda text: read_policies(text, study=True),
    "axes": named_axes,
    "sweep": lambda text: [read_policies(step.line, study=True) for step in points(text, "--sweep")],
    "owned": read_owned,
    "rented": read_rented,
    "site": lambda text: read_site(text, text),
    "recipe": read_recipe,
    "cluster": lambda text: read_options([text]),
    "array": parse_array,
}


@pytest.mark.parametrize("grammar", READERS)
@given(line=lines)
@example(line="depth=nan")
@example(line="depth=inf")
@example(line="jobs=²")
@example(line="wait=compute(1..2/²)")
@example(line="wait=compute(1e20..2e20/3)")
@example(line="wait=compute(1e-9999999999999999999..2/3)")
def test_any_text_is_read_or_refused_and_nothing_else(grammar: str, line: str) -> None:
    problems = ["none"]
    try:
        READERS[grammar](line)
    except BadForm as wrong:
        problems = [problem.message for problem in wrong.problems]
    except ArrayError as wrong:
        problems = [str(wrong)]
    assert problems
    assert all(problems)


@given(st.text(st.sampled_from("a b,=()"), max_size=20))
def test_parts_are_the_line_without_the_commas_between_them(text: str) -> None:
    parts = Piece(text).parts()
    assert ",".join(part.text for part in parts) == text
    assert all(text[part.at : part.at + len(part.text)] == part.text for part in parts)
    if Piece(text).alone() is None:
        assert all(part.alone() is None for part in parts)


def values(kind: Option) -> st.SearchStrategy[int | float | str | bool]:
    """What an option may be, as it is read."""
    if isinstance(kind, tuple):
        return st.sampled_from(kind)
    match kind:
        case Takes.DURATION:
            return st.integers(0, MOST_TIME)
        case Takes.COUNT:
            return st.integers(0, 10**9)
        case Takes.FLAG:
            return st.booleans()
        case Takes.SHARES:
            projects = st.dictionaries(
                st.text(string.ascii_lowercase, min_size=1, max_size=5),
                st.integers(1, 99),
                min_size=1,
                max_size=3,
            )
            return projects.map(lambda each: ";".join(f"{name}={each[name]}" for name in sorted(each)))
        case _:
            return st.integers(0, 10**9) | st.floats(0, 10**9)


@st.composite
def choices(draw: st.DrawFn, axis: str) -> Choice:
    """A policy of an axis with any of its options."""
    policy = draw(st.sampled_from(sorted(name for name in OPTIONS if name.startswith(f"{axis}."))))
    kinds = {name: values(kind) for name, kind in OPTIONS[policy].items()}
    if policy.startswith("backfill.") and "depth" in kinds:
        kinds["depth"] = st.integers(1, MOST_RESERVATIONS)
    needed = {name: kinds.pop(name) for name in REQUIRED.get(policy, ())}
    options: dict[str, Any] = draw(st.fixed_dictionaries(needed, optional=kinds))
    if options.get("min_wait", 0) > options.get("max_wait", MOST_TIME):
        del options["min_wait"]
    return Choice(policy.partition(".")[2], options)


sets = st.builds(
    PolicySet,
    order=choices("order"),
    backfill=choices("backfill"),
    wait=choices("wait"),
    place=choices("place"),
    depth=st.integers(1, 10**9),
    unknown_runtime=st.integers(1, MOST_TIME),
    route=choices("route"),
)


@given(sets)
def test_policies_that_are_written_are_read_as_the_same_policies(policies: PolicySet) -> None:
    line = write_policies(policies)
    assert read_policies(line) == policies
    assert write_policies(read_policies(line)) == line
    assert [step.line for step in points(line, "--sweep")] == [line]
