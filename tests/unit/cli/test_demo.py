"""The parts of the demo that need no server."""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.cli.command import UsageError
from spillover.cli.demo import server
from spillover.cli.demo.command import play
from spillover.cli.demo.machines import Rented, follow, moved
from spillover.cli.demo.otherwise import outcomes
from spillover.cli.demo.plan import (
    CONFIG,
    MACHINE_CPUS,
    MOST_MACHINES,
    OWNED,
    OWNED_CPUS,
    RENTED,
    SECOND_PRICE,
    waves,
)
from spillover.cli.demo.report import report, totals
from spillover.cli.demo.story import DemoLook, happened
from spillover.cli.demo.view import DemoView, picture
from spillover.cli.printing.output import Output
from spillover.config.read import read_config
from spillover.forms.jobs.reading import read_job
from spillover.wire.api import ArrayView, ClusterView, MachineCostView, MachineView, PoolView
from tests.support.processes import alive, wait_until

AT = "2026-01-31T10:00:00.000000Z"
PAID = MachineCostView("total", 2, 0.5, 0.25, 0.08, 0.17, 0.0, 0, 0.0)


def a_machine(state: str, name: str = "cloud-1", **more: Any) -> MachineView:
    told: dict[str, Any] = {"cost": 0.0, "reason": "", "job": "b"} | more
    return MachineView(
        id=name, type="small", zone="", spot=False, state=state, node=None, since=AT, hour=72.0, **told
    )


@pytest.fixture
def ended(a_job: Any, a_failed_job: Any, a_reason: Any) -> list[Any]:
    """Three jobs: owned, rented, and one that failed."""
    spilled = a_reason("its wait ended after 3.2s", "wait_over")
    return [
        a_job(id="a", name="fit-1", cluster=OWNED),
        a_job(id="b", name="train-1", cluster=RENTED, node="cloud-1", cost=0.06, placed_because=spilled),
        a_failed_job(id="c.2", name="sweep", cluster=OWNED),
    ]


def test_every_job_of_the_demo_is_a_valid_job_file() -> None:
    documents = [document for wave in waves() for document in wave.documents]
    forms = [read_job(document) for document in documents]
    assert len({form.spec.name for form in forms}) == len(forms)
    assert 35 <= sum(sum(map(len, form.spec.array)) or 1 for form in forms) <= 45
    assert any(form.after for form in forms)
    assert any(form.spec.array for form in forms)


def test_the_demo_asks_for_less_than_half_a_minute_of_its_machines() -> None:
    work = sum(
        float(document["spec"]["estimate"].removesuffix("s")) * document["spec"]["resources"]["cpu"]
        for wave in waves()
        for document in wave.documents
    )
    assert max(wave.at for wave in waves()) < 12
    assert work / (OWNED_CPUS + MOST_MACHINES * MACHINE_CPUS) < 15


def test_the_configuration_of_the_demo_has_an_owned_cluster_and_one_that_rents_machines() -> None:
    config = read_config(CONFIG)
    assert [(cluster.name, cluster.role) for cluster in config.clusters] == [
        (OWNED, "owned"),
        (RENTED, "rented"),
    ]
    pool = config.clusters[1].pool
    assert pool is not None
    assert (pool.provider, pool.min, pool.max) == ("process", 0, MOST_MACHINES)


def test_a_look_tells_what_is_new(ended: list[Any], a_queued_job: Any) -> None:
    before = {"a": a_queued_job(id="a"), "b": a_queued_job(id="b")}
    after = {job.id: job for job in ended}
    assert [(one.subject, one.text) for one in happened(before, after)] == [
        ("fit-1", "runs on onprem: owned capacity had room"),
        ("fit-1", "succeeded on onprem after 60.0s"),
        ("train-1", "spills over to cloud: its wait ended after 3.2s"),
        ("train-1", "succeeded on cloud after 60.0s for 0.06 USD"),
        ("sweep.2", "runs on onprem: owned capacity had room"),
        ("sweep.2", "failed: exited with code 3"),
    ]
    assert happened(after, after) == []


