"""The page for people who come from Slurm has what the code has."""

import re
from pathlib import Path

import pytest

from spillover.agent.leases.slurm import RunsAs, slurm_environment
from spillover.agent.leases.values import Task
from spillover.cli.main import COMMANDS, load, make_parser
from spillover.core.events import Lease
from spillover.forms.jobs.meaning import PATTERNS
from spillover.forms.jobs.reading import read_with_lines
from spillover.forms.jobs.sbatch_options import BY_NAME, SBATCH_OPTIONS, SbatchOption, Use
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-slurm.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[tuple[str, str]]:
    found = re.findall(r"^\| (.+?) \| (.+) \|$", section(title), re.MULTILINE)
    return [row for row in found[1:] if not row[0].startswith("---")]


def test_every_option_of_sbatch_and_no_other_is_on_the_page() -> None:
    told = [re.findall(r"`(-[^`]+)`", first) for first, _ in rows("Options")]
    assert told == [
        [option.flag, f"-{option.short}"] if option.short else [option.flag] for option in SBATCH_OPTIONS
    ]


@pytest.mark.parametrize("option", SBATCH_OPTIONS, ids=lambda option: option.flag)
def test_the_page_says_what_becomes_of_an_option(option: SbatchOption) -> None:
    told = dict(zip(BY_NAME, (text for _, text in rows("Options")), strict=True))[option.flag]
    match option.use:
        case Use.IGNORED:
            assert told == f"ignored, with a warning: {option.advice}"
        case Use.REFUSED:
            assert told == f"refused: {option.advice}"
        case Use.USED:
            assert not told.startswith(("ignored", "refused"))


def test_every_command_on_the_page_exists_with_its_options() -> None:
    named = re.findall(r"`spill ([a-z]+)((?: [^`]*)?)`", PAGE)
    assert {name for name, _ in named} >= {"submit", "run", "ls", "cancel", "hold", "why", "logs", "cost"}
    for name, rest in named:
        assert name in COMMANDS, name
        known = make_parser(name, load(name)).format_help()
        for option in re.findall(r" (--?[a-z][a-z-]*)", rest.split(" -- ")[0]):
            assert option in known, f"spill {name} {option}"


FROM_SCRIPTS = {"SLURM_MEM_PER_CPU", "SLURM_SUBMIT_HOST", "SLURM_JOB_QOS"}


def test_every_variable_of_a_task_is_on_the_page() -> None:
    task = Task(
        Shell("true"),
        Resources(1000, 2**30, 1),
        env={"CUDA_VISIBLE_DEVICES": "0"},
        walltime=60 * SECOND,
        array=(1, 2, 2),
    )
    variables = slurm_environment(Lease(JobId("abc.1"), 1, 1), task, "n1", RunsAs("ann", 1000, 1000))
    told = set(re.findall(r"`(SLURM[A-Z_]+)`", section("Variables")))
    assert {name for name in variables if name.startswith("SLURM")} | FROM_SCRIPTS == told


def test_every_pattern_of_a_file_is_on_the_page() -> None:
    told = set(re.findall(r"`(%[A-Za-z%])`", section("Output")))
    assert told == set(PATTERNS) - {"%J"}


def test_the_script_on_the_page_is_read_with_the_warning_on_it() -> None:
    shown = PAGE.split("$ cat sweep.sbatch\n")[1].split("```")[0]
    script, answer = shown.split("$ spill submit sweep.sbatch\n")
    ((form, _),) = read_with_lines(script, "sweep.sbatch", "/d")
    assert [f"spill: {warning}" for warning in form.warnings] == answer.splitlines()[:-1]
    assert (form.spec.throttle, form.spec.stdout) == (4, "res_%A_%a.out")
