"""By what jobs are known again, so that their runtimes can be learned."""

import pytest
from msgspec.structs import replace

from spillover.core.learned.runtimes import OF_PROGRAM
from spillover.forms.jobs.likeness import command_of, says_what
from spillover.forms.jobs.scripts import read_script
from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.job import Argv, Container, EarlierValue, FromJob, PythonCall, Shell, Work
from spillover.testing.builders import a_job


def command(work: Work) -> bytes:
    return command_of(replace(a_job().spec(), work=work))


def program(work: Work) -> bytes:
    """The part that is the same for other arguments."""
    return command(work)[:OF_PROGRAM]


@pytest.mark.parametrize(
    ("name", "work", "says"),
    [
        ("train", Argv(("python", "train.py")), True),
        ("sleep", Argv(("sleep", "5")), False),
        ("sleep", Argv(("/bin/sleep", "5")), False),
        ("sleep", Shell("N=5 sleep $N\n"), False),
        ("train.sh", Argv(("./train.sh", "5")), True),
        ("train.sh", Shell("../bin/train.sh 5"), True),
        ("blast", Container(image="ghcr.io/lab/blast:2"), False),
        ("align", Container(image="ghcr.io/lab/blast:2"), True),
        ("simulate", PythonCall("m:simulate"), True),
    ],
)
def test_a_name_that_is_only_that_of_a_program_says_not_what_the_job_does(
    name: str, work: Work, says: bool
) -> None:
    assert says_what(name, work) is says


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Argv(("./train", "1")), Argv(("./train", "2"))),
        (Argv(("python", "train.py", "--rate", "1")), Argv(("python", "train.py", "--rate", "2"))),
        (Argv(("/usr/bin/python3", "-u", "train.py")), Argv(("python3", "train.py", "1"))),
        (Argv(("mpirun", "-n", "4", "./solve")), Argv(("mpirun", "-n", "8", "./solve"))),
        (Argv(("env", "RATE=1", "./train")), Argv(("env", "RATE=2", "./train"))),
        (Shell("python -m lab.train 1"), Shell("python -m lab.train 2\n")),
        (Container("lab/blast:2", ("blastp", "a")), Container("lab/blast:2", ("blastp", "b"))),
        (PythonCall("lab:train", (1,)), PythonCall("lab:train", (2,))),
        (PythonCall(function="0" * 64, arguments=b"1"), PythonCall(function="1" * 64)),
    ],
)
def test_arguments_make_another_command_of_the_same_program(one: Work, other: Work) -> None:
    assert program(one) == program(other) != bytes(OF_PROGRAM)
    assert command(one) != command(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Argv(("./train",)), Argv(("./test",))),
        (Argv(("python", "train.py")), Argv(("python", "test.py"))),
        (Container("lab/blast:2"), Container("lab/blast:3")),
        (Container("lab/blast:2", ("blastp",)), Container("lab/blast:2", ("blastn",))),
        (PythonCall("lab:train"), PythonCall("lab:test")),
    ],
)
def test_other_programs_are_other_programs(one: Work, other: Work) -> None:
    assert program(one) != program(other)


@pytest.mark.parametrize(
    "work",
    [
        Shell("cd results && ./train"),
        Shell("set -e\nmake\n"),
        Argv(("bash", "-c", "sleep 1; echo done")),
        Argv(("python", "-c", "import lab; lab.train(1)")),
        Argv(("bash",)),
    ],
)
def test_of_a_program_that_runs_any_text_no_other_text_says_anything(work: Work) -> None:
    assert program(work) == bytes(OF_PROGRAM)


@pytest.mark.parametrize("first", ["#!/bin/bash", "#!/usr/bin/env python3"])
def test_a_script_is_the_same_program_when_it_is_edited_or_gets_arguments(first: str) -> None:
    """What it runs is another command each time."""
    asked = [("pass\n", ()), ("pass # better\n", ()), ("pass\n", ("0.1",))]
    works = [
        read_script(f"{first}\n{text}", "train", arguments=arguments)[0].spec.work
        for text, arguments in asked
    ]
    assert len({command(work) for work in works}) == 3
    assert len({program(work) for work in works}) == 1
    other = read_script(f"{first}\npass\n", "test")[0].spec.work
    assert program(other) not in {program(work) for work in works}


def test_files_and_the_folder_are_part_of_what_a_job_runs() -> None:
    spec = a_job().spec()
    edited = [
        replace(spec, inputs=(File("train.py", digest * 64, 1),), workdir=folder)
        for digest, folder in (("0", "."), ("1", "."), ("0", "/home/ann/b"))
    ]
    assert len({command_of(each) for each in edited}) == 3


def test_what_differs_at_each_submission_is_not_part_of_what_a_job_runs() -> None:
    spec = a_job().spec()
    later = replace(
        spec,
        name="another",
        priority=3,
        deadline=5,
        env={"DAY": "monday"},
        taken=(FromJob("abcdefgh2345", "out.csv"),),
    )
    assert command_of(later) == command_of(spec)
    called = PythonCall("lab:train", values=(EarlierValue(JobId("abcdefgh2345")),))
    assert command(called) == command(replace(called, values=(EarlierValue(JobId("bbbbbbbb2345")),)))
    mapped = PythonCall("lab:train", items="0" * 64, first=3)
    assert command(mapped) == command(replace(mapped, items="1" * 64)), "its members differ anyway"
