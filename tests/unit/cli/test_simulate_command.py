"""`spill simulate` in this very process: policies of one's own, and what is said of what may not be as one thinks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from spillover.cli.main import main
from spillover.cli.printing.output import rich_table
from spillover.cli.sweeps import COLUMNS
from spillover.forms.graph import Graph, GraphNode, write_graph
from spillover.model.resources import Resources

SMALL = ("--trace", "synthetic:jobs=60,load=1.2", "--owned", "1x8gpu", "--rented", "gpu=2.5")
FAILING = """
class Own:
    def wait(self, case):
        raise KeyError("prices")
"""
WORKING = """
class Own:
    def wait(self, case):
        return 0
"""


class Typed(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: list[str]


Type = Callable[..., Typed]


@pytest.fixture
def spill(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type `spill simulate` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str) -> Typed:
        code = main(["simulate", *arguments])
        out, err = capsys.readouterr()
        return Typed(code, out, err.splitlines())

    return typed


def install(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the policy wait.own."""
    info = folder / "own_waits-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "own_waits.py").write_text(body)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own_waits\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[spillover.policies]\nwait.own = own_waits:Own\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "own_waits", raising=False)


def test_a_policy_that_fails_is_told_and_its_numbers_are_not_taken_for_its_own(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    typed = spill(*SMALL, "--policy", "wait=own")
    assert typed.code == 1
    assert "rented" in typed.out
    assert typed.err[-1].startswith("spill: the numbers of the policy are not valid: wait=own failed ")
    assert typed.err[-1].endswith("times (KeyError: 'prices')")
    (failure,) = json.loads(spill(*SMALL, "--policy", "wait=own", "--json").out)["policy_failures"]
    assert (failure["axis"], failure["name"], failure["error"]) == ("wait", "own", "KeyError: 'prices'")
    assert failure["count"] > 0


def test_a_policy_that_fails_is_marked_in_a_sweep_and_beats_no_other(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    sweep = ("--sweep", "wait=own(max_queue=900..901/2)", "--processes", "1")
    typed = spill(*SMALL, *sweep)
    assert typed.code == 1
    assert [line.split()[-1] for line in typed.out.splitlines()[-2:]] == ["failed", "failed"]
    assert any("wait=own failed" in line for line in typed.err)
    again = spill(*SMALL, *sweep, "--json")
    assert again.code == 1
    zero, *others = json.loads(again.out)
    assert (zero["policy_failures"], zero["dominated"]) == ([], False)
    assert all(one["policy_failures"][0]["name"] == "own" for one in others)


def test_a_sweep_simulates_again_when_the_code_of_a_policy_has_changed(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("--sweep", "wait=own(max_queue=900..901/2)", "--processes", "1")
    install(tmp_path / "site", WORKING, monkeypatch)
    assert any("3 simulations" in line for line in spill(*SMALL, *sweep).err)
    assert not any("simulations in" in line for line in spill(*SMALL, *sweep).err)
    install(tmp_path / "site", WORKING.replace("0", "10**9"), monkeypatch)
    assert any("2 simulations" in line for line in spill(*SMALL, *sweep).err)


def test_a_policy_that_fails_is_told_by_a_back_test(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    sacct = tmp_path / "sacct.txt"
    row = "|2027-01-31T10:00:00|2027-01-31T10:00:00|2027-01-31T11:00:00|cpu=1,gres/gpu=1"
    sacct.write_text(f"JobID|Submit|Start|End|AllocTRES\n1{row}\n2{row}\n")
    asked = ("--sacct", str(sacct), "--owned", "1x1gpu", "--rented", "gpu=1", "--policy", "wait=own")
    assert main(["backtest", *asked, "--json"]) == 1
    out, err = capsys.readouterr()
    (policy,) = json.loads(out)["policies"]
    assert policy["policy_failures"][0]["error"] == "KeyError: 'prices'"
    assert "spill: the numbers of wait=own are not valid: wait=own failed" in err


def test_what_is_rented_for_nothing_is_said(spill: Type) -> None:
    typed = spill(*SMALL[:4], "--rented", "cpu=1")
    assert typed.code == 0
    assert "spill: renting 60 jobs with GPUs costs nothing: --rented has no price for gpu" in typed.err
    for prices in ("gpu=0", "gpu=2.5"):
        assert not any("costs nothing" in line for line in spill(*SMALL[:4], "--rented", prices).err)
    cpus = ("--trace", "synthetic:jobs=9,cpus=1", "--owned", "1x1cpu", "--rented", "gpu=1")
    assert any("renting 9 jobs without GPUs costs nothing" in line for line in spill(*cpus).err)


def test_several_policies_are_points_of_a_sweep(spill: Type) -> None:
    typed = spill(*SMALL, "--sweep", "order=sjf", "--sweep", "wait=constant(1h)", "--json")
    assert [(one["curve"], one["label"]) for one in json.loads(typed.out)] == [
        (0, "wait=zero"),
        (1, "order=sjf"),
        (2, "wait=constant(1h)"),
    ]


def test_nothing_is_written_onto_what_is_read_or_onto_something_else(spill: Type, tmp_path: Path) -> None:
    trace = "submit_s,runtime_s,gpus\n0,10,1\n"
    (tmp_path / "t.csv").write_text(trace)
    (tmp_path / "t.svg").symlink_to("t.csv")
    (tmp_path / "own.txt").write_text("my thesis\n")
    asked = ("--trace", "t.csv", *SMALL[2:])
    sweep = (*asked, "--sweep", "wait=constant(1h)", "--processes", "1")
    for typed, problem in [
        (spill(*asked, "--jobs", "./t.csv"), "--jobs: ./t.csv is also the file of --trace"),
        (spill(*sweep, "--out", "t.csv"), "--out: t.csv is also the file of --trace"),
        (spill(*sweep, "--plot", "t.svg"), "--plot: t.svg is also the file of --trace"),
        (spill(*sweep, "--plot", "a.svg", "--out", "a.svg"), "--plot: a.svg is also the file of --out"),
        (spill(*sweep, "--out", "own.txt"), "--out: own.txt exists but has no results of a sweep"),
        (
            spill("--trace", "synthetic:like=t.csv", *SMALL[2:], "--jobs", "t.csv"),
            "--jobs: t.csv is also the file of --trace",
        ),
    ]:
        assert (typed.code, typed.out, len(typed.err)) == (2, "", 1), typed
        assert typed.err[0].startswith(f"spill: {problem}")
    assert (tmp_path / "t.csv").read_text() == trace
    assert (tmp_path / "own.txt").read_text() == "my thesis\n"
    (tmp_path / "empty.jsonl").touch()
    assert spill(*sweep, "--out", "empty.jsonl").code == 0
    assert spill(*sweep, "--out", "empty.jsonl").code == 0


def test_one_is_not_several(spill: Type, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,gpus\n0,10,1\n5,x,1\n")
    asked = ("--trace", "t.csv", *SMALL[2:], "--skip-bad")
    typed = spill(*asked)
    assert "left out        1 wrong row\n" in typed.out
    assert typed.err[0].startswith("spill: 1 job simulated in")
    spill(*asked, "--sweep", "wait=zero", "--processes", "1")
    again = spill(*asked, "--sweep", "wait=constant(1h)", "--processes", "1").err
    assert again[0] == "spill: 1 result exists already"
    assert any(line.startswith("spill: 1 simulation in") for line in again)


def test_a_sweep_says_what_its_points_share_and_names_them_alike(spill: Type, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,gpus\n0,10,1\n5,x,1\n")
    asked = ("--trace", "t.csv", *SMALL[2:], "--skip-bad", "--policy", "order=sjf", "--processes", "1")
    sweeps = ("--sweep", "wait=compute(0.02)", "--sweep", "backfill=strict,wait=compute(0.02,max_queue=30)")
    lines = spill(*asked, *sweeps).out.splitlines()
    assert lines[0].startswith(
        "policy         wait=compute(0.076,max_queue=30),backfill=out_of_order,order=sjf,"
    )
    assert lines[0].endswith(", except where a row says otherwise")
    assert lines[1] == "policies know  the true runtimes, which nobody knows in reality"
    assert lines[2] == "left out       1 wrong row"
    assert [line.split()[0] for line in lines[5:]] == [
        "zero",
        "compute(0.02)",
        "backfill=strict,compute(0.02,max_queue=30)",
    ]
    told = json.loads(spill(*asked, *sweeps, "--json").out)
    assert {(one["left_out"], one["not_jobs"]) for one in told} == {(1, 0)}


def test_a_narrow_terminal_shows_what_matters_of_a_sweep() -> None:
    rows = [
        [
            "compute(0.02,max_queue=30)",
            "1,234",
            "12,345.67",
            "12.3%",
            "1h12m",
            "12%",
            "12h30m",
            "1.2%",
            "dominated",
        ]
    ]
    narrow, wide = (rich_table(COLUMNS, rows, width).plain.splitlines() for width in (80, 120))
    assert narrow[0].split() == ["POLICY", "COST", "SAVED", "COMPLETION", "LONGER"]
    assert narrow[1].endswith("dominated")
    assert max(map(len, narrow)) <= 80
    assert wide[0].split() == [column.title for column in COLUMNS if column.title]


def test_the_machines_of_a_graph_are_simulated(spill: Type) -> None:
    nodes = [GraphNode(f"n{at}", Resources(8000), (("rack", f"r{at // 2}"),)) for at in range(4)]
    Path("lab.json").write_bytes(msgspec.json.encode(write_graph(Graph("lab", ("rack",), tuple(nodes)))))
    rows = (
        "id,submit_s,runtime_s,cpus,nodes,within,exclusive",
        "a,0,60,8,1,,",
        "b,0,60,16,2,rack,",
        "c,1,9,1,1,,node",
    )
    Path("jobs.csv").write_text("\n".join(rows))
    common = ("--trace", "jobs.csv", "--rented", "cpu=1", "--policy", "wait=never", "--jobs", "out.csv")
    done = spill(*common, "--owned", "lab.json", "--reserve", "nodes=1,start=50s,for=1h")
    assert done.code == 0, done.err
    assert "spill: 1 job with spread, exclusive, pin or gpu_link is never rented" in done.err
    places = [line.split(",")[5] for line in Path("out.csv").read_text().splitlines()[1:]]
    assert places[1] in {"n0+n1", "n2+n3"}
    assert len(places) == 3
    flat = spill(*common, "--owned", "4x8cpu")
    assert flat.code == 2
    assert "within: there is no level 'rack' (first in job b); --owned has node" in flat.err[0]


LIMITED = """submit_s,runtime_s,gpus,user,req_walltime_s
0,3600,8,ann,3600
1,7200,1,ann,36000
2,60,8,bob,36000
"""


def test_policies_know_what_the_users_of_a_trace_said_unless_one_asks_for_the_ideal(spill: Type) -> None:
    Path("t.csv").write_text(LIMITED)
    asked = ("--trace", "t.csv", *SMALL[2:], "--policy", "wait=runtime(0.5)")
    usual, true = spill(*asked), spill(*asked, "--estimates", "true")
    walltimes = "policies know   the walltimes that users asked for, and how long earlier jobs ran\n"
    assert walltimes in usual.out
    assert "policies know   the true runtimes, which nobody knows in reality\n" in true.out
    told = [json.loads(spill(*asked, *more, "--json").out) for more in ((), ("--estimates", "runtime"))]
    assert [one["estimates"] for one in told] == ["walltime", "runtime"]
    assert told[0]["mean_wait_s"] > told[1]["mean_wait_s"], "the longer the walltime, the longer the wait"
    noisy = json.loads(spill(*asked, "--estimate-error", "lognormal(0.5)", "--json").out)
    assert (noisy["estimates"], noisy["estimate_error"]) == ("runtime", "lognormal(0.5)")


def test_a_trace_with_few_walltimes_is_simulated_with_true_runtimes(spill: Type) -> None:
    rows = [row.rpartition(",")[0] + "," for row in LIMITED.splitlines()[2:]]
    Path("t.csv").write_text("\n".join([*LIMITED.splitlines()[:2], *rows]))
    asked = ("--trace", "t.csv", *SMALL[2:])
    assert json.loads(spill(*asked, "--json").out)["estimates"] == "runtime"
    some = spill(*asked, "--estimates", "walltime")
    assert "spill: 2 jobs have no walltime; policies know only how long earlier jobs ran of those" in some.err


def test_a_sweep_compares_what_policies_know(spill: Type) -> None:
    Path("t.csv").write_text(LIMITED)
    asked = ("--trace", "t.csv", *SMALL[2:], "--estimates", "true,walltime", "--processes", "1")
    sweep = ("--sweep", "wait=runtime(0.5..1/2)", "--sweep", "wait=compute(0.1,estimate_error=0.5)")
    typed = spill(*asked, *sweep, "--plot", "both.svg")
    lines = typed.out.splitlines()
    assert lines[1].startswith(
        "policies know  true: the true runtimes, which nobody knows in reality; walltime: "
    )
    assert [line.split()[:2] for line in lines[5:]] == [
        ["runtime(0.5)", "true"],
        ["runtime(1)", "true"],
        ["runtime(0.5)", "walltime"],
        ["runtime(1)", "walltime"],
        ["compute(0.1,estimate_error=0.5)", "normal(0.5)"],
    ]
    picture = Path("both.svg").read_text()
    assert all(name in picture for name in ("runtime, true", "runtime, walltime", "policies know true: "))
    points = json.loads(spill(*asked, *sweep, "--json", "--out", "both.jsonl").out)
    told = [(one["curve"], one["estimates"], one["estimate_error"]) for one in points[1:]]
    assert told == [*[(1, "runtime", None)] * 2, *[(1, "walltime", None)] * 2, (2, "runtime", "normal(0.5)")]


def test_what_policies_cannot_know_is_refused(spill: Type) -> None:
    several = spill(*SMALL, "--estimates", "true,walltime")
    assert (several.code, several.err) == (2, ["spill: --estimates takes several only with --sweep"])
    wrong = spill(*SMALL, "--estimates", "walltime", "--estimate-error", "normal(0.5)")
    assert wrong.err == ["spill: --estimate-error is not allowed with --estimates walltime"]


def test_unlike_machines_take_the_jobs_that_fit_on_them(spill: Type) -> None:
    Path("t.csv").write_text(
        "id,submit_s,runtime_s,gpus,cpus\na,0,60,8,\nb,1,60,,40\nc,2,60,,32\nd,3,60,1,4\n"
    )
    asked = (
        "--trace",
        "t.csv",
        "--rented",
        "gpu=2,cpu=0.1",
        "--policy",
        "wait=compute(1)",
        "--jobs",
        "out.csv",
    )
    typed = spill(*asked, "--owned", "1x8gpu+2x32cpu")
    assert typed.code == 0, typed.err
    note = "1 job has GPUs and CPUs and never runs on owned machines; those with GPUs have no CPUs"
    assert any(note in line for line in typed.err)
    rows = [line.split(",") for line in Path("out.csv").read_text().splitlines()[1:]]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        ("a", "0", "n1"),
        ("b", "1", "n2+n3"),
        ("c", "61", "n2"),
        ("d", "63", ""),
    ]
    assert not any("no CPUs" in line for line in spill(*asked, "--owned", "1x8gpu,8cpu+2x32cpu").err)
