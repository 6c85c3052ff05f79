"""`spill top`: frames from values, keys, and one frame for whoever is no terminal."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spillover.cli.top.frame import frame, once
from spillover.cli.top.view import MOST, Away, Look, TopView, keys_of, rows_for
from spillover.wire.api import (
    AgentView,
    ArrayView,
    ClusterView,
    JobDetail,
    Overview,
    PoolSummary,
    ReasonView,
    ServerView,
)

AT = "2026-01-31T10:02:00.000000Z"
GIB = 2.0**30
ALL = TopView()


def an_overview(
    a_job: Callable[..., JobDetail], *, running: int = 2, queued: int = 3, agents: int = 2, **changes: Any
) -> Overview:
    """A server with some of everything."""
    reason = ReasonView("no_room", "waits for 2 CPU on one machine of onprem", never=False)
    whole = {"cpu": 8.0, "memory": 16 * GIB, "gpu": 0.0}
    usual: dict[str, Any] = {
        "at": AT,
        "server": ServerView("0.3.0", 7, True, True, None, "USD", 10, 12_345, running, {}),
        "ended_a_minute": 312,
        "cost_an_hour": 1.5,
        "clusters": [
            ClusterView(
                "onprem", "agents", "owned", "READY", 2, whole, {"cpu": 6.0, "memory": 4 * GIB}, 5, {}
            ),
            ClusterView("cloud", "agents", "rented", "PROVISIONING", 0, {}, {}, 0, {"cpu_hour": 0.04}),
        ],
        "agents": [
            AgentView(
                f"n{at}",
                "onprem",
                "ready",
                whole,
                {"cpu": 0.1},
                1,
                2,
                ["python"],
                {},
                "2026-01-31T10:01:58.000000Z",
            )
            for at in range(1, agents + 1)
        ],
        "agents_in_all": agents,
        "running": [
            a_job(id=f"running{at:05}", name=f"train{at}", state="RUNNING", finished_at=None)
            for at in range(1, running + 1)
        ],
        "running_in_all": running,
        "queued": [
            a_job(id=f"waiting{at:05}", name="sweep", state="QUEUED", cluster=None, node=None, reason=reason)
            for at in range(1, queued + 1)
        ],
    }
    return Overview(**(usual | changes))


def a_look(seen: Overview, away: Away | None = None) -> Look:
    return Look("http://127.0.0.1:7070", seen, 50, away)


@pytest.mark.parametrize("width", [40, 70, 80, 100, 160])
def test_the_state_of_a_cluster_is_shown_however_narrow_the_terminal_is(
    a_job: Callable[..., JobDetail], width: int
) -> None:
    seen = an_overview(a_job)
    look = a_look(replace(seen, clusters=[replace(seen.clusters[0], state="DEGRADED")]))
    for lines in (text(look, width=width), [line.plain for line in once(look, width)]):
        titles = next(line for line in lines if line.startswith("CLUSTER"))
        assert "STATE" in titles
        assert any(line.startswith("onprem ") and "degraded" in line for line in lines)
        assert ("GPU" in titles) == (width >= 100)


def text(look: Look, view: TopView = ALL, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in frame(look, view, width, height).lines]


@pytest.fixture
def look(a_job: Callable[..., JobDetail], _utc: None) -> Look:
    return a_look(an_overview(a_job))


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (160, 50), (40, 10), (20, 8), (13, 3), (1, 1), (300, 200)]
)
@pytest.mark.parametrize("shows", ["all", "jobs", "agents"])
def test_a_frame_is_as_large_as_its_terminal(
    a_job: Callable[..., JobDetail], width: int, height: int, shows: str
) -> None:
    for count in (0, 3, 200):
        seen = an_overview(a_job, running=count, queued=count, agents=count)
        lines = frame(a_look(seen), TopView(shows), width, height).lines
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width


def test_the_header_tells_how_it_goes(look: Look) -> None:
    first, second, third, *_ = text(look)
    assert first.startswith("spill top  http://127.0.0.1:7070, leader, epoch 7")
    assert first.endswith("2026-01-31 10:02:00 UTC")
    assert second == "12,345 queued   2 running   312 ended in the last minute   1.50 USD an hour"
    assert not third


def test_all_of_it_is_there_at_a_glance(look: Look) -> None:
    lines = text(look)
    cluster = next(line for line in lines if line.startswith("onprem"))
    assert "█████████░░░ 6/8" in cluster
    assert "4G/16G" in cluster
    agent = next(line for line in lines if line.startswith("n1 "))
    assert "█░░░░░░░░░░░" in agent, "little use shows"
    assert agent.split()[-3:] == ["1", "2", "2s"], "running, leased, heard from"
    job = next(line for line in lines if line.startswith("running00001"))
    assert "train1" in job
    assert "1m55s" in job
    assert "onprem/n1" in job
    waiting = next(line for line in lines if line.startswith("waiting00001"))
    assert "2m" in waiting
    assert "waits for 2 CPU on one machine" in waiting
    assert lines[-1].startswith(" 1 all   2 jobs   3 agents ")


def test_wide_terminals_tell_more(look: Look) -> None:
    titles = "\n".join(text(look, width=160, height=50))
    for word in ("GPU", "NODES", "OFFERS", "PROJECT", "COST", "EXPECTED", "MEMBERS", "PRIORITY"):
        assert word in titles
        assert word not in "\n".join(text(look, width=50)[:-1])


def test_columns_stay_where_they_are_when_values_change(a_job: Callable[..., JobDetail]) -> None:
    small = an_overview(a_job)
    named = a_job(
        id="running00001", name="n" * 60, user="u" * 60, project="p", state="RUNNING", cost=123456.0
    )
    large = replace(small, running=[named, *small.running])
    for width in (80, 120, 160):
        first, second = (
            [
                line
                for line in text(a_look(seen), width=width, height=50)
                if line.startswith(("JOB", "AGENT", "CLUSTER"))
            ]
            for seen in (small, large)
        )
        assert first == second


def test_members_of_arrays_that_wait_are_counted(a_job: Callable[..., JobDetail]) -> None:
    array = a_job(id="waiting00001", state="QUEUED", array=ArrayView(1000, {"QUEUED": 999, "RUNNING": 1}))
    lines = text(a_look(replace(an_overview(a_job), queued=[array])), width=160)
    assert "  999 " in next(line for line in lines if line.startswith("waiting00001"))


def test_lists_share_the_room_and_scroll(a_job: Callable[..., JobDetail]) -> None:
    look = a_look(an_overview(a_job, running=100, queued=100))
    drawn = frame(look, TopView("jobs"), 80, 25)
    lines = [line.plain for line in drawn.lines]
    assert sum(line.startswith("running000") for line in lines) == drawn.page == 8
    assert sum(line.startswith("waiting000") for line in lines) == 8
    assert "running: 1-8 of 100" in lines
    down = text(look, TopView("jobs", offset=5), 80, 25)
    assert "running: 6-13 of 100" in down
    assert any(line.startswith("waiting00006") for line in down)
    end = text(look, TopView("jobs", offset=MOST), 80, 25)
    assert "running: 93-100 of 100" in end
    assert any(line.startswith("waiting00100") for line in end)


def test_a_short_list_leaves_its_room_to_the_other(a_job: Callable[..., JobDetail]) -> None:
    lines = text(a_look(an_overview(a_job, running=1, queued=100)), TopView("jobs"), 80, 25)
    assert sum(line.startswith("waiting") for line in lines) == 15


def test_agents_scroll_too(a_job: Callable[..., JobDetail]) -> None:
    look = a_look(an_overview(a_job, agents=100))
    assert any(line.startswith("n100 ") for line in text(look, TopView("agents", offset=MOST)))


def test_empty_lists_say_so(a_job: Callable[..., JobDetail]) -> None:
    seen = an_overview(a_job, running=0, queued=0, agents=0)
    assert text(a_look(seen), TopView("jobs")).count("  none") == 2


def test_a_server_that_is_away_is_told_and_what_was_known_stays(look: Look) -> None:
    lines = text(look._replace(away=Away(12.0, "no server answers at http://127.0.0.1:7070")))
    assert lines[2] == "no answer for 12s, retrying: no server answers at http://127.0.0.1:7070"
    assert lines[3:] == text(look)[3:]


def test_a_server_that_accepts_no_work_is_told(a_job: Callable[..., JobDetail]) -> None:
    server = ServerView("0.3.0", 7, True, False, "the disk is full", "USD", 10, 0, 0, {})
    assert text(a_look(an_overview(a_job, server=server)))[2] == "accepts no jobs: the disk is full"


def test_what_others_wrote_does_not_drive_the_terminal(a_job: Callable[..., JobDetail]) -> None:
    bad = a_job(id="running00001", name="a\x1b[2Jb", state="RUNNING")
    away = Away(1.0, "gone\x1b[2J")
    drawn = frame(
        Look("http://x\x1b[1m", replace(an_overview(a_job), running=[bad]), 50, away), TopView(), 80, 24
    )
    assert "\x1b" not in "".join(line.plain for line in drawn.lines)


def test_pausing_is_shown(look: Look) -> None:
    lines = text(look, TopView(paused=True))
    assert "paused  2026-01-31" in lines[0]
    assert "p resume" in lines[-1]


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["quit"]),
        (b"\t\x1b[Z", ["next", "previous"]),
        (b"jk", ["down", "up"]),
        (b"\x1b[B\x1bOA", ["down", "up"]),
        (b"\x1b[6~\x1b[5~gG", ["page down", "page up", "top", "bottom"]),
        (b"123", ["all", "jobs", "agents"]),
        (b"p", ["pause"]),
        (b"x\x1b[99;5u\xff\x1b", []),
    ],
)
def test_keys_are_read_as_terminals_send_them(typed: bytes, keys: list[str]) -> None:
    assert keys_of(typed) == keys


def test_keys_move_a_person_around() -> None:
    view = TopView().after("next", 10)
    assert view.shows == "jobs"
    assert view.after("down", 10).after("page down", 10).offset == 11
    assert view.after("up", 10).offset == 0
    assert view.after("page down", 10).after("agents", 10) == TopView("agents")
    assert view.after("previous", 10).after("previous", 10).shows == "agents"
    assert view.after("bottom", 10).after("down", 10).offset == MOST
    assert view.after("bottom", 10).after("top", 10).offset == 0
    assert view.after("pause", 10).after("next", 10).paused
    assert view.after("nothing", 10) == view


def test_more_is_asked_for_as_one_scrolls_and_never_too_much() -> None:
    assert rows_for(TopView(), 24) == 50
    assert rows_for(TopView(offset=30), 24) == 100
    assert rows_for(TopView(offset=MOST), 24) == MOST


def test_one_frame_has_no_keys(look: Look) -> None:
    lines = [line.plain for line in once(look, 100)]
    assert any(line.startswith("waiting00003") for line in lines)
    assert not any("q quit" in line for line in lines)


def test_what_is_no_terminal_gets_one_frame(
    spill: Callable[..., Any], client: Any, a_job: Callable[..., JobDetail]
) -> None:
    client.overview = lambda **_: an_overview(a_job)
    client.url = "http://127.0.0.1:7070"
    typed = spill("top")
    assert typed.code == 0
    assert typed.out.startswith("spill top  http://127.0.0.1:7070, leader, epoch 7")
    assert "waiting00003" in typed.out
    assert "\x1b" not in typed.out


def test_programs_get_one_snapshot(
    spill: Callable[..., Any], client: Any, a_job: Callable[..., JobDetail]
) -> None:
    client.overview = lambda **_: an_overview(a_job)
    assert msgspec.json.decode(spill("top", "--json").out, type=Overview) == msgspec.convert(
        msgspec.to_builtins(an_overview(a_job)), Overview
    )


@pytest.mark.parametrize("interval", ["0", "nan", "often", "1e9"])
def test_an_interval_is_a_number_of_seconds(spill: Callable[..., Any], interval: str) -> None:
    typed = spill("top", "--interval", interval)
    assert typed.code == 2
    assert typed.err.count("\n") == 1
    assert "is not a number of seconds from 0.1 to 3600" in typed.err


def test_the_header_counts_rented_machines_and_names_a_pool_that_is_paused(
    a_job: Callable[..., JobDetail],
) -> None:
    pools = [
        PoolSummary("cloud", "open", None, {"booting": 1, "ready": 2}, 0.75),
        PoolSummary("other", "open", None, {"ready": 3}, 0.5),
    ]
    second, wrong = text(a_look(an_overview(a_job, pools=pools)), width=160)[1:3]
    assert second.endswith("6 rented machines (1 booting, 5 ready) for 1.25 USD an hour")
    assert wrong == ""
    pools[1] = replace(pools[1], state="paused", paused="no credentials")
    assert text(a_look(an_overview(a_job, pools=pools)))[2] == "the pool of other is paused: no credentials"
    assert "rented machines" not in text(a_look(an_overview(a_job)), width=160)[1]
