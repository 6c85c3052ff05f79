"""Files of jobs between folders that share nothing: real servers and agents, killed in the midst of it."""

import json
import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Client, Refused
from tests.support.processes import ServerProcess, wait_until

LARGE = 192 << 20
"""Bytes: enough to be caught on its way."""

JOB = """
apiVersion: spillover/v1
kind: Job
metadata: {name: sums}
spec:
  run: |
    set -e
    test "$PWD" != "$HERE"
    mkdir out && cat parts/*.csv > out/all.csv
    ./tool.sh out/all.csv > out/count.txt
    cp config.json "out/ä copy.json"
    ln -s /etc/passwd out/link
    cat config.json
  env: {HERE: HERE_IS}
  workdir: work
  not_before: SOON
  inputs: [parts/*.csv, {path: bin/tool.sh, as: tool.sh}, config.json]
  outputs: [out/*.csv, out/*.txt, out/*copy*]
"""


def lay_out(folder: Path) -> Path:
    """What somebody works with."""
    work = folder / "work"
    (work / "parts").mkdir(parents=True)
    (work / "bin").mkdir()
    for name in ("b.csv", "a.csv", "ignored.txt"):
        (work / "parts" / name).write_text(f"{name}\n" * 3)
    tool = work / "bin" / "tool.sh"
    tool.write_text("#!/bin/sh\nwc -l < $1\n")
    tool.chmod(0o755)
    (work / "config.json").write_text('{"x": 1}\n')
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()  # so that it finds nothing of this
    (folder / "job.yaml").write_text(JOB.replace("HERE_IS", str(work)).replace("SOON", f'"{soon}"'))
    return work


def blobs_of(server: ServerProcess) -> set[str]:
    return {path.name for path in (server.data / "blobs").glob("??/*")}