def test_a_look_tells_which_machines_were_ordered_ready_and_given_back(ended: list[Any]) -> None:
    jobs = {job.id: job for job in ended}
    looks = [
        (2.0, a_machine("wanted")),
        (2.2, a_machine("booting")),
        (4.5, a_machine("ready")),
        (9.0, a_machine("draining", reason="it was empty for as long as it pays")),
        (11.0, a_machine("ending", reason="it was empty for as long as it pays")),
        (12.0, a_machine("gone", cost=0.2)),
        (12.2, a_machine("gone", cost=0.2)),
    ]
    known: dict[str, Rented] = {}
    told = []
    for elapsed, machine in looks:
        after = follow(known, [machine], elapsed)
        told += [(elapsed, one.subject, one.text) for one in moved(known, after, jobs)]
        known = after
    assert told == [
        (2.0, "cloud-1", "a machine is ordered for train-1"),
        (4.5, "cloud-1", "is ready after 2.5s"),
        (11.0, "cloud-1", "is given back: it was empty for as long as it pays"),
        (12.0, "cloud-1", "is gone; it cost 0.20 USD"),
    ]
    assert known["cloud-1"][1:] == (2.0, 4.5, 12.0)


def test_a_machine_that_never_joined_is_not_called_ready(ended: list[Any]) -> None:
    jobs = {job.id: job for job in ended}
    before = follow({}, [a_machine("booting")], 1.0)
    after = follow(before, [a_machine("gone", reason="its process ended")], 3.0)
    assert [one.text for one in moved(before, after, jobs)] == ["is gone; it cost 0.00 USD"]
    assert after["cloud-1"].ready is None


def test_a_machine_that_is_refused_says_why(ended: list[Any]) -> None:
    after = follow({}, [a_machine("refused", reason="no capacity")], 1.0)
    texts = [one.text for one in moved({}, after, {job.id: job for job in ended})]
    assert texts == ["a machine is ordered for train-1", "was refused: no capacity"]


def test_the_demo_is_over_when_its_machines_are_given_back(ended: list[Any]) -> None:
    jobs = {job.id: job for job in ended}
    machines = follow({}, [a_machine("ready"), a_machine("gone", "cloud-2")], 1.0)
    look = DemoLook(1.0, jobs, [], 3, machines)
    assert look.ended()
    assert not look.done()
    assert DemoLook(2.0, jobs, [], 3, follow(machines, [a_machine("gone")], 2.0)).done()


def test_the_view_prints_plain_lines_in_a_pipe(ended: list[Any]) -> None:
    pipe = io.StringIO()
    look = DemoLook(3.25, {job.id: job for job in ended}, [], 3)
    with DemoView(Output(pipe, pipe)) as view:
        view.show(look, happened({}, look.jobs)[:2])
    assert pipe.getvalue() == (
        "  3.2s  fit-1       runs on onprem: owned capacity had room\n  3.2s  fit-1       succeeded on onprem after 60.0s\n"
    )


def test_the_picture_has_a_steady_height_and_fits_80_columns(
    client: Any, ended: list[Any], a_queued_job: Any
) -> None:
    clusters = [
        ClusterView(OWNED, "agents", "owned", "READY", 1, {"cpu": 2.0}, {"cpu": 2.0}, 2, {}),
        ClusterView(
            RENTED, "agents", "rented", "READY", 1, {"cpu": 4.0}, {"cpu": 1.0}, 1, {"cpu_hour": 36.0}
        ),
    ]
    queued = {f"q{number}": a_queued_job(id=f"q{number}") for number in range(60)}
    heights = set()
    for jobs in ({}, {job.id: job for job in ended} | queued):
        machines = [
            a_machine("ready", tasks=1),
            a_machine("booting", "cloud-2"),
            a_machine("gone", "cloud-3"),
        ]
        look = DemoLook(12.0, jobs, clusters, 100, follow({}, machines if jobs else (), 12.0))
        look = look._replace(heads=[(job, client.why(job.id)) for job in look.waiting()[:3]])
        news = [(12.0, one) for one in happened({}, jobs)]
        drawn = io.StringIO()
        console = Output(drawn, drawn, width=80).console()
        console.print(picture(look, news))
        lines = drawn.getvalue().splitlines()
        heights.add(len(lines))
        assert ("may spill over in 210.0s" in drawn.getvalue()) == bool(jobs)
        assert all(len(line) <= 80 for line in lines)
        assert ("cloud-1 runs 1 job, cloud-2 boots, 1 given back" in drawn.getvalue()) == bool(jobs)
    assert len(heights) == 1


