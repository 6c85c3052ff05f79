"""A folder that outlives attempts, on real agents."""

from collections.abc import Iterator

import pytest

from tests.support.processes import ServerProcess, wait_until, write_config

STEPS = """\
#!/bin/sh
#SPILL --keep-state --retry-exit 2
cd "$SPILL_STATE"
echo "step $SPILL_ATTEMPT" >> steps
cat steps
[ "$SPILL_ATTEMPT" = 3 ]
"""

GANG = """\
#!/bin/sh
#SPILL --keep-state --retry-exit 1 --tasks 2
cat "$SPILL_STATE"/rank 2> /dev/null || echo "new $SPILL_TASK"
echo "rank $SPILL_TASK" > "$SPILL_STATE"/rank
[ "$SPILL_ATTEMPT" = 2 ]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two machines of one CPU."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": f"n{number}", "cpu": 1, "memory": "1Gi"} for number in (1, 2)]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(lambda: len(client.agents()) == 2, "the registration of both agents")
        yield server
    finally:
        server.clear()


def test_attempts_go_on_where_the_last_one_ended(lab: ServerProcess) -> None:
    (lab.folder / "steps.sh").write_text(STEPS)
    done = lab.spill("submit", "--wait", "steps.sh", timeout=60)
    logs = lab.spill("logs", "steps.sh")
    assert done.returncode == 0, (done, logs)
    assert logs.stdout == "step 1\nstep 2\nstep 3\n"


def test_each_task_of_a_gang_finds_its_own(lab: ServerProcess) -> None:
    (lab.folder / "gang.sh").write_text(GANG)
    done = lab.spill("submit", "--wait", "gang.sh", timeout=60)
    logs = lab.spill("logs", "gang.sh")
    assert done.returncode == 0, (done, logs)
    assert sorted(logs.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"]


LONG = """\
#!/bin/sh
#SPILL --keep-state --walltime 1s --grace 1s
cat "$SPILL_STATE"/seen 2> /dev/null
echo "$SPILL_JOB_ID" >> "$SPILL_STATE"/seen
[ -e finish ] || sleep 60
"""


def test_a_job_that_reached_its_walltime_goes_on_when_it_is_run_again(lab: ServerProcess) -> None:
    (lab.folder / "long.sh").write_text(LONG)
    first = lab.spill("submit", "long.sh").stdout.strip()
    with lab.client() as client:
        assert [job.state for job in client.wait(first, timeout=60)] == ["TIMED_OUT"]
        (second,) = client.rerun(first)
        assert [job.state for job in client.wait(second, timeout=60)] == ["TIMED_OUT"]
        (lab.folder / "finish").touch()
        third = lab.spill("rerun", second, "--walltime", "1m").stdout.strip()
        empty = lab.spill("rerun", second, "--walltime", "1m", "--empty-state").stdout.strip()
        assert [job.state for job in client.wait(third, empty, timeout=60)] == ["SUCCEEDED"] * 2
    assert lab.spill("logs", third).stdout.split() == [first, second]
    assert lab.spill("logs", empty).stdout == ""
    assert f"with the folder that {second} left" in lab.spill("events", "--job", third).stdout
    again = lab.spill("rerun", third)
    assert again.returncode == 0, "one that succeeded left nothing"
