"""What tasks are kept apart by."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from spillover.agent.nursery.cgroups import CgroupsUnavailable
from spillover.agent.tasks import isolation
from spillover.agent.tasks.isolation import ISOLATIONS, RECORD, choose, remove_groups
from spillover.wire.configfile import AgentsDoc


def test_a_configuration_may_say_what_an_agent_knows() -> None:
    assert get_args(get_type_hints(AgentsDoc)["isolation"]) == ISOLATIONS


@pytest.fixture
def _without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(name: str, wanted: str) -> None:
        raise CgroupsUnavailable("cgroup-v1: there is no memory hierarchy")

    monkeypatch.setattr(isolation, "find", unavailable)


@pytest.mark.usefixtures("_without_groups")
def test_without_groups_memory_is_watched_and_the_log_says_why(tmp_path: Path) -> None:
    chosen = choose("auto", tmp_path)
    assert chosen.kind == "watch"
    assert "no control groups: cgroup-v1: there is no memory hierarchy" in str(chosen)


@pytest.mark.usefixtures("_without_groups")
def test_who_insists_on_groups_is_told_that_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="--isolation cgroup: cgroup-v1: there is no memory hierarchy"):
        choose("cgroup", tmp_path)


def test_groups_are_recorded_so_that_a_later_life_can_remove_them(tmp_path: Path) -> None:
    chosen = choose("auto", tmp_path)
    if not chosen.folders:
        pytest.skip(str(chosen))
    folders = [Path(line) for line in (tmp_path / RECORD).read_text().splitlines()]
    assert all(folder.is_dir() for folder in folders)
    assert choose("auto", tmp_path) == chosen, "the same folder has the same groups"
    assert remove_groups(tmp_path) == 0
    assert not any(folder.exists() for folder in folders)
    assert remove_groups(tmp_path) == 0
