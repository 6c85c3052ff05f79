"""`spill backtest` on what a real server really did, and on what Slurm says that it did."""

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Refused
from tests.support.fork_server import fork_server
from tests.support.processes import ServerProcess, clean_environment, wait_until

CLUSTERS: list[dict[str, Any]] = [
    {"name": "onprem", "role": "owned", "local": [{"name": "n1", "cpu": 2, "memory": "1Gi"}]},
    {
        "name": "cloud",
        "role": "rented",
        "local": [{"name": "v1", "cpu": 2, "memory": "1Gi"}],
        "price": {"cpu_hour": 36},
        "billing": {"step": "1s", "minimum": "1s"},
    },
]
SLURM = """\
JobID|User|Account|Submit|Start|End|State|AllocTRES|ReqMem|Timelimit|NNodes
1|ada|vision|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T11:00:00|COMPLETED|cpu=8,gres/gpu=4,node=1||02:00:00|1
1.batch|||2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T11:00:00|COMPLETED|cpu=8,node=1|||1
2|bob|speech|2026-03-01T10:10:00|2026-03-01T11:00:00|2026-03-01T11:30:00|FAILED|cpu=8,gres/gpu=4,node=1||01:00:00|1
3|bob|speech|2026-03-01T10:20:00|2026-03-01T11:30:00|2026-03-01T12:00:00|TIMEOUT|cpu=8,gres/gpu=4,node=1||00:30:00|1
4|ada|vision|2026-03-01T10:30:00|None|2026-03-01T10:40:00|CANCELLED|cpu=8,gres/gpu=4,node=1||00:30:00|1
"""


def spill(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = ("backtest", *arguments)
    return fork_server().run(words, folder=folder, environment=clean_environment(), timeout=60)


def some_jobs(count: int) -> str:
    docs = [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": f"job{at}", "project": "vision" if at % 3 else "speech"},
            "spec": {"run": f"sleep {0.1 + at % 4 / 10}", "resources": {"cpu": 1}, "estimate": "1s"},
        }
        for at in range(count)
    ]
    return "\n---\n".join(map(json.dumps, docs))


