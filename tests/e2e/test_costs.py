"""Money, on a real server with a rented cluster: what is estimated, held, refused, spent and summed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ServerProcess, wait_until

CLUSTERS: list[dict[str, Any]] = [
    {"name": "onprem", "role": "owned", "local": [{"name": "n1", "cpu": 1, "memory": "1Gi"}]},
    {
        "name": "cloud",
        "role": "rented",
        "local": [{"name": "v1", "cpu": 2, "memory": "1Gi"}],
        "price": {"cpu_hour": 36},
        "billing": {"step": "1s", "minimum": "1s"},
    },
]
BUDGETS = [{"project": "vision", "per": "ever", "limit": 1}]


def a_job(name: str, run: str, **spec: object) -> str:
    doc = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name, "project": "vision"},
        "spec": {"run": run, "burst": "always", **spec},
    }
    return json.dumps(doc)


def said(server: ServerProcess, *words: str) -> Any:
    done = server.spill(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_budget_holds_what_a_job_can_cost_refuses_what_would_pass_it_and_is_told(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=CLUSTERS, budgets=BUDGETS, policy={"wait": "zero"}).up()
    try:
        wait_until(
            lambda: all(one["agents"] for one in said(server, "clusters")), "agents of both clusters", 20
        )
        dry = server.spill("submit", "-", "--dry-run", "--json", typed=a_job("a", "true", walltime="20s"))
        (forecast,) = json.loads(dry.stdout)
        assert (forecast["cluster"], forecast["estimated_cost"], forecast["cost_at_walltime"]) == (
            "cloud",
            0.2,
            0.6,
        )

        first = server.spill("submit", "-", typed=a_job("first", "sleep 600", walltime="20s")).stdout.strip()
        wait_until(
            lambda: said(server, "show", first)["state"] == "RUNNING", "the start of the first job", 20
        )
        shown = said(server, "show", first)
        assert (shown["held_cost"], shown["given_walltime_s"]) == (
            0.6,
            None,
        )  # 20 s, 10 s of grace, 30 s of slack

        second = server.spill("submit", "-", typed=a_job("second", "true", walltime="20s")).stdout.strip()
        wait_until(lambda: said(server, "why", second)["reason"]["code"] == "over_budget", "its refusal", 20)
        reason = said(server, "why", second)["reason"]
        assert {name: reason["details"][name] for name in ("cost", "left", "limit", "runs_s", "until")} == {
            "cost": 0.6,
            "left": 0.4,
            "limit": 1.0,
            "runs_s": 20.0,
            "until": None,
        }
        (budget,) = said(server, "budgets")
        assert (budget["name"], budget["spent"], budget["held"], budget["left"]) == ("vision", 0.0, 0.6, 0.4)

        assert server.spill("cancel", "first").returncode == 0
        wait_until(
            lambda: said(server, "show", second)["state"] == "SUCCEEDED",
            "the end of the second job, rented after all",
            20,
        )
        assert server.spill("wait", first).returncode == 1
        spent = said(server, "show", first)["cost"] + said(server, "show", second)["cost"]
        assert 0 < spent < 0.6
        for by, key in (("project", "vision"), ("cluster", "cloud")):
            (row,) = said(server, "cost", "--by", by)
            assert (row["key"], row["jobs"], row["running"], row["held"]) == (key, 2, 0.0, 0.0)
            assert row["cost"] == pytest.approx(spent)
        (budget,) = said(server, "budgets")
        assert (budget["spent"], budget["held"]) == (pytest.approx(spent), 0.0)
        assert said(server, "cost", "--since", "2200-01-01") == []
        assert "vision" in server.spill("cost").stdout
        assert "project vision" in server.spill("budgets").stdout
        assert "is held for it" in server.spill("events").stdout
    finally:
        server.stop()
    again = servers(clusters=CLUSTERS, budgets=BUDGETS, policy={"wait": "zero"}).up()
    (budget,) = said(again, "budgets")
    assert budget["spent"] == pytest.approx(spent)
    assert said(again, "cost")[0]["cost"] == pytest.approx(spent)


def test_a_job_without_a_walltime_is_stopped_when_its_cap_is_used_up(
    servers: Callable[..., ServerProcess],
) -> None:
    clusters = [CLUSTERS[0], CLUSTERS[1] | {"price": {"cpu_hour": 3600}}]
    server = servers(clusters=clusters, policy={"wait": "zero"}).up()
    job = server.spill(
        "submit", "-", typed=a_job("a", "sleep 600", max_cost=92, grace="0s", estimate="60s")
    ).stdout.strip()
    wait_until(lambda: said(server, "show", job)["state"] == "RUNNING", "its start", 20)
    shown = said(server, "show", job)
    assert (shown["given_walltime_s"], shown["held_cost"]) == (62.0, 92.0)
    assert "1m2s, limited by its cost cap" in server.spill("show", job).stdout
    assert server.spill("cancel", job).returncode == 0
    assert server.spill("wait", job).returncode == 1


def test_what_a_job_did_with_its_gpu_is_shown_and_summed(
    servers: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
case "$1" in
-L) echo "GPU 0: Test (UUID: GPU-0)"; echo "GPU 1: Test (UUID: GPU-1)" ;;
--query-gpu=*) echo "0, 40, 2048"; echo "1, 0, 0"; touch {asked} ;;
*) exit 1 ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    local = [{"name": "n1", "cpu": 2, "memory": "1Gi", "gpu": 2}]
    server = servers(clusters=[{"name": "onprem", "role": "owned", "local": local}]).up()
    try:
        run = f"until [ -e {asked} ]; do sleep 0.1; done; sleep 1"
        job = server.spill("run", "--wait", "--gpu", "1", "--", "sh", "-c", run, timeout=60)
        assert job.returncode == 0, job
        with server.client() as client:
            (found,) = client.jobs()
        used = said(server, "show", found.id)["efficiency"]
        assert (used["gpu"], used["gpu_memory_used"]) == (pytest.approx(0.4, abs=0.01), 2 << 30)
        assert "GPU used" in server.spill("show", found.id).stdout
        total = said(server, "usage")["total"]
        assert total["unused"]["gpu"] == pytest.approx(total["measured"]["gpu"] * 0.6, rel=0.05)
    finally:
        server.clear()
