"""`inputs` and `outputs` of a job file: what they mean, and what leads elsewhere."""

from typing import Any

import pytest

from spillover.forms.jobs.inputs import Unpacked
from spillover.forms.jobs.matching import fixed
from spillover.forms.jobs.reading import BadForm, JobForm, read_job, read_jobs, to_doc
from spillover.model.files import MOST_FILES, File
from spillover.model.job import FromJob, FromMembers

ONE = "0" * 64
PACKED = {"path": "a", "digest": ONE, "size": 3}


def job(**spec: Any) -> JobForm:
    return read_job({"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", **spec}})


def problems(**spec: Any) -> list[str]:
    with pytest.raises(BadForm) as bad:
        job(**spec)
    return [f"{problem.path}: {problem.message}" for problem in bad.value.problems]


def test_entries_are_packed_or_still_to_be() -> None:
    form = job(
        inputs=["data/*.csv", "folder/", {"path": "x", "as": "y"}, {"path": "x", "as": "in/"}, PACKED],
        outputs=["out/", "*.txt", "out"],
    )
    assert form.unpacked == (
        Unpacked("data/*.csv"),
        Unpacked("folder"),
        Unpacked("x", "y"),
        Unpacked("x", "in/"),
    )
    assert form.spec.inputs == (File("a", ONE, 3),)
    assert form.spec.outputs == ("out", "*.txt")
    assert form.spec.digests == (ONE,)
    assert read_job(to_doc(form)) == form


def test_a_packed_entry_may_have_another_name_there() -> None:
    form = job(inputs=[PACKED | {"as": "b/c", "executable": True}])
    assert form.spec.inputs == (File("b/c", ONE, 3, executable=True),)
    assert read_job(to_doc(form)).spec == form.spec


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is empty"),
        ("/etc/passwd", "is absolute"),
        ("../x", "leads out of the folder"),
        ("a/../../b", "leads out of the folder"),
        ("a\0b", "a NUL character"),
        ("x" * 300, "is too long"),
    ],
)
def test_paths_stay_below_the_folder(path: str, said: str) -> None:
    for spec in ({"inputs": [path]}, {"outputs": [path]}, {"inputs": [{"path": "a", "as": path}]}):
        (problem,) = problems(**spec)
        assert said in problem
        assert "write a path below the folder" in problem
    (problem,) = problems(inputs=[PACKED | {"path": path}])
    assert said in problem


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([{"path": "*.csv", "as": "one"}], "matches several files; write 'one/' for a folder"),
        ([{"path": "x", "as": "*"}], "is a pattern; write a path"),
        ([PACKED | {"digest": "abc"}], "'abc' is not a SHA-256"),
        ([PACKED | {"size": None}], "is required with `digest`"),
        ([PACKED | {"path": "a/"}], "'a/' is a folder; an input with a `digest`"),
        ([PACKED | {"as": "b/"}], "'b/' is a folder; an input with a `digest`"),
        ([PACKED, PACKED], "'a' would be written twice"),
        ([PACKED, PACKED | {"path": "a/b"}], "'a' would be written twice"),
        ([{"as": "x"}], "path: is missing"),
        ([{"from": "a b", "path": "x"}], "inputs[0].from: 'a b' is not a job name or id"),
        ([{"from": "prep"}], "path: is missing"),
        ([{"from": "prep", "path": "../x"}], "'../x' leads out of the folder"),
        ([{"from": "prep", "path": "x", "as": "/y"}], "'/y' is absolute"),
        ([{"from": "prep", "path": "*", "as": "y"}], "matches several files; write 'y/' for a folder"),
        ([{"from": "prep"} | PACKED], "inputs[0].digest: does not go with `from`; remove one of them"),
        ([{"path": "x", "members": "all"}], "members: is only for outputs of another job; add `from`"),
        (
            [{"from": "prep", "path": "x", "members": "same"}],
            "same is for arrays; write `all`, or add `array`",
        ),
        (
            [{"from": "prep", "path": "x", "members": "all", "as": "y"}],
            "'y' is one path for all members; write 'y/'",
        ),
        ([{"path": "x", "to": "y"}], "unknown field"),
        ([3], "must be"),
        ([PACKED | {"size": -1}], "too small"),
        (
            [PACKED | {"path": str(at)} for at in range(MOST_FILES + 1)],
            "has 5,001 files; the maximum is 5,000",
        ),
    ],
)
def test_what_is_absurd_is_told(inputs: list[Any], said: str) -> None:
    assert any(said in problem for problem in problems(inputs=inputs))


