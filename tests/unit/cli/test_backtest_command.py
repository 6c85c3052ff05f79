"""`spill backtest`: what it says in words, in a table and on a terminal."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from spillover.cli.main import main
from spillover.cli.printing.backtests import Shown, error_facts, show, waits
from spillover.cli.printing.output import Output
from spillover.client import Refused
from spillover.forms.policystring import read_policies
from spillover.model.policy_options import write_policies
from spillover.model.units import SECOND, format_time
from spillover.sim.estimates import Told
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.studies.backtest import run
from spillover.sim.studies.comparing import Deviation, ProjectChange
from spillover.sim.studies.past import PastJobs, from_slurm
from spillover.sim.studies.served import Ruling
from spillover.sim.trace import Happened, Trace, TraceJob
from spillover.wire.api import OfferView, PastJob, PolicyRecord, PoolView

EXACT = Deviation(10, 0.0, 0.0, 0.0, None, 0.0, 0.0, 0.0, 0, 0.0, 0)
AT = 1_800_000_000 * SECOND
FIFO = read_policies("wait=never,backfill=strict")


def a_history(projects: int = 2) -> PastJobs:
    """One machine with one GPU; each job runs 10 s and comes 1 s after the one before."""
    jobs = tuple(
        TraceJob(str(at), at * SECOND, 10 * SECOND, 1, 1000, project=f"p{at}") for at in range(projects)
    )
    happened = tuple(Happened(10 * at * SECOND, (10 * at + 10) * SECOND) for at in range(projects))
    trace = Trace(jobs, AT, happened, 2, 1)
    return from_slurm(trace, read_owned("1x1gpu"), read_rented("gpu=360"), None, None)


def printed(output: Output | None = None, **changes: Any) -> str:
    """What is shown, in a pipe if nothing else is said."""
    output = output or Output(StringIO(), StringIO())
    history = changes.pop("history", a_history())
    ruling = changes.pop("ruling", Ruling(FIFO))
    policies = changes.pop("policies", [("wait=zero", read_policies("wait=zero"))])
    found = run(history, ruling, policies, Told.THEN)
    usual: dict[str, Any] = {"currency": "EUR", "warmup": 0, "all_projects": False, "assumed": False}
    show(output, Shown(found, history, ruling, **(usual | changes)))
    assert isinstance(output.out, StringIO)
    return output.out.getvalue()


def test_a_back_test_says_what_its_policies_know() -> None:
    assert (
        "estimates   policies know what they knew then: estimates, walltimes and predictions of the time\n"
        in printed()
    )
    assert "estimates   policies know the true runtimes, which nobody knows in reality\n" in printed(
        told=Told.RUNTIME
    )


def test_no_error_is_as_it_happened_and_an_error_says_how_far_and_to_which_side() -> None:
    assert {text for _, text in error_facts(EXACT)} == {"as it happened"}
    off = msgspec.structs.replace(
        EXACT,
        mean_wait_s=-90.0,
        mean_wait_share=-0.25,
        cost=1.5,
        cost_share=0.1,
        mean_start_s=100.0,
        p50_start_s=2.0,
        p90_start_s=600.0,
        elsewhere_jobs=3,
        elsewhere=0.3,
        never_ran=1,
    )
    assert error_facts(off, "EUR") == [
        ("mean wait", "1m30s too short (25.0%)"),
        ("cost", "1.50 EUR too much (10.0%)"),
        ("starts", "1m40s off on average; median 2s, p90 10m"),
        ("places", "30.0% of the jobs (3) run on another cluster than in reality"),
        ("never run", "1 job that ran in reality; no machine is large enough"),
        ("so", "ignore differences between policies that are smaller than this error"),
    ]
    far = msgspec.structs.replace(EXACT, cost=99.0, cost_share=99.0)
    assert error_facts(far)[1] == ("cost", "99.00 too much (100 times as much)")


def test_the_whole_of_it() -> None:
    assert printed().splitlines() == [
        "history     2 jobs from 2027-01-15 08:00:00 UTC to 2027-01-15 08:00:01 UTC",
        "left out    1 job that never ran, 2 wrong rows",
        "estimates   policies know what they knew then: estimates, walltimes and predictions of the time",
        "really ran  wait=never,backfill=strict,order=fifo,place=best_fit",
        "policy      wait=zero,backfill=out_of_order,order=fifo,place=best_fit",
        "",
        "                     HAPPENED  SIMULATED  POLICY",
        "jobs                        2          2       2",
        "rented jobs                 0          0       1",
        "cost (EUR)               0.00       0.00    1.00",
        "mean wait                4.5s       4.5s      0s",
        "median wait                0s         0s      0s",
        "p90 wait                   9s         9s      0s",
        "p99 wait                   9s         9s      0s",
        "mean completion           15s        15s     10s",
        "owned machines busy    100.0%     100.0%   50.0%",
        "",
        "Difference between the simulation of the real policies and what happened:",
        "mean wait  as it happened",
        "cost       as it happened",
        "starts     as it happened",
        "places     as it happened",
        "",
        "Projects under policy, compared with what happened:",
        "PROJECT  JOBS  WAITED  WOULD WAIT  CHANGE  COST  WOULD COST  CHANGE",
        "p1          1      9s          0s     -9s  0.00        1.00   +1.00  wins",
        "p0          1      0s          0s       -  0.00        0.00       -  same",
    ]


def test_projects_that_change_most_are_shown_of_many() -> None:
    history = a_history(14)
    some = printed(history=history)
    assert [f"p{at}" in some.split() for at in range(14)] == [at < 5 or at > 8 for at in range(14)]
    assert some.endswith("and 4 more with smaller changes; --all-projects shows them\n")
    all_of_them = printed(history=history, all_projects=True)
    assert all(f"p{at}" in all_of_them.split() for at in range(14))


@pytest.mark.parametrize(
    ("before", "then", "told"),
    [
        (14.64, 14.34, ["14.6s", "14.3s", "-0.3s"]),
        (79.6, 80, ["1m19.6s", "1m20s", "+0.4s"]),
        (14.6, 14.61, ["15s", "15s", "+10ms"]),
        (14.6, 40, ["15s", "40s", "+25s"]),
        (2.04, 2, ["2.0s", "2s", "-40ms"]),
        (4000, 3999.5, ["1h6m", "1h6m", "-0.5s"]),
    ],
)
def test_a_change_is_that_between_the_waits_beside_it(before: float, then: float, told: list[str]) -> None:
    change = ProjectChange("p", 1, before, before, then, then - before, 0.0, 0.0, 0.0, 0.0, "wins")
    assert list(waits(change)) == told


def test_what_decided_is_said_with_its_changes_and_doubts() -> None:
    twice = Ruling(FIFO, ((AT + 1, read_policies("wait=zero")), (AT + 2, FIFO)))
    assert (
        " at first, then changed 2 times; the simulation changes too (see spill policy history)"
        in printed(ruling=twice)
    )
    assert "(assumed; set it with --really)" in printed(assumed=True)
    alone = printed(policies=[], warmup=0)
    assert "Projects" not in alone
    assert "SIMULATED\n" in alone


def test_a_terminal_is_not_left_behind(terminal: Output) -> None:
    drawn = printed(terminal, policies=[(line, read_policies(line)) for line in ("wait=zero", "order=sjf")])
    assert "POLICY 2" in drawn
    assert "wins" in drawn


@pytest.fixture
def past(client: Any) -> Any:
    """A client whose server ran two jobs, and changed its policies between them."""
    lines = [write_policies(read_policies(f"wait={wait}")) for wait in ("never", "zero")]
    shape = {"cpu_milli": 2000, "memory": 0, "gpu": 0, "tasks": 1, "needs": [], "burst": "auto", "data": 0}
    terms = dict.fromkeys(("walltime_ns", "estimate_ns", "predicted_ns", "deadline_ns", "max_cost"))
    names = {"name": "n", "user": "u", "project": "vision", "queue": "default", "priority": 0, "attempt": 1}

    def job(number: int, cluster: str, node: str) -> PastJob:
        at = AT + number * 10 * SECOND
        times = {"submitted_ns": at, "ready_ns": at, "started_ns": at, "finished_ns": at + 5 * SECOND}
        place = {"cluster": cluster, "node": node, "cost": 0.0, "state": "SUCCEEDED", "ran_ns": 5 * SECOND}
        return msgspec.convert({"id": str(number), **shape, **terms, **names, **times, **place}, PastJob)

    client.spans = []

    def ended(since: Any, until: Any, ended_since: Any = None) -> Any:
        client.spans.append((since, until, ended_since))
        return iter([] if ended_since is not None else [job(1, "onprem", "n1"), job(0, "onprem", "old")])

    client.past = ended
    client.budgets = list
    client.queues = list
    client.pools = list
    client.policy = lambda: SimpleNamespace(policy=lines[1])
    client.policy_history = lambda: [
        PolicyRecord(format_time(AT + 1 * SECOND), "ada", "set", lines[0], lines[1], [], None)
    ]
    return client


def test_a_server_is_asked_for_all_that_is_needed(
    past: Any, spill: Callable[..., Any], tmp_path: Path
) -> None:
    typed = spill(
        "backtest",
        "--policy",
        "order=lifo",
        "--since",
        "2027-01-01",
        "--json",
        "--jobs",
        f"{tmp_path}/jobs.csv.gz",
    )
    assert typed.code == 0, typed.err
    found = json.loads(typed.out)
    assert (found["jobs"], found["currency"], found["error"]["mean_start_s"]) == (2, "USD", 0.0)
    assert found["really"]["policy"].startswith("wait=never")
    assert [one["policy"].partition(",")[0] for one in found["really"]["changes"]] == ["wait=zero"]
    assert found["policies"][0]["policy"] == "wait=zero,backfill=out_of_order,order=lifo,place=best_fit"
    assert found["remarks"] == [
        "1 job ran on machines that no longer exist; the simulation uses the current machines",
        "clusters without machines now, and so without machines in the simulation: cloud",
    ]
    day = datetime(2027, 1, 1, tzinfo=UTC)
    assert past.spans == [(None, day, day), (day, None, None)]
    assert next(line for line in typed.err.splitlines() if "simulated" in line).startswith(
        "spill: 2 jobs simulated 2 times in "
    )
    assert (tmp_path / "jobs.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    named = spill("backtest", "--really", "wait=constant(1h)")
    assert "really ran  wait=constant(1h),backfill=out_of_order" in named.out


def test_pools_are_told_with_what_was_assumed_of_them(past: Any, spill: Callable[..., Any]) -> None:
    offer = OfferView("small", "a", False, 0.4, 4, 2**34, 0, 60, 90)
    past.pools = lambda: [PoolView("cloud", "process", "open", None, [], [offer], 0, 3)]
    told = json.loads(spill("backtest", "--json").out)
    assert told["really"]["pool"]["machines"] == 0
    remarks = " ".join(told["remarks"])
    assert "machines of pools are rented anew (cloud)" in remarks
    assert "this server is of an earlier release and does not tell all about its pools" in remarks
    assert "without machines" not in remarks


@pytest.mark.parametrize(("status", "code"), [(404, 0), (403, 2)])
def test_a_server_of_a_release_without_pools_is_asked_in_vain(
    past: Any, spill: Callable[..., Any], status: int, code: int
) -> None:
    def pools() -> list[PoolView]:
        raise Refused("not found", status=status, kind="invalid")

    past.pools = pools
    assert spill("backtest").code == code


def test_policies_that_are_not_installed_here_are_one_line(past: Any, spill: Callable[..., Any]) -> None:
    past.policy_history = list
    past.policy = lambda: SimpleNamespace(policy="wait=of_our_own")
    typed = spill("backtest")
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
    assert typed.err.startswith("spill: wait=of_our_own was in effect then, but is not available here: ")
    assert typed.err.endswith("; name the closest available policy with --really\n")


SACCT = "JobID|Submit|Start|End|AllocTRES|Timelimit\n" + "".join(
    f"{at}|2027-01-31T10:00:0{at}|2027-01-31T1{at}:00:00|2027-01-31T1{at + 1}:00:00|cpu=1,gres/gpu=1|02:00:00\n"
    for at in range(4)
)


def test_a_back_test_sweeps_and_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(SACCT)
    asked = ["--sacct", "sacct.txt", "--owned", "1x1gpu,4cpu", "--rented", "gpu=2", "--policy", "wait=zero"]
    sweeps = ["--sweep", "wait=constant(0h..2h/3)", "--sweep", "wait=runtime(0.5)"]
    assert main(["backtest", *asked, *sweeps, "--plot", "frontier.svg"]) == 0
    out, err = capsys.readouterr()
    lines = out[out.index("Policies of --sweep") :].splitlines()
    assert lines[0] == "Policies of --sweep, compared with the simulation of the real policies:"
    found = [line.split() for line in lines[2:]]
    assert [(row[0], row[2]) for row in found] == [
        ("really", "0.00"),
        ("constant(0h)", "6.00"),
        ("constant(1h)", "4.00"),
        ("constant(2h)", "2.00"),
        ("runtime(0.5)", "4.00"),
    ]
    assert "spill: the plot is in frontier.svg" in err
    picture = Path("frontier.svg").read_text()
    words = ("as it was", "longer than it was, %", "constant", "policies know what they knew then")
    assert all(word in picture for word in words)
    assert main(["backtest", *asked, *sweeps, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["written"] for one in told["policies"]] == ["wait=zero"]
    assert [(one["curve"], one["label"], one["rented_cost"]) for one in told["sweep"]] == [
        (1, "wait=constant(0h)", 6.0),
        (1, "wait=constant(1h)", 4.0),
        (1, "wait=constant(2h)", 2.0),
        (2, "wait=runtime(0.5)", 4.0),
    ]
    assert [project["jobs"] for one in told["sweep"] for project in one["projects"]] == [4] * 4


def test_a_back_test_rents_machines_of_a_pool(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(SACCT)
    pool = "pool:2gpu,8cpu,hour=5,boot=90s,step=1h"
    asked = ["--sacct", "sacct.txt", "--owned", "1x1gpu,4cpu", "--rented", pool, "--policy", "wait=zero"]
    assert main(["backtest", *asked]) == 0
    out = capsys.readouterr().out
    rows = {line[:20].strip(): line[20:].split() for line in out.splitlines()}
    assert rows["machines rented"] == ["-", "0", "2"]
    assert rows["cost"] == ["0.00", "0.00", "20.00"]
    assert rows["machine hours paid"] == ["-", "0.0", "4.0"]
    assert rows["of these useful"][:2] == ["-", "0%"]
    assert main(["backtest", *asked, "--sweep", "wait=zero", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["happened"]["pool"] is None
    assert told["policies"][0]["pool"]["machines"] == told["sweep"][0]["pool"]["machines"] == 2
    bad = [word if word != pool else "pool:8gpu" for word in asked]
    assert main(["backtest", *bad]) == 2
    assert (
        capsys.readouterr().err == "spill: --rented: an offer needs a price; write hour=20 (at character 1)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--plot", "x.svg"), "--plot needs --sweep, such as --sweep 'wait=compute(0.02..0.2/8)'"),
        (("--sweep", "wait=zero", "--plot", "x.pdf"), "--plot: x.pdf is neither .svg nor .png"),
        (("--sweep", "wait=soon(1..2/2)"), "--sweep: wait: 'soon' is not a policy of the axis wait"),
        (("--sweep", "wait=zero", "--plot", "sacct.txt"), "--plot: sacct.txt is also the file of --sacct"),
    ],
)
def test_sweeps_that_make_no_sense_are_one_line(
    arguments: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(SACCT)
    assert main(["backtest", "--sacct", "sacct.txt", "--owned", "1x1gpu", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spill: {problem}")
