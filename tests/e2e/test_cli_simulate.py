"""`spill simulate` as a person types it: the published runs job for job, sweeps that go on, and what is refused."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import clean_environment, wait_until

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "starburst"
RUNS = [
    (path, run["label"])
    for path in sorted(REFERENCE.glob("*.expected.json"))
    for run in json.loads(path.read_text())
    if run["label"] != "star_ooo"  # whose files have artefacts
]
WAITS = {"zero": "zero", "constant": "constant", "linear_runtime": "runtime", "linear_capacity": "resource"}
SMALL = ("--trace", "synthetic:jobs=400,load=1.2", "--owned", "4x8gpu", "--rented", "gpu=2.5")
SWEEP = ("--sweep", "wait=constant(0h..1h/3)", "--sweep", "wait=compute(0.05..0.1/2)")


def spill(folder: Path, *arguments: str, timeout: float = 120.0) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "spillover.cli", "simulate", *arguments],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def policy_of(settings: dict[str, Any]) -> str:
    """The settings of the original simulator as policies of ours."""
    name, _, coefficient = settings["waiting_policy"].partition("-")
    wait = WAITS.get(name, "compute")
    coefficient = coefficient or str(settings["waiting_factor"])
    options = [] if wait == "zero" else [coefficient + ("h" if wait in {"constant", "resource"} else "")]
    if "max_queue_length" in settings:
        options.append(f"max_queue={settings['max_queue_length']}")
    backfill = "out_of_order" if settings.get("loop") else "strict"
    place = settings.get("binpack_alg", "first-fit").replace("-", "_")
    return f"wait={wait}({','.join(options)}),backfill={backfill},order=fifo,place={place}"


@pytest.mark.skipif(not RUNS, reason="the reference runs are not beside the repository (../shared/reference)")
@pytest.mark.parametrize(("rate", "units"), [(12, 165.4), (16, 291.9), (24, 428.5)])
def test_star_costs_what_its_rules_say_with_the_first_hours_charged(
    rate: int, units: float, tmp_path: Path
) -> None:
    path = REFERENCE / f"table4-rate{rate}.expected.json"
    (run,) = (one for one in json.loads(path.read_text()) if one["label"] == "star_ooo")
    settings = run["settings"]
    h, k = settings["long_job_thres"], settings["preempt_cloud_ratio"]
    typed = spill(
        tmp_path,
        *(
            "--trace",
            str(REFERENCE / f"table4-rate{rate}.csv.gz"),
            "--owned",
            f"{settings['cluster_size']}x8gpu",
        ),
        *("--policy", f"wait=star({settings['waiting_factor']}h,h={h}h,k={k}),place=best_fit"),
        *("--rented", "gpu=1", "--estimates", "true", "--json"),
    )
    assert typed.returncode == 0, typed.stderr
    assert json.loads(typed.stdout)["rented_cost"] == pytest.approx(units, abs=0.05)


@pytest.mark.skipif(not RUNS, reason="the reference runs are not beside the repository (../shared/reference)")
@pytest.mark.parametrize(
    ("path", "label"), RUNS, ids=lambda value: value if isinstance(value, str) else value.name.split(".")[0]
)
def test_a_published_run_is_matched_job_for_job(path: Path, label: str, tmp_path: Path) -> None:
    (run,) = (one for one in json.loads(path.read_text()) if one["label"] == label)
    name, settings, stats = path.name.split(".")[0], run["settings"], run["stats"]
    typed = spill(
        tmp_path,
        *("--trace", str(path.with_name(f"{name}.csv.gz")), "--owned", f"{settings['cluster_size']}x8gpu"),
        *("--rented", "gpu=2.5", "--policy", policy_of(settings), "--json", "--jobs", "jobs.csv"),
        *("--estimates", "true"),
        *("--warmup", str(settings.get("warmup_jobs", 0))),
    )
    assert typed.returncode == 0, typed.stderr
    with gzip.open(path.with_name(f"{name}.{label}.jobs.csv.gz"), "rt") as file:
        expected = {row["id"]: row for row in csv.DictReader(file)}
    with (tmp_path / "jobs.csv").open() as file:
        found = {row["id"]: row for row in csv.DictReader(file)}
    assert found.keys() == expected.keys()
    wrong = [
        (key, row["cluster"], row["start_s"], expected[key])
        for key, row in found.items()
        if (row["cluster"] == "owned") != (expected[key]["where"] == "onprem")
        or abs(float(row["start_s"]) / 3600 - float(expected[key]["start_h"])) > 1e-6
    ]
    assert wrong == []
    told = json.loads(typed.stdout)
    assert told["rented_gpu_hours"] == pytest.approx(stats["total_cloud_cost"], rel=1e-9)
    assert told["rented_cost"] == pytest.approx(2.5 * stats["total_cloud_cost"], rel=1e-6)
    assert told["owned_utilization"] == pytest.approx(stats["cluster_utilization"], rel=1e-9)
    assert told["system_utilization"] == pytest.approx(stats["system_utilization"], rel=1e-9)
    # Of a run with a warm-up, the original counts one job more.
    assert told["mean_wait_s"] == pytest.approx(stats["avg_waiting"] * 3600, rel=1e-3, abs=1e-6)
    # Of two neighbours the original takes the lower one as its percentile; ours is what 99% of the jobs do not exceed.
    left = settings.get("warmup_jobs", 0)
    counted = list(found.values())[left : len(found) - left]
    waits = sorted(float(row["start_s"]) - float(row["submit_s"]) for row in counted)
    lower, ours = waits[(len(waits) - 1) * 99 // 100], waits[-(-len(waits) * 99 // 100) - 1]
    assert lower == pytest.approx(stats["99_wait"] * 3600, rel=1e-6, abs=1e-6)
    assert told["p99_wait_s"] == pytest.approx(ours, rel=1e-9, abs=1e-6)


def test_the_same_input_gives_the_same_bytes_and_speed_goes_elsewhere(tmp_path: Path) -> None:
    typed = [spill(tmp_path, *SMALL, "--json", "--seed", "7", "--jobs", f"{at}.csv") for at in range(2)]
    assert [one.returncode for one in typed] == [0, 0]
    assert typed[0].stdout == typed[1].stdout
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    assert "400 jobs simulated in" in typed[0].stderr
    told = json.loads(typed[0].stdout)
    assert (told["seed"], told["jobs"]) == (7, 400)
    assert (
        told["policy"] == "wait=compute(0.076,max_queue=30),backfill=out_of_order,order=fifo,place=best_fit"
    )
    other = spill(tmp_path, *SMALL, "--json", "--seed", "8")
    assert json.loads(other.stdout)["mean_wait_s"] != told["mean_wait_s"]


def test_people_get_aligned_facts(tmp_path: Path) -> None:
    typed = spill(tmp_path, *SMALL, "--warmup", "50", "--policy", "wait=constant(5m)")
    lines = typed.stdout.splitlines()
    assert lines[0] == "policy          wait=constant(5m),backfill=out_of_order,order=fifo,place=best_fit"
    assert lines[1] == "jobs            300 of 400, without 50 at both ends"


def test_a_sweep_draws_and_a_second_one_simulates_only_what_is_new(tmp_path: Path) -> None:
    first = spill(tmp_path, *SMALL, *SWEEP, "--plot", "frontier.svg", "--processes", "2")
    assert first.returncode == 0, first.stderr
    assert "6 simulations" in first.stderr
    assert "6 of 6: " in first.stderr
    assert len((tmp_path / "frontier.jsonl").read_text().splitlines()) == 6
    assert "<svg" in (tmp_path / "frontier.svg").read_text()
    again = spill(
        tmp_path, *SMALL, *SWEEP, "--sweep", "wait=never(max_queue=0..5/2)", "--out", "frontier.jsonl"
    )
    assert "6 results exist already" in again.stderr
    assert "2 simulations" in again.stderr
    assert again.stdout.splitlines()[:7] == first.stdout.splitlines()[:7] or "dominated" in again.stdout
    told = json.loads(spill(tmp_path, *SMALL, *SWEEP, "--out", "frontier.jsonl", "--json").stdout)
    assert [(point["curve"], point["label"]) for point in told][:2] == [
        (0, "wait=zero"),
        (1, "wait=constant(0h)"),
    ]
    assert told[0]["rented_cost"] == told[1]["rented_cost"]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow)],
)
def test_an_interrupted_sweep_leaves_nothing_running_and_goes_on_where_it_was(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    arguments = [
        *("--trace", "synthetic:jobs=1500,load=1.2", "--owned", "8x8gpu", "--rented", "gpu=2.5"),
        *("--sweep", "wait=constant(0.1h..2h/12)", "--out", "results.jsonl", "--processes", "2"),
    ]
    command = [sys.executable, "-m", "spillover.cli", "simulate", *arguments]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " of 13: " in line:
                break
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does it
        else:
            process.send_signal(number)
        rest = process.stderr.read()  # to its end, which comes when no process is left that could write
        assert process.wait(30) == code
    assert "Traceback" not in rest
    wait_until(lambda: not group_lives(process.pid), "the end of all processes", 10)
    kept = len((tmp_path / "results.jsonl").read_text().splitlines())
    assert 1 <= kept < 13
    if number is signal.SIGINT:
        assert (
            f"spill: {kept} of 13 done, in results.jsonl; run the command again to continue"
            in rest.splitlines()
        )
    typed = spill(tmp_path, *arguments)
    assert typed.returncode == 0, typed.stderr
    assert f"{kept} result{'s exist' if kept > 1 else ' exists'} already" in typed.stderr
    assert f"{13 - kept} simulation" in typed.stderr


def group_lives(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_wrong_rows_are_refused_and_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,gpus\n0,10,1\n5,x,1\n7,10,1\n")
    arguments = ("--trace", "t.csv", *SMALL[2:])
    refused = spill(tmp_path, *arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.splitlines() == [
        "spill: t.csv:3: runtime_s: 'x' is not a number",
        "spill: t.csv: nothing was simulated; use --skip-bad to skip such rows",
    ]
    skipped = spill(tmp_path, *arguments, "--skip-bad", "--json")
    told = json.loads(skipped.stdout)
    assert (told["jobs"], told["left_out"]) == (2, 1)


def test_jobs_larger_than_a_machine_are_split_and_larger_than_all_are_rented(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,gpus\n0,10,12\n1,10,100\n200,10,4\n")
    typed = spill(tmp_path, "--trace", "t.csv", *SMALL[2:], "--jobs", "out.csv")
    assert typed.returncode == 0, typed.stderr
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["cluster"], rows[0]["node"]) == ("owned", "n1+n2")
    assert rows[1]["cluster"] == "rented"
    assert float(rows[1]["cost"]) == pytest.approx(100 * 2.5 * 10 / 3600, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (("--trace", "no.csv", *SMALL[2:]), ["no.csv: No such file or directory"]),
        (
            ("--trace", "x", "--owned", "4", "--rented", "2"),
            ["--owned: '4' is not a number of machines", "--rented: '2' is not a price"],
        ),
        (
            (*SMALL, "--policy", "wait=comptue(1)"),
            ["--policy: wait: 'comptue' is not a policy of the axis wait"],
        ),
        (
            (*SMALL, "--sweep", "wait=constant(1h..2h)"),
            ["--sweep: 'wait=constant(1h..2h)' has a range without a number of points"],
        ),
        ((*SMALL, "--policy", "wait=zero", "--policy", "wait=never"), ["--policy is given twice"]),
        (
            (*SMALL, *SWEEP, "--processes", "0"),
            ["argument --processes: '0' is not a whole number of at least 1"],
        ),
        ((*SMALL, "--plot", "x.svg"), ["--plot needs --sweep"]),
        ((*SMALL, *SWEEP, "--plot", "x.pdf"), ["--plot: x.pdf is neither .svg nor .png"]),
        ((*SMALL, *SWEEP, "--jobs", "x.csv"), ["--jobs is not allowed with --sweep"]),
        ((*SMALL, "--warmup", "200"), ["--warmup: 200 leaves none of the 400 jobs; the maximum is 199"]),
        ((*SMALL, "--warmup", "-1"), ["argument --warmup: '-1' is not a whole number of at least 0"]),
        ((*SMALL, "--estimate-error", "big"), ["argument --estimate-error: 'big' is not an error"]),
        (("--owned", "4x8gpu"), ["the following arguments are required: --trace, --rented"]),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_in_a_line(
    arguments: tuple[str, ...], problems: list[str], tmp_path: Path
) -> None:
    typed = spill(tmp_path, *arguments)
    lines = typed.stderr.splitlines()
    assert (typed.returncode, typed.stdout, len(lines)) == (2, "", len(problems)), typed.stderr
    for line, problem in zip(lines, problems, strict=True):
        assert line.startswith(f"spill: {problem}")