def test_paths_are_tidied() -> None:
    form = job(inputs=[".", "./a", "b//c/./", {"path": "./d", "as": "./e"}], outputs=["./", "./out/"])
    assert form.unpacked == (Unpacked("**"), Unpacked("a"), Unpacked("b/c"), Unpacked("d", "./e"))
    assert form.spec.outputs == ("**", "out")


def test_outputs_of_other_jobs_stay_references() -> None:
    form = job(
        array="1-3",
        inputs=[
            {"from": "prep", "path": "./out.csv", "as": "data.csv"},
            {"from": "x4kqmzt3b6aw.7", "path": "out/"},
            {"from": "sweep", "path": "*.csv", "as": "parts/", "members": "all"},
        ],
    )
    assert form.spec.taken == (
        FromJob("prep", "out.csv", "data.csv"),
        FromJob("x4kqmzt3b6aw.7", "out"),
        FromJob("sweep", "*.csv", "parts/", FromMembers.ALL),
    )
    assert form.spec.shape.runs == ("command", "files")
    assert (form.spec.needs_blobs, form.spec.digests) == (True, ())
    assert read_job(to_doc(form)) == form


def test_problems_have_their_lines() -> None:
    text = "apiVersion: spillover/v1\nkind: Job\nspec:\n  run: x\n  inputs:\n    - ok\n    - /abs\n"
    with pytest.raises(BadForm, match=r"job\.yaml:7: spec\.inputs\[1\]: '/abs' is absolute"):
        read_jobs(text, "job.yaml")


@pytest.mark.parametrize(
    ("pattern", "base"),
    [
        ("a", ""),
        ("a/b", "a/"),
        ("*.x", ""),
        ("a/b/*.x", "a/b/"),
        ("a/*/b", "a/"),
        ("**", ""),
        ("a/b?/c/d", "a/"),
    ],
)
def test_the_folder_that_all_matches_are_in(pattern: str, base: str) -> None:
    assert fixed(pattern) == base


def test_standard_input_is_packed_or_still_to_be() -> None:
    given = {"path": "table.csv", "digest": ONE, "size": 3}
    form = job(inputs=[PACKED], stdin=given)
    assert form.spec.stdin == File("table.csv", ONE, 3)
    assert [file.path for file in form.spec.files] == ["a", "table.csv"]
    assert form.spec.digests == (ONE, ONE)
    assert form.spec.shape.runs == ("command", "files", "stdin")
    assert read_job(to_doc(form)) == form
    unread = job(stdin="../data/table.csv")
    assert (unread.spec.stdin, unread.stdin) == (None, "../data/table.csv")
    assert read_job(to_doc(unread)) == unread


@pytest.mark.parametrize("path", ["", "folder/", "a\0b"])
def test_standard_input_is_a_file(path: str) -> None:
    assert problems(stdin=path) == [
        f"spec.stdin: {path!r} is not a file; write a path such as data/table.csv"
    ]


def test_a_python_call_has_no_standard_input() -> None:
    said = "spec.stdin: is not for Python calls; give them the data as an argument"
    assert problems(run=None, python={"call": "a:b"}, stdin="x") == [said]


def test_a_terminal_is_for_one_command() -> None:
    form = job(terminal=True)
    assert form.spec.terminal
    assert form.spec.shape.runs == ("command", "terminal")
    assert read_job(to_doc(form)) == form
    assert problems(terminal=True, tasks=2) == [
        "spec.terminal: is for jobs with one task; remove `tasks` and `array`"
    ]
    assert problems(terminal=True, stdin="x") == [
        "spec.terminal: takes the place of `stdin`, `stdout` and `stderr`; remove them, or the terminal"
    ]
    assert problems(terminal=True, run=None, container={"image": "x"}) == [
        "spec.terminal: is only for `run` and `command`"
    ]