def submitted(server: ServerProcess, count: int) -> list[str]:
    done = server.spill("submit", "-", typed=some_jobs(count))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_a_server_did_is_simulated_again_and_under_other_policies(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=CLUSTERS, policy={"wait": {"constant": {"wait": "1s"}}}).up()
    with server.client() as client:
        wait_until(lambda: all(one.agents for one in client.clusters()), "both clusters", 20)
    first = submitted(server, 20)
    assert server.spill("wait", *first).returncode == 0
    assert server.spill("policy", "set", "wait=never").returncode == 0
    rest = submitted(server, 15)
    other = server.spill("run", "--detach", "--cpu", "1", "--", "true").stdout.strip()
    assert server.spill("wait", *rest, other).returncode == 0
    never = server.spill("run", "--detach", "--need", "nobody", "--", "true").stdout.strip()
    assert server.spill("cancel", never).returncode == 0

    told = server.spill(
        "backtest", "--policy", "wait=zero", "--policy", "order=sjf", "--json", "--jobs", "jobs.csv"
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["jobs"], found["never_ran"], found["currency"]) == (36, 1, "USD")
    spent = sum(one["cost"] for one in json.loads(server.spill("cost", "--json").stdout))
    happened, really = found["happened"], found["really"]
    assert happened["rented_cost"] == pytest.approx(spent)
    assert happened["rented_jobs"] > 0
    assert really["policy"].startswith("wait=constant(1s)")
    assert [one["policy"].partition(",")[0] for one in really["changes"]] == ["wait=never"]
    assert really["jobs"] == 36
    # Processes take time to begin and messages to travel, which the simulation knows nothing of: seconds, not minutes.
    assert abs(found["error"]["mean_wait_s"]) < 5
    assert found["error"]["elsewhere"] < 0.5
    zero, sjf = found["policies"]
    assert zero["policy"].startswith("wait=zero")
    assert sjf["policy"].startswith("wait=never")  # as it was in the end
    assert zero["rented_cost"] > 0
    assert {one["project"] for one in zero["projects"]} == {"default", "speech", "vision"}
    with (server.folder / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 36
    assert {row["cluster"] for row in rows if row["policy"] == "happened"} == {"onprem", "cloud"}

    text = server.spill("backtest", "--policy", "wait=zero", "--since", "1h")
    assert text.returncode == 0, text.stderr
    assert text.stdout.startswith("history     36 jobs from ")
    assert "left out    1 job that never ran" in text.stdout
    assert " at first, then changed once; the simulation changes too" in text.stdout
    assert "Difference between the simulation of the real policies and what happened:" in text.stdout
    assert "Projects under policy, compared with what happened:" in text.stdout
    alone = server.spill("backtest", "--until", "1h")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr == (
        "spill: no job ran and ended in this time range; choose another one with --since and --until\n"
    )


def test_what_a_server_did_on_machines_of_a_pool_is_simulated_with_machines_of_its_own(
    servers: Callable[..., ServerProcess],
) -> None:
    offer = {"type": "small", "cpu": 1, "memory": "1Gi", "hour": 36}
    pool = {"provider": "process", "offers": [offer], "max": 3, "boot": "1s", "idle": "1h"}
    clusters = [CLUSTERS[0], {"name": "cloud", "role": "rented", "pool": pool}]
    server = servers(clusters=clusters, policy={"wait": "zero"}).up()
    assert server.spill("wait", *submitted(server, 12)).returncode == 0
    with server.client() as client:
        (view,) = client.pools()
    up = [each for each in view.machines if each.state == "ready"]
    assert up, "machines stay for an hour"

    told = server.spill("backtest", "--policy", "wait=never", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    happened, really, (never,) = found["happened"], found["really"], found["policies"]
    assert (really["jobs"], really["never_ran"]) == (12, 0)
    assert happened["rented_jobs"] > 0
    assert happened["pool"] is None
    assert really["pool"]["machines"] > 0
    assert really["pool"]["idle_hours"] > really["pool"]["useful_hours"]
    assert really["rented_cost"] > happened["rented_cost"]
    assert (never["rented_jobs"], never["pool"]["machines"]) == (0, 0)
    remarks = " ".join(found["remarks"])
    assert "machines of pools are rented anew (cloud)" in remarks
    assert "no longer exist" not in remarks
    assert "without machines" not in remarks
    text = server.spill("backtest", "--policy", "wait=never")
    assert "machine hours paid" in text.stdout
    assert "machines of pools are rented anew (cloud)" in text.stderr


def test_what_slurm_did_is_compared_with_renting(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SLURM)
    where = ("--sacct", "sacct.txt", "--owned", "1x4gpu,64cpu", "--rented", "gpu=2.5")
    told = spill(tmp_path, *where, "--policy", "wait=zero", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["jobs"], found["never_ran"], found["error"]["mean_start_s"]) == (3, 1, 0.0)
    assert (found["happened"]["rented_cost"], found["happened"]["mean_wait_s"]) == (0.0, 2400.0)
    (zero,) = found["policies"]
    assert (zero["rented_jobs"], zero["rented_cost"], zero["mean_wait_s"]) == (2, 10.0, 0.0)
    speech, vision = zero["projects"]
    assert (speech["project"], speech["verdict"], speech["wait_change_s"], speech["cost_change"]) == (
        "speech",
        "wins",
        -3600.0,
        10.0,
    )
    assert (vision["project"], vision["verdict"]) == ("vision", "same")
    text = spill(tmp_path, *where, "--policy", "wait=zero")
    assert "(assumed; set it with --really)" in text.stdout
    assert "mean wait  as it happened" in text.stdout
    row = next(line for line in text.stdout.splitlines() if line.startswith("speech"))
    assert row.split() == ["speech", "2", "1h", "0s", "-1h", "0.00", "10.00", "+10.00", "wins"]


BAD = [
    (
        ("--sacct", "sacct.txt"),
        "--sacct needs --owned, the machines that the jobs ran on, such as --owned 64x8gpu",
    ),
    (("--owned", "1x4gpu"), "--owned is only allowed with --sacct"),
    (("--skip-bad",), "--skip-bad is only allowed with --sacct"),
    (("--since", "1d", "--until", "2d"), "--since must be earlier than --until"),
    (("--since", "soon"), "argument --since: 'soon' is not a time; write an age"),
    (("--estimates", "truth"), "argument --estimates: 'truth' is not valid; write then, true"),
    (("--sacct", "none.txt", "--owned", "1x4gpu"), "none.txt: No such file or directory"),
    (("--sacct", "sacct.txt", "--owned", "four"), "--owned: 'four' is not a number of machines"),
    (
        ("--sacct", "sacct.txt", "--owned", "1x4gpu", "--policy", "wait=soon"),
        "--policy: wait: 'soon' is not a policy of the axis wait",
    ),
    (("--sacct", "sacct.txt", "--owned", "1x4gpu", "--really", "nice"), "--really: 'nice' has no axis"),
    (("--sacct", "sacct.txt", "--owned", "1x4gpu", "--warmup", "2"), "--warmup: 2 leaves none of the 3 jobs"),
    (
        ("--sacct", "sacct.txt", "--owned", "1x4gpu", "--since", "2026-04-01"),
        "no job ran in this time range",
    ),
    (
        ("--sacct", "jobs.csv", "--owned", "1x4gpu"),
        "jobs.csv has no start times of jobs; use spill simulate",
    ),
    (
        ("--sacct", "sacct.txt", "--owned", "1x4gpu", "--jobs", "no/jobs.csv"),
        "--jobs: folder no does not exist",
    ),
    (("--data", "nowhere"), "no server"),
]


@pytest.mark.parametrize(("arguments", "problem"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_what_cannot_be_done_is_one_line(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    (tmp_path / "sacct.txt").write_text(SLURM)
    (tmp_path / "jobs.csv").write_text("submit_s,runtime_s,gpus\n0,10,1\n")
    typed = spill(tmp_path, *arguments)
    assert (typed.returncode, typed.stdout, typed.stderr.count("\n")) == (2, "", 1), typed.stderr
    assert typed.stderr.startswith("spill: ")
    assert problem in typed.stderr


def test_a_server_simulates_its_own_last_jobs_under_other_waits(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=CLUSTERS, policy={"wait": {"constant": {"wait": "1s"}}}).up()
    with server.client() as client:
        wait_until(lambda: all(one.agents for one in client.clusters()), "both clusters", 20)
        assert client.frontier().state == "none"
        client.compute_frontier()
        wait_until(lambda: client.frontier().state == "failed", "the word that there are no jobs", 30)
        assert "no job ran and ended in this time range" in client.frontier().message
        assert server.spill("wait", *submitted(server, 12)).returncode == 0
        begun = client.compute_frontier(3600)
        assert begun.state == "computing"
        with pytest.raises(Refused, match="is being made"):
            client.compute_frontier()
        wait_until(lambda: client.frontier().state == "ready", "a frontier", 60)
        found = client.frontier()
    assert (found.jobs, len(found.points)) == (12, 11)
    assert found.now is not None
    assert found.now.policy == "wait=constant(1s)"
    never_waiting, *_, only_waiting = found.points
    assert (never_waiting.policy, only_waiting.policy) == ("wait=zero", "wait=never")
    assert never_waiting.cost >= found.now.cost >= only_waiting.cost == 0
    assert never_waiting.mean_wait_s <= only_waiting.mean_wait_s
    assert {one.project for one in only_waiting.projects} == {"vision", "speech"}
    server.stop()
    with server.up().client() as client:
        assert client.frontier() == found
