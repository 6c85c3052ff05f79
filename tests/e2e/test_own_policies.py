"""The example package is installed as people would, and decides on a real server; so are packages that are slow, fail, or go away."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.core.events import AnyEvent, Decided, PolicyChanged, PolicyDisabled
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import digest_of
from spillover.deciding.engine import Engine
from spillover.deciding.queue.index import SchedulingIndex
from spillover.policies.loading import load
from tests.support.processes import ServerProcess, read_journal, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "policies"
CLUSTERS = [
    {"name": "onprem", "role": "owned", "local": [{"name": "n1", "cpu": 1, "queue": 0}]},
    {"name": "cloud", "role": "rented", "local": [{"name": "v1", "cpu": 4, "queue": 0}]},
]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages that every server and command of this test sees."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).strip(":")
    )
    return folder


def install(package: Path, site: Path) -> None:
    """`pip install`, without a network."""
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(package)],
        check=True,
        capture_output=True,
        timeout=120,
    )


def write_package(site: Path, **policies: str) -> None:
    """A package whose module `own` has these policies, as `wait_slow=...`."""
    body = "\n\n".join(textwrap.dedent(each) for each in policies.values())
    (site / "own.py").write_text(f"import time\n\n{body}\n")
    info = site / "own-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    points = [f"{name.replace('_', '.', 1)} = own:{name.title().replace('_', '')}" for name in policies]
    (info / "entry_points.txt").write_text("\n".join(["[spillover.policies]", *points, ""]))


SLOW = """
    class WaitSlow:
        def wait(self, case):
            time.sleep(0.4)
            return 0
"""
FAILING = """
    class WaitFailing:
        def wait(self, case):
            raise KeyError("prices")
