"""Small things at the edges of an agent: its command line, frames, names and old output."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from spillover.agent import nursery
from spillover.agent.__main__ import main
from spillover.agent.connection import convert
from spillover.agent.files.output import Outputs
from spillover.agent.files.spool import Spool
from spillover.agent.leases.state import AgentState
from spillover.agent.nursery import frames
from spillover.agent.runtime import AgentRuntime, Clocks
from spillover.agent.tasks.process import stem_of
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Argv, Shell
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE
from spillover.wire import agents_pb2 as pb


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--name", "../x"], "--name '../x' is not 1 to 63 letters"),
        (["--cpu", "many"], "--cpu: 'many' is not a number of CPUs"),
        (["--memory", "lots"], "--memory: 'lots' is not an amount of memory"),
        (["--cpu", "0"], "--cpu 0 must be above 0"),
        (["--gpu", "-1"], "--gpu -1 must not be below 0"),
        (["--output-limit", "1"], "--output-limit 1: the minimum is "),
        (["--cpu", "99999999999999999999"], "is more than any machine has"),
        (["--memory", "1048576Ti"], "--memory 1048576Ti is more than any machine has"),
        (["--queue", "10001"], "--queue is 10001; the maximum is 10000"),
        (["--offer", "a b"], "--offer 'a b' is not a valid word"),
        (["--label", "nothing"], "--label 'nothing' is not KEY=VALUE"),
    ],
)
def test_bad_options_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--data", str(tmp_path), "--name", "n1", "--cluster", "lab", *words])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_each_bad_option_has_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--cpu",
        "1e9",
        "--memory",
        "lots",
        "--cache",
        "some",
        "--peer",
        "here",
        "--python",
        "/no/python",
    ]
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--name", "n1", "--cluster", "lab", *words])
    lines = capsys.readouterr().err.removeprefix("spillover.agent: ").splitlines()
    assert [line.split(" ")[0].rstrip(":") for line in lines] == words[::2]


def test_work_that_is_too_large_for_a_message_goes_through_a_file(tmp_path: Path) -> None:
    work: tuple[Any, ...] = (1, ["x" * frames.LARGEST], {}, "/", "stem", "mark", 0, 1000)
    aside = tmp_path / "large"
    aside.write_bytes(frames.pack(work))
    assert frames.unpack(frames.pack(str(aside))) == work
    assert not aside.exists()


def test_a_process_is_told_from_another_of_the_same_number_by_its_birth() -> None:
    assert nursery.birth_of(os.getpid()) == nursery.birth_of(os.getpid()) > 0
    assert nursery.birth_of(2**22 + 1) == 0


@pytest.mark.parametrize("job", ["", "..", "a/b", "../../x", ".hidden", "a\0b", "x" * 200])
def test_a_job_that_leads_out_of_its_folder_is_not_spoken_of(job: str) -> None:
    with pytest.raises(convert.InvalidMessage):
        convert.checked_job(job)


def test_a_grant_becomes_a_task_of_its_kind() -> None:
    lease = pb.Lease(job="abc.7", attempt=2, seq=9)
    shell = convert.grant_in(pb.Grant(lease=lease, task=pb.Task(shell="x | y")))
    words = convert.grant_in(pb.Grant(lease=lease, task=pb.Task(argv=pb.Argv(words=["a", "b"]))))
    assert shell.lease == Lease(JobId("abc.7"), 2, 9)
    assert shell.task is not None
    assert words.task is not None
    assert (shell.task.work, words.task.work) == (Shell("x | y"), Argv(("a", "b")))
    assert shell.task.lost_after == 5 * MINUTE


def test_old_output_is_deleted_unless_its_task_still_runs(tmp_path: Path) -> None:
    async def no_names(lease: Lease) -> None:
        raise AssertionError(lease)

    outputs = Outputs(tmp_path, lambda _: None, no_names)
    old, live, new = ((JobId(f"{name}job"), 1, 0) for name in ("old", "live", "new"))
    for key in (old, live, new):
        stem_of(tmp_path, *key).parent.mkdir(exist_ok=True)
        for stream in frames.STREAMS:
            file = Path(f"{stem_of(tmp_path, *key)}.{stream}")
            file.touch()
            if key is not new:
                os.utime(file, (time.time() - 3 * 86_400,) * 2)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "0-0.out").touch()
    assert outputs.delete_old(time.time_ns() - 2 * DAY, frozenset({live})) == 2
    left = {path.name for path in tmp_path.rglob("*.out")}
    assert left == {"livejob.1.0.out", "newjob.1.0.out", "0-0.out"}


@pytest.mark.parametrize(
    ("ours", "servers", "past"),
    [
        (5 * DAY, 3 * DAY, 3 * DAY),  # our clock is wrong, or the server's is
        (3 * DAY, 5 * DAY, 3 * DAY),
        (3 * DAY, None, 3 * DAY),  # a server that does not say
    ],
)
def test_what_is_old_is_so_by_our_clock_and_by_the_server_s(
    tmp_path: Path, ours: int, servers: int | None, past: int
) -> None:
    clocks = Clocks(monotonic=lambda: 10 * MINUTE, wall=lambda: ours)
    life = AgentRuntime(AgentState(Resources(1000)), Spool(tmp_path / "spool"), tmp_path, clocks)
    if servers is not None:
        life.server_time = (servers - 9 * MINUTE, MINUTE)
    assert life.surely_past() == past
    life.close()
