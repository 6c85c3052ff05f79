"""Agents on this machine: those that do not live are tried again, soon at first and never too rarely."""

import fcntl
from itertools import pairwise
from pathlib import Path

import pytest

from spillover.clusters.agents.local import LONGEST_PAUSE, LOOK, LocalAgents, LocalSpec, is_time
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources


def test_an_agent_that_does_not_live_is_started_at_once_then_more_rarely_but_never_given_up() -> None:
    tries = [look for look in range(1, 100_000) if is_time(look)]
    pauses = [(later - sooner) * LOOK for sooner, later in pairwise(tries)]
    assert tries[0] == 1
    assert pauses[:4] == [LOOK, 2 * LOOK, 4 * LOOK, 8 * LOOK]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE == 30


@pytest.mark.parametrize(
    ("written", "pid"),
    [
        ('{"pid": 1234567}', 1234567),
        ('{"pid": -1}', None),
        ('{"pid": 0}', None),
        ('{"pid": 1}', None),
        ('{"pid": 99999999999999999999}', None),
        ('{"pid": "x"}', None),
        ("[" * 100_000, None),
        ("", None),
    ],
)
def test_a_file_that_names_no_process_of_an_agent_has_none_ended(
    tmp_path: Path, written: str, pid: int | None
) -> None:
    folder = tmp_path / "agents" / "n1"
    folder.mkdir(parents=True)
    (folder / "agent.json").write_text(written)
    spec = LocalSpec(ClusterName("local"), NodeName("n1"), Resources(1000), 0, (), {}, ())
    agents = LocalAgents(tmp_path, (spec,))
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert agents._pid(spec) == pid