def coming(server: ServerProcess, least: int = 4 << 20) -> bool:
    """Whether the server is in the midst of taking a file."""
    sizes = []
    for path in (server.data / "blobs" / "new").glob("*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return any(size > least for size in sizes)


def noise(path: Path, size: int, seed: int = 7) -> None:
    with path.open("wb") as file:
        dice = random.Random(seed)
        for _ in range(size >> 20):
            file.write(dice.randbytes(1 << 20))


def test_inputs_are_brought_there_and_outputs_back(server: ServerProcess, tmp_path: Path) -> None:
    work = lay_out(tmp_path)
    done = server.spill("submit", "job.yaml")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert len(blobs_of(server)) == 4
    for path in sorted(work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()  # the job has all that it needs
    assert server.spill("wait", job).returncode == 0, server.spill("why", job).stdout
    assert server.spill("logs", job).stdout == '{"x": 1}\n'
    listed = json.loads(server.spill("fetch", job, "--list", "--json").stdout)
    assert [each["path"] for each in listed["files"]] == ["out/all.csv", "out/count.txt", "out/ä copy.json"]
    done = server.spill("fetch", job, "results")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results/out/all.csv").read_text() == "a.csv\n" * 3 + "b.csv\n" * 3
    assert (tmp_path / "results/out/count.txt").read_text().strip() == "6"
    assert (tmp_path / "results/out/ä copy.json").read_text() == '{"x": 1}\n'
    assert not (tmp_path / "results/out/link").exists()
    # What is there is not written again, and what differs is not written over.
    assert "all files exist" in server.spill("fetch", job, "results").stderr
    (tmp_path / "results/out/count.txt").write_text("mine")
    done = server.spill("fetch", job, "results")
    assert done.returncode == 2
    assert "would be overwritten; choose another folder, or use --force\n" in done.stderr
    assert (tmp_path / "results/out/count.txt").read_text() == "mine"
    assert server.spill("fetch", job, "results", "--force").returncode == 0
    assert (tmp_path / "results/out/count.txt").read_text().strip() == "6"
    assert not list((server.data / "agents").glob("*/work/*")), "work folders are left"


def test_the_same_files_are_not_sent_twice_and_a_key_means_one_job(
    server: ServerProcess, tmp_path: Path
) -> None:
    lay_out(tmp_path)
    with server.client() as client:
        sent: list[tuple[int, int]] = []
        [document] = [json.loads(json.dumps(each)) for each in _documents(tmp_path)]
        document["spec"]["key"] = "once"
        first = client.pack([document], progress=lambda done, total: sent.append((done, total)))
        assert sent
        sent.clear()
        again = client.pack([document], progress=lambda done, total: sent.append((done, total)))
        assert again == first
        assert sent == []
        assert client.submit(first) == client.submit([document]) == client.submit(again)
        (tmp_path / "work/config.json").write_text("changed")
        with pytest.raises(Refused, match="key 'once' was used for another job"):
            client.submit([document])


def _documents(folder: Path) -> list[dict[str, Any]]:
    from spillover.forms.jobs.reading import read_jobs, to_doc  # noqa: PLC0415 - as the command line does

    return [to_doc(form) for form in read_jobs((folder / "job.yaml").read_bytes(), "job.yaml", str(folder))]


def test_what_is_wrong_with_files_is_told_in_one_line(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(files={"max_inputs": "1Mi", "max_outputs": "64Ki"}).up("--slots", "2")
    (tmp_path / "big").write_bytes(b"x" * (2 << 20))
    (tmp_path / "inside").write_text("x")
    (tmp_path / "link").symlink_to("/etc/hostname")
    refusals = {
        "big": "big (2Mi) makes the inputs 2Mi; the maximum is 1Mi (files.max_inputs of the server)",
        "missing": "'missing' does not exist in",
        "*.none": "'*.none' matches no file",
        "../x": "leads out of the folder",
        "/etc/passwd": "is absolute",
        "link": "'link' is a symbolic link to outside the folder",
        "inside:a/../../b": "leads out of the folder",
    }
    for given, said in refusals.items():
        done = server.spill("run", "--input", given, "--", "true")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1
    assert server.spill("ls", "--json").stdout.strip() == "[]"
    # An output that is too large fails the job by name, and the others are kept.
    run = ("run", "--output", "*.bin", "--output", "small", "--wait", "--", "sh", "-c")
    done = server.spill(*run, "head -c 100000 /dev/zero > large.bin; echo ok > small", timeout=60)
    assert done.returncode != 0
    with server.client() as client:
        [job] = client.jobs()
        assert job.state == "FAILED"
        assert job.reason is not None
        assert job.reason.code == "outputs_not_kept"
        assert "large.bin has 97.7Ki" in job.reason.message
        assert "64Ki (files.max_outputs" in job.reason.message
        assert [file.path for file in client.files(job.id).files] == ["small"]
        with pytest.raises(Refused, match=r"is not on the server; upload it first"):
            client.submit(run="true", inputs=[{"path": "x", "digest": "0" * 64, "size": 1}])


def written(server: ServerProcess) -> list[str]:
    """What is in the files `log` in folders of tasks; that of a task before may go meanwhile."""
    found = []
    for path in (server.data / "agents").glob("*/work/*/log"):
        with suppress(OSError):
            found.append(path.read_text())
    return found


def test_run_fetches_what_it_made_and_failed_and_cancelled_jobs_bring_back_what_they_have(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "name").write_text("world")
    run = ("run", "--wait", "--fetch", "--input", "name", "--output", "greeting.txt", "--")
    for _ in range(2):
        done = server.spill(
            *run, "sh", "-c", "echo hello $(cat name) $SPILL_JOB_ID > greeting.txt; echo done"
        )
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        [newest, *_] = json.loads(server.spill("ls", "--json").stdout)
        assert (tmp_path / "greeting.txt").read_text() == f"hello world {newest['id']}\n"
    for fetch in ((), ("--fetch",)):
        done = server.spill("run", "--wait", *fetch, "--output", "none.txt", "--", "true")
        assert done.returncode == 0
        [newest, *_] = json.loads(server.spill("ls", "--json").stdout)
        assert done.stderr == f"spill: {newest['id']} has no output files\n"
    done = server.spill("run", "--wait", "--output", "made", "--", "touch", "made")
    [newest, *_] = json.loads(server.spill("ls", "--json").stdout)
    assert done.stderr == f"spill: run `spill fetch {newest['id']}` to download its outputs\n"
    with server.client() as client:
        retry = {"exit": 1}
        [failed] = client.submit(run="echo try $SPILL_ATTEMPT > log; exit 3", outputs=["log"], retry=retry)
        [ended] = client.wait(failed, timeout=30)
        assert (ended.state, ended.attempt) == ("FAILED", 2)
        assert client.files(failed).attempts == [1, 2]
        for attempt in (1, 2):
            client.fetch(failed, tmp_path / str(attempt), attempt=attempt)
            assert (tmp_path / str(attempt) / "log").read_text() == f"try {attempt}\n"
        [slow] = client.submit(run="echo begun > log; sleep 60", outputs=["log"], grace="5s")
        wait_until(lambda: "begun\n" in written(server), "the first line")
        client.cancel(slow)
        assert client.wait(slow, timeout=30)[0].state == "CANCELLED"
        assert [file.path for file in client.files(slow).files] == ["log"]
        [array] = client.submit(
            run="echo $SPILL_ARRAY_INDEX > member", outputs=["member"], array="3-5", name="sweep"
        )
        client.wait(array, timeout=30)
    done = server.spill("fetch", "sweep", "members")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"members/{index}/member").read_text() for index in (3, 4, 5)] == [
        "3\n",
        "4\n",
        "5\n",
    ]
    (tmp_path / "elsewhere").mkdir()
    (server.folder / "linked").mkdir()
    (server.folder / "linked/4").symlink_to(tmp_path / "elsewhere")
    done = server.spill("fetch", "sweep", "linked")
    assert done.returncode == 2
    assert "linked/4 is a symbolic link that may lead out of linked" in done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_is_uploaded_without_what_is_ignored_and_its_size_is_told(
    server: ServerProcess, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for name in ("src/a.py", "src/b.py", "src/a.pyc", ".git/HEAD", ".env", "venv/lib.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name * 100)
    (project / ".gitignore").write_text("*.pyc\n")
    (project / ".spillignore").write_text("/venv/\n")
    run = ("run", "--wait", "--workdir", "project", "--input", ".", "--", "find", ".", "-type", "f")
    done = server.spill(*run, timeout=60)
    assert sorted(done.stdout.split()) == ["./src/a.py", "./src/b.py"], done.stderr
    assert done.stderr == "spill: 2 files, 1.6KiB to send\n"
    assert server.spill(*run, timeout=60).stderr == "spill: 2 files, 1.6KiB, all there already\n"
    (project / "src/b.py").write_text("b")
    (tmp_path / "job.yaml").write_text(
        "apiVersion: spillover/v1\nkind: Job\nspec: {run: 'true', workdir: project, inputs: [./src]}\n"
    )
    done = server.spill("submit", "job.yaml", "--json")
    assert json.loads(done.stdout)
    assert done.stderr == "spill: 2 files, 801B; 1B to send, the rest is there already\n"
    with server.client() as client:
        told: list[object] = []
        client.pack(run="true", inputs=["src"], workdir=str(project), sizes=told.append)
        assert told == [(2, 801, 0)]


def test_a_retry_sees_the_inputs_that_were_submitted(server: ServerProcess, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("as submitted")
    with server.client() as client:
        [job] = client.submit(
            run="cp source seen; echo changed by the task > source; test $SPILL_ATTEMPT = 2",
            inputs=["source"],
            outputs=["seen"],
            workdir=str(tmp_path),
            retry={"exit": 1},
        )
        source.write_text("changed later")
        assert client.wait(job, timeout=30)[0].state == "SUCCEEDED"
        for attempt in (1, 2):
            client.fetch(job, tmp_path / f"attempt-{attempt}", attempt=attempt)
            assert (tmp_path / f"attempt-{attempt}" / "seen").read_text() == "as submitted"


def test_an_input_that_is_gone_keeps_the_job_from_starting_and_is_named(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("as submitted")
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    with server.client() as client:
        [job] = client.submit(
            run="cat source", inputs=["source"], workdir=str(tmp_path), not_before=soon, name="reader"
        )
        for path in (server.data / "blobs").glob("??/*"):
            path.unlink()
        [ended] = client.wait(job, timeout=30)
        assert ended.state == "FAILED"
        assert ended.reason is not None
        assert ended.reason.code == "could_not_start"
        assert "input source: there is no blob" in ended.reason.message


@pytest.mark.slow
def test_uploads_and_downloads_outlive_kills_of_server_and_agent(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(agents={"heartbeat": "100ms", "lost_after": "60s"}).up("--slots", "2")
    noise(tmp_path / "large", LARGE)
    submitted: list[str] = []

    def submit() -> None:
        with Client(data=server.data, patience=60) as client:
            submitted.extend(
                client.submit(
                    run="(cat large; echo the end) > copy",
                    inputs=["large"],
                    outputs=["copy"],
                    workdir=str(tmp_path),
                    key="k",
                )
            )

    submitting = threading.Thread(target=submit)
    submitting.start()
    wait_until(lambda: coming(server), "an upload", every=0.002)
    server.kill()
    server.up("--slots", "2")
    submitting.join(60)
    [job] = submitted

    def fetching() -> list[Path]:
        return [
            path for path in (server.data / "agents").glob("*/files/half/*") if path.stat().st_size > 4 << 20
        ]

    wait_until(fetching, "a download", every=0.002)
    [agent] = server.agents()
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: coming(server), "the upload of what it made", seconds=60, every=0.002)
    server.kill()
    server.up("--slots", "2")
    with server.client(patience=10) as client:
        [ended] = client.wait(job, timeout=90)
        assert ended.state == "SUCCEEDED", ended.reason
        client.fetch(job, tmp_path / "back")
    assert (tmp_path / "back/copy").read_bytes() == (tmp_path / "large").read_bytes() + b"the end\n"
    wait_until(lambda: not list((server.data / "agents").glob("*/work/*")), "the end of work folders")
    assert not list((server.data / "blobs" / "new").iterdir())