def test_a_cluster_without_machines_says_so(client: Any) -> None:
    nothing = ClusterView(RENTED, "agents", "rented", "READY", 0, {}, {}, 0, {})
    drawn = io.StringIO()
    Output(drawn, drawn, width=80).console().print(picture(DemoLook(0.0, {}, [nothing], 1), []))
    assert "no machine now, rented, 0.00 USD so far" in drawn.getvalue()


def test_the_report_ends_with_totals_and_three_commands(ended: list[Any]) -> None:
    pipe = io.StringIO()
    machines = follow({}, [a_machine("ready")], 2.0)
    machines = follow(machines, [a_machine("gone", cost=0.5)], 9.0)
    report(Output(pipe, pipe), DemoLook(9.0, {job.id: job for job in ended}, [], 3, machines), PAID)
    blank, *lines = pipe.getvalue().splitlines()
    assert blank == ""
    assert lines[0].split() == ["JOB", "WHERE", "WAITED", "RAN", "COST", "WHY", "THERE"]
    assert lines[2].split(maxsplit=5) == [
        "train-1",
        "cloud",
        "5.0s",
        "60.0s",
        "0.06",
        "its wait ended after 3.2s",
    ]
    assert lines[3].endswith("owned capacity had room; exited with code 3")
    assert "jobs       3, of which 2 succeeded" in lines
    assert lines[5].split() == ["MACHINE", "ORDERED", "READY", "GONE", "JOBS", "COST"]
    assert lines[6].split() == ["cloud-1", "2.0s", "2.0s", "9.0s", "1", "0.50"]
    facts = dict(totals(ended, PAID))
    assert facts["rent"] == "0.50 USD for 2 machines, all given back"
    assert facts["of that"] == "0.25 useful, 0.08 boot, 0.17 idle"
    assert lines[-4] == "next:"
    assert all(re.match(r"  \S*spill (up|run|show)", line) for line in lines[-3:])
    assert lines[-3].endswith("spill up 2> up.log &")


def test_the_report_says_what_the_same_jobs_would_have_cost_otherwise(a_job: Any) -> None:
    """Four jobs of 10 s come together; each takes one of the two CPUs of a machine."""
    times = {"submitted_at": AT, "resources": {"cpu": 1.0, "memory": 2.0**26, "gpu": 0.0}}
    spans = [("00", "10"), ("00", "10"), ("03", "13"), ("03", "13")]
    jobs = [
        a_job(
            id=f"j{number}",
            cluster=RENTED if number > 1 else OWNED,
            started_at=f"2026-01-31T10:00:{start}.000000Z",
            finished_at=f"2026-01-31T10:00:{end}.000000Z",
            **times,
        )
        for number, (start, end) in enumerate(spans)
    ]
    so, rented, never = outcomes(jobs, 1.5)
    assert so == ("as they ran", 1.5, 13.0, 1.5)
    assert never == ("never rented, simulated", 5.0, 20.0, 0.0)
    assert rented.name == "all rented, simulated"
    assert 1.0 <= rented.mean_wait <= 4.0, "a machine boots in about two seconds"
    assert 10 + rented.mean_wait <= rented.last_end <= 14
    machine_seconds = rented.rent / SECOND_PRICE
    assert 20 + rented.mean_wait <= machine_seconds <= 45, (
        "two machines boot, run jobs of 10 s and are empty for a while"
    )


def test_jobs_that_never_ran_have_no_comparison(a_queued_job: Any) -> None:
    assert outcomes([a_queued_job()], 0.0) == []