"""


def shown(server: ServerProcess, *what: str) -> Any:
    """What a command prints as JSON."""
    done = server.spill(*what, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def axis(server: ServerProcess, name: str) -> dict[str, Any]:
    """One axis of the policies."""
    (found,) = (one for one in shown(server, "policy", "show")["axes"] if one["axis"] == name)
    return dict(found)


def replayed(events: list[AnyEvent]) -> int:
    """How many plans of a journal come out again as they were."""
    engine, plans = Engine(State(), load), 0
    for event in events:
        if isinstance(event, Decided):
            index = SchedulingIndex(engine.state, engine.policies)
            plan = cycle.run(engine.state, index, engine.policies, event.now, event.seed).plan
            assert plan.digest() == event.plan
            assert digest_of(engine.policies.chosen) == event.policy
            plans += 1
        engine.apply(event)
    return plans


def both_agents(server: ServerProcess) -> None:
    """Wait until owned and rented machines are there: a job that came before would be rented."""
    wait_until(lambda: len(shown(server, "agents")) == len(CLUSTERS), "both agents")


def test_the_example_is_installed_and_decides(
    site: Path, tmp_path: Path, servers: Callable[..., ServerProcess]
) -> None:
    copy = tmp_path / "package"
    shutil.copytree(EXAMPLE, copy)
    server = servers(clusters=CLUSTERS).up()
    both_agents(server)
    refused = server.spill("policy", "set", "order=small_first")
    assert (refused.returncode, "'small_first' is not a policy of the axis order" in refused.stderr) == (
        2,
        True,
    )
    install(copy, site)
    line = "order=small_first,wait=stepped(short=1s,short_wait=0s,long_wait=1h)"
    done = server.spill("policy", "set", line)
    assert done.returncode == 0, (done, server.last_words())
    assert axis(server, "order")["installed"]
    server.spill("run", "--name", "first", "--detach", "--estimate", "1h", "--", "sleep", "60")
    wait_until(lambda: shown(server, "show", "first")["state"] == "RUNNING", "the first job")
    server.spill("run", "--name", "long", "--detach", "--estimate", "1h", "--", "true")
    server.spill("run", "--name", "short", "--detach", "--estimate", "1s", "--", "true")
    assert server.spill("wait", "short").returncode == 0
    assert shown(server, "show", "short")["cluster"] == "cloud"
    why = shown(server, "why", "long")
    assert (why["state"], 3500 < why["spills_in_s"] <= 3600) == ("QUEUED", True)
    assert [axis(server, name)["failures"] for name in ("order", "wait")] == [0, 0]
    trace = ("--trace", "synthetic:jobs=300", "--owned", "2x8gpu", "--rented", "gpu=2.5")
    simulated = server.spill("simulate", *trace, "--policy", line, "--json")
    assert simulated.returncode == 0, simulated
    assert "order=small_first" in json.loads(simulated.stdout)["policy"]
    bad = server.spill("policy", "set", "wait=stepped(short=soon)")
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
    assert "policy wait: stepped: short: 'soon' is not a duration; write " in bad.stderr


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    copy = tmp_path / "package"
    shutil.copytree(EXAMPLE, copy)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_slow_policy_is_disabled_by_an_event_and_the_journal_replays_to_the_same_plans(
    site: Path, servers: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(site, wait_slow=SLOW)
    server = servers(clusters=CLUSTERS, policy={"wait": "slow", "slow_after": "100ms"}).up()
    both_agents(server)
    server.spill("run", "--name", "first", "--detach", "--", "sleep", "60")
    wait_until(lambda: shown(server, "show", "first")["state"] == "RUNNING", "the first job")
    server.spill("run", "--name", "second", "--detach", "--", "true")
    wait = wait_until(lambda: (found := axis(server, "wait"))["disabled"] and found, "the policy is disabled")
    assert (wait["policy"], wait["disabled"]) == ("never", "slow")
    assert "in one step" in wait["error"]
    server.spill("run", "--name", "third", "--detach", "--", "true")
    reason = shown(server, "why", "third")["reason"]
    assert reason["code"] == "policy_failed"
    assert "wait.slow failed: it took" in reason["message"]
    assert "a policy was too slow and is disabled" in server.last_words()
    assert shown(server, "policy", "history")[0]["how"] == "disabled"
    server.stop()
    server.up()
    assert axis(server, "wait")["disabled"] == "slow", "a restart brings nothing back"
    assert server.spill("policy", "set", "wait=zero").returncode == 0
    assert server.spill("wait", "third").returncode == 0
    server.stop()
    events = read_journal(server.data)
    assert len([event for event in events if isinstance(event, PolicyDisabled)]) == 1
    monkeypatch.syspath_prepend(str(site))
    assert replayed(events) >= 3


def test_a_failing_policy_does_not_stop_the_server(site: Path, servers: Callable[..., ServerProcess]) -> None:
    write_package(site, wait_failing=FAILING)
    server = servers(clusters=CLUSTERS, policy={"wait": "failing"}).up()
    both_agents(server)
    server.spill("run", "--name", "first", "--detach", "--", "sleep", "60")
    wait_until(lambda: shown(server, "show", "first")["state"] == "RUNNING", "the first job")
    server.spill("run", "--name", "second", "--detach", "--", "true")
    why = server.spill("why", "second").stdout
    assert "policy wait.failing failed: KeyError: 'prices'" in why
    wait = axis(server, "wait")
    assert (wait["failures"] >= 1, wait["error"]) == (True, "KeyError: 'prices'")
    assert "KeyError: 'prices'" in server.spill("policy", "show").stdout
    assert "a policy failed; the cycle fell back" in server.last_words()
    server.spill("cancel", "first")
    assert server.spill("wait", "second").returncode == 0
    assert shown(server, "show", "second")["cluster"] == "onprem"


def test_a_server_whose_policy_was_uninstalled_starts_and_says_so(
    site: Path, servers: Callable[..., ServerProcess]
) -> None:
    write_package(site, wait_failing=FAILING, wait_slow=SLOW)
    server = servers(clusters=CLUSTERS).up()
    both_agents(server)
    assert server.spill("policy", "set", "wait=failing(max_wait=1h)").returncode == 0
    server.stop()
    shutil.rmtree(site / "own-1.dist-info")
    server.up()
    wait = axis(server, "wait")
    assert (wait["policy"], wait["disabled"]) == ("never", "failing(max_wait=1h)")
    assert "there is no wait policy 'failing'" in wait["error"]
    assert "a policy is missing; using the fallback" in server.last_words()
    changed = shown(server, "policy", "history")
    assert [one["how"] for one in changed] == ["disabled", "set"]
    assert server.spill("policy", "reset").returncode == 0
    assert not shown(server, "policy", "show")["differs"]
    server.stop()
    kinds = [type(event) for event in read_journal(server.data)]
    assert kinds.count(PolicyDisabled) == 1
    assert kinds.count(PolicyChanged) == 2


def test_a_configuration_that_names_what_cannot_be_made_is_refused(
    site: Path, servers: Callable[..., ServerProcess]
) -> None:
    write_package(site, wait_slow=SLOW)
    for policy, told in (
        ({"wait": "gone"}, "policy.wait: 'gone' is not a policy of the axis wait"),
        (
            {"wait": {"slow": {"speed": 3}}},
            "policy.wait: policy wait: slow does not take these options: speed",
        ),
    ):
        server = servers(clusters=CLUSTERS, policy=policy)
        server.launch()
        assert server.await_end() == 2
        assert told in server.last_words()
        assert "Traceback" not in server.last_words()
