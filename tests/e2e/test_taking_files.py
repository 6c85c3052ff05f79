"""Outputs of jobs as inputs of others, with real servers and agents: the bytes go from agent to server to agent."""

import json
from pathlib import Path

from spillover.client.calling import CallOptions
from tests.support.processes import ServerProcess

CHAIN = """
apiVersion: spillover/v1
kind: Job
metadata: {name: report}
spec:
  run: cat data.csv parts/*.txt > report.txt
  inputs: [{from: prepare, path: out.csv, as: data.csv}, {from: prepare, path: "parts/*", as: parts/}]
  outputs: [report.txt]
---
apiVersion: spillover/v1
kind: Job
metadata: {name: prepare}
spec:
  run: mkdir parts; echo a > parts/a.txt; echo b > parts/b.txt; cat words.txt > out.csv
  inputs: [words.txt]
  outputs: [out.csv, parts/]
"""


def read(server: ServerProcess, job: str, path: str) -> str:
    with server.client() as client:
        client.fetch(job, server.folder / "got" / job)
    return (server.folder / "got" / job / path).read_text()


def test_a_job_file_chains_jobs_and_no_byte_passes_through_a_client(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("some words\n")
    (tmp_path / "chain.yaml").write_text(CHAIN)
    done = server.spill("submit", "chain.yaml", "--wait", timeout=60)
    assert done.returncode == 0, done.stderr
    report, prepare = done.stdout.split()[:2]
    assert read(server, report, "report.txt") == "some words\na\nb\n"
    shown = json.loads(server.spill("show", report, "--json").stdout)
    assert shown["spec"]["spec"]["inputs"][0] == {"from": prepare, "path": "out.csv", "as": "data.csv"}


def test_options_name_outputs_of_a_job_and_a_missing_one_ends_the_job_by_name(server: ServerProcess) -> None:
    prep = server.spill(
        "run", "--output", "out/", "--", "sh", "-c", "mkdir out; echo 7 > out/n"
    ).stdout.strip()
    taking = ("run", "--wait", "--input", f"from:{prep}:out/n:n", "--", "cat", "n")
    done = server.spill(*taking, timeout=60)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    done = server.spill(
        "run", "--wait", "--input", f"from:{prep}:none.csv", "--", "cat", "none.csv", timeout=60
    )
    assert done.returncode == 125
    assert f"sh ({prep}) has no output none.csv" in done.stderr
    done = server.spill("run", "--input", "from:unknown:x", "--", "true")
    assert (done.returncode, "there is no job 'unknown'" in done.stderr) == (2, True), done.stderr
    done = server.spill("run", "--input", "from:unknown", "--", "true")
    assert done.returncode == 2
    assert "write from:JOB:PATH or from:JOB:PATH:AS" in done.stderr


def test_a_chained_array_passes_files_member_to_member_and_a_job_collects_them(server: ServerProcess) -> None:
    with server.client() as client:
        client.submit(name="first", run="echo $SPILL_ARRAY_INDEX > n", outputs=["n"], array="1-12")
        (second,) = client.submit(
            name="second",
            run="echo $(( $(cat in/n) * 10 )) > tens",
            inputs=[{"from": "first", "path": "n", "as": "in/"}],
            outputs=["tens"],
            array="1-12",
        )
        (merge,) = client.submit(
            run="cat $(ls -d all/* | sort -t/ -k2 -n | sed 's,$,/tens,') > sum; ls all | wc -l",
            inputs=[{"from": second, "path": "tens", "as": "all/"}],
            outputs=["sum"],
        )
        (ended,) = client.wait(merge, timeout=120)
        assert ended.state == "SUCCEEDED", ended.reason
        assert read(server, merge, "sum").split() == [str(10 * each) for each in range(1, 13)]
        (again,) = client.rerun(merge)
        assert client.wait(again, timeout=60)[0].state == "SUCCEEDED"


def test_calls_take_files_of_jobs_and_jobs_those_of_calls(server: ServerProcess) -> None:
    with server.client() as client:
        (prep,) = client.submit(run="echo 20 > n", outputs=["n"])

        def double() -> int:
            from pathlib import Path  # noqa: PLC0415 - it travels with the call

            number = 2 * int(Path("in/n").read_text())
            Path("doubled").write_text(f"{number}\n")
            return number

        options: CallOptions = {"inputs": [{"from": prep, "path": "n", "as": "in/"}], "outputs": ["doubled"]}
        call = client.call(double, options=options)
        (last,) = client.submit(run="cat doubled", inputs=[{"from": call, "path": "doubled"}])
        assert call.result(60) == 40
        assert client.wait(last, timeout=60)[0].state == "SUCCEEDED"
        assert server.spill("logs", last).stdout == "40\n"