def test_the_demo_submits_everything_and_ends_with_its_last_job(
    client: Any, a_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(passed)))
    monkeypatch.setattr("time.sleep", lambda _: None)

    def submit(documents: list[dict[str, Any]]) -> None:
        for document in documents:
            array = ArrayView(4, {}) if "array" in document["spec"] else None
            client.known.insert(
                0, a_job(id=f"j{len(client.known):011}", name=document["metadata"]["name"], array=array)
            )

    client.known = []
    left = iter(["ready", "draining", "ending"])
    pool = PoolView("cloud", "process", "open", None, [], [], 0, 3)
    client.pools = lambda: [replace(pool, machines=[a_machine(next(left, "gone"))])]
    monkeypatch.setattr(client, "submit", submit)
    monkeypatch.setattr(client, "job", lambda ref: a_job(id=ref, name="sweep"))
    pipe = io.StringIO()
    with DemoView(Output(pipe, pipe)) as view:
        seen = play(client, view)
    jobs = list(seen.jobs.values())
    assert [each.machine.state for each in seen.machines.values()] == ["gone"]
    assert [job.name for job in jobs[:3]] == ["prepare", "report", "sweep"]
    assert len([job for job in jobs if job.name == "sweep"]) == 4
    assert len(jobs) == sum(4 if "array" in one["spec"] else 1 for wave in waves() for one in wave.documents)


@pytest.fixture
def instead_of_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Start a small program where the demo would start `spill up`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def use(program: str) -> None:
        monkeypatch.setattr(server, "_COMMAND", (sys.executable, "-c", program))

    return use


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(
    instead_of_a_server: Callable[[str], None], tmp_path: Path
) -> None:
    instead_of_a_server("import sys; sys.exit('spill: this port is in use')")
    with pytest.raises(UsageError, match="did not start; this port is in use"), server.running("x: 1"):
        pytest.fail("it is not ready")
    assert list(tmp_path.iterdir()) == []


def test_the_server_and_its_folder_are_gone_after_ctrl_c(
    instead_of_a_server: Callable[[str], None], tmp_path: Path
) -> None:
    instead_of_a_server(
        "import time; print('starting'); print('ready http://127.0.0.1:1', flush=True); time.sleep(60)"
    )
    seen = []
    with contextlib.suppress(KeyboardInterrupt), server.running("x: 1") as running:
        seen = [running.url, *tmp_path.iterdir()]
        raise KeyboardInterrupt
    assert seen[0] == "http://127.0.0.1:1"
    assert len(seen) == 2
    assert running.process.returncode is not None
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_server_left_is_swept_up(
    instead_of_a_server: Callable[[str], None], tmp_path: Path
) -> None:
    agent_program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    instead_of_a_server(
        "import os, subprocess, sys\n"
        f"words = [sys.executable, '-c', {agent_program!r}, *sys.argv]\n"
        "agent = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)\n"
        "sys.stderr.buffer.write(agent.stdout.readline())\n"
        "sys.stderr.flush()\n"
        "print('ready http://127.0.0.1:1', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with server.running("x: 1") as running:
        agent = int((running.data.parent / "stderr").read_text())
        running.process.wait()
    wait_until(lambda: not alive(agent), "the end of the agent")


def test_what_a_dead_server_rented_is_swept_up_too(
    instead_of_a_server: Callable[[str], None], tmp_path: Path
) -> None:
    # Only its environment says that a process belongs to a machine, such as while it boots.
    instead_of_a_server(
        "import os, subprocess, sys\n"
        "marked = {'SPILL_MACHINE': os.path.join(os.getcwd(), 'data', 'pools', 'cloud', 'm')}\n"
        "boots = subprocess.Popen(['sleep', '60'], env=marked, start_new_session=True)\n"
        "print(boots.pid, file=sys.stderr, flush=True)\n"
        "print('ready http://127.0.0.1:1', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with server.running("x: 1") as running:
        boots = int((running.data.parent / "stderr").read_text())
        running.process.wait()
    wait_until(lambda: not alive(boots), "the end of the machine")
