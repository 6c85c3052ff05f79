"""Sweeps: their points, what is kept of them, and which are dominated."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.sim.estimates import Known, Told
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.reports.plot import Curve, Dot, check_plot, draw
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.study import Study, StudyResult, read_jobs, run
from spillover.sim.studies.sweep import Results, dominated, missing, plan
from spillover.sim.studies.workers import simulate_all

STUDY = Study("synthetic:jobs=300,load=1.2,gpus=1|8", read_owned("2x8gpu"), read_rented("gpu=2.5"), 1, 10)
BASE = read_policies("place=first_fit")
SWEEPS = ["wait=constant(0h..1h/3)", "wait=compute(0.05..0.1/2),backfill=strict"]


def numbers(cost: float, time: float) -> StudyResult:
    zeros = dict.fromkeys(Statistics.__struct_fields__, 0) | {"pool": None}
    return StudyResult("", Statistics(**zeros | {"rented_cost": cost, "mean_completion_s": time}))  # type: ignore[arg-type]


def test_each_sweep_is_a_curve_in_place_of_what_it_names() -> None:
    jobs = read_jobs(STUDY).jobs
    points = plan(SWEEPS, BASE, STUDY, jobs)
    assert [(point.curve, point.label) for point in points] == [
        (0, "wait=zero"),
        (1, "wait=constant(0h)"),
        (1, "wait=constant(0.5h)"),
        (1, "wait=constant(1h)"),
        (2, "wait=compute(0.05),backfill=strict"),
        (2, "wait=compute(0.1),backfill=strict"),
    ]
    assert {point.policies.place.name for point in points} == {"first_fit"}
    assert points[-1].policies.backfill.name == "strict"


def test_a_key_changes_with_everything_that_matters() -> None:
    jobs = read_jobs(STUDY).jobs
    (zero, *_) = plan(SWEEPS, BASE, STUDY, jobs)
    (again, *_) = plan(["wait=constant(1h..2h/2)"], BASE, STUDY, jobs)
    assert zero.key == again.key
    studies = [
        replace(STUDY, seed=2),
        replace(STUDY, warmup=5),
        replace(STUDY, fleet=read_owned("3x8gpu")),
        replace(STUDY, rent=read_rented("gpu=3")),
        replace(STUDY, lognormal=0.5),
    ]
    others = {plan([], BASE, study, jobs)[0].key for study in studies}
    others.add(plan([], BASE, STUDY, jobs[:-1])[0].key)
    others.add(plan([], read_policies("order=priority"), STUDY, jobs)[0].key)
    assert len(others | {zero.key}) == len(studies) + 3


def test_results_are_kept_as_they_come_and_a_torn_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    file = Results(path)
    assert file.read() == {}
    file.add("a", numbers(1, 2))
    file.add("b", numbers(3, 4))
    path.write_bytes(path.read_bytes()[:-10])
    file = Results(path)
    assert file.read() == {"a": numbers(1, 2)}
    file.add("c", numbers(5, 6))
    assert Results(path).read() == {"a": numbers(1, 2), "c": numbers(5, 6)}


def test_only_what_is_missing_is_simulated_and_equal_points_once() -> None:
    jobs = read_jobs(STUDY).jobs
    points = plan([*SWEEPS, SWEEPS[0]], BASE, STUDY, jobs)
    todo = list(missing(points, {points[1].key: numbers(0, 0)}))
    assert [point.label for point in todo] == [points[at].label for at in (0, 2, 3, 4, 5)]


def test_a_point_is_dominated_if_another_one_is_no_worse_and_better_in_one() -> None:
    results = [numbers(*one) for one in [(5, 1), (3, 2), (3, 3), (4, 2), (1, 9), (2, 9), (3, 2)]]
    assert dominated(results) == [False, False, True, True, False, True, False]


def test_only_points_that_knew_the_same_are_compared_and_each_with_the_first() -> None:
    def knowing(told: Told, cost: float, hours: float) -> StudyResult:
        return replace(numbers(cost, hours), known=Known(told))

    results = [
        numbers(5, 1),
        knowing(Told.RUNTIME, 1, 1),
        knowing(Told.WALLTIME, 3, 2),
        knowing(Told.WALLTIME, 4, 3),
    ]
    assert dominated(results) == [True, False, False, True]


def test_several_processes_give_what_one_gives() -> None:
    jobs = read_jobs(STUDY).jobs
    points = plan(SWEEPS, BASE, STUDY, jobs)
    alone = {point.key: run(STUDY, jobs, point.policies)[0] for point in points}
    assert {point.key: result for point, result in simulate_all(STUDY, jobs, points, 2)} == alone
    assert {point.key: result for point, result in simulate_all(STUDY, jobs, points, 1)} == alone


def test_an_error_of_estimates_among_the_options_is_not_for_the_engine() -> None:
    jobs = read_jobs(STUDY).jobs
    exact, _ = run(STUDY, jobs, read_policies("wait=compute(0.1)"))
    limited = replace(STUDY, told=Told.WALLTIME)  # the option says more of its policy than the study does
    same, _ = run(limited, jobs, read_policies("wait=compute(0.1,estimate_error=0.9)", study=True))
    option, _ = run(STUDY, jobs, read_policies("wait=compute(0.1,estimate_error=0.9)", study=True))
    flag, _ = run(replace(STUDY, normal=0.9), jobs, read_policies("wait=compute(0.1)"))
    assert option.statistics == flag.statistics == same.statistics
    assert [one.known.word for one in (exact, option, same)] == ["true", "normal(0.9)", "normal(0.9)"]
    assert option.statistics != exact.statistics
    assert option.policy.startswith("wait=compute(0.1,estimate_error=0.9)")


def test_a_warmup_that_leaves_no_job_is_refused() -> None:
    with pytest.raises(BadForm, match="--warmup: 150 leaves none of the 300 jobs; the maximum is 149"):
        read_jobs(replace(STUDY, warmup=150))


CURVES = [
    Curve("constant", [Dot(10, 2, "0h", False), Dot(8, 4, "1h", True)]),
    Curve("compute", [Dot(7, 2.5, "0.1", False)]),
]


@pytest.mark.parametrize("name", ["a.svg", "a.PNG"])
def test_a_picture_is_drawn_and_the_same_one_is_the_same_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    check_plot(path)
    draw(path, CURVES, Dot(12, 1.9, "", False), "300 jobs", "EUR")
    first = path.read_bytes()
    draw(path, CURVES, Dot(12, 1.9, "", False), "300 jobs", "EUR")
    assert path.read_bytes() == first
    if name.endswith("svg"):
        text = first.decode()
        assert all(
            word in text
            for word in (
                "constant",
                "compute",
                "no waiting",
                "cost saved, %",
                "300 jobs",
                "rented capacity, EUR",
            )
        )
    else:
        assert first.startswith(b"\x89PNG")


def test_a_picture_of_nothing_rented_can_be_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", [Curve("never", [Dot(0, 1, "0h", False)])], Dot(0, 1, "", False), "")


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadForm, match=r"--plot: a\.pdf is neither \.svg nor \.png"):
        check_plot(tmp_path / "a.pdf")
    with pytest.raises(BadForm, match="--plot: folder"):
        check_plot(tmp_path / "no" / "a.svg")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(BadForm, match="pip install 'spillover"):
        check_plot(tmp_path / "a.svg")
