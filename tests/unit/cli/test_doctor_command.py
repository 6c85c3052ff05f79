"""`spill doctor`, typed: what it prints, and what it exits with."""

import json
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from spillover import __version__
from spillover.cli.commands import doctor
from spillover.cli.main import main
from spillover.cli.printing.output import Output
from spillover.client import Client, Unreachable
from spillover.model.units import format_time
from spillover.server.doctor.findings import Finding, Level
from spillover.wire.api import (
    AgentView,
    ClusterView,
    NotificationView,
    Overview,
    PolicyView,
    PoolView,
    SecretView,
    ServerView,
    TokenView,
)

CALM = [Finding(Level.OK, "store", "sqlite"), Finding(Level.OK, "server", "no server runs here")]
TROUBLE = Finding(Level.WARNING, "token", "others can read it", "chmod 600 token")


class Elsewhere:
    """A server that has nothing to complain of but a lost agent."""

    url = "http://127.0.0.1:7070"

    def __init__(self) -> None:
        self.lost = False

    def server(self) -> ServerView:
        return ServerView(__version__, 1, True, True, None, "USD", 10, 0, 0, {})

    def overview(self, **_: int) -> Overview:
        at = format_time(time.time_ns())
        cluster = ClusterView("onprem", "agents", "owned", "READY", 1, {}, {}, 0, {})
        return Overview(at, self.server(), 0, 0.0, [cluster], [], 1, [], 0, [])

    def agents(self) -> list[AgentView]:
        return [AgentView("n1", "onprem", "lost" if self.lost else "ready", {}, {}, 0, 0, [], {}, None)]

    def pools(self) -> list[PoolView]:
        return []

    def policy(self) -> PolicyView:
        return PolicyView("order=fifo", [], 1, 1.0, None, None, None, "order=fifo", differs=False)

    def tokens(self) -> list[TokenView]:
        return []

    def secrets(self) -> list[SecretView]:
        return []

    def notifications(self, **_: object) -> list[NotificationView]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def type_it(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    for name in ("SPILL_DATA", "SPILL_SERVER", "SPILL_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def typed(*words: str) -> int:
        def connect(args: Namespace) -> Client:
            if args.server is None and args.data is not None:
                raise Unreachable(f"no server runs in {args.data}")
            return cast("Client", elsewhere)

        return main(["doctor", *words], connect=connect)

    return typed


def test_a_healthy_server_elsewhere_is_one_line(
    type_it: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert type_it("--server", "http://127.0.0.1:7070") == 0
    assert capsys.readouterr().out == "ok       all 8 checks passed (--all lists them)\n"


def test_the_environment_names_a_server_elsewhere(
    type_it: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILL_SERVER", "http://127.0.0.1:7070")
    assert type_it("--all") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("ok       server          accepts work")


def test_what_somebody_should_see_to_comes_first_and_the_exit_code_says_so(
    type_it: Callable[..., int], elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.lost = True
    assert type_it("--server", "http://127.0.0.1:7070") == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "warning  agents  1 agent is lost: onprem/n1; read agent.log on its machine; if it is gone for good, run `spill agents forget onprem/n1`"
    )
    assert second == "ok               7 other checks passed (--all lists them)"


def test_json_has_all_findings(
    type_it: Callable[..., int], elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.lost = True
    assert type_it("--server", "http://127.0.0.1:7070", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] is False
    levels = {each["check"]: each["level"] for each in said["findings"]}
    assert levels == dict.fromkeys(levels, "ok") | {"agents": "warning"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "data folder spill-data does not exist"),
        (("--data", "nowhere"), "data folder nowhere does not exist"),
        (("--config", "bad.yaml"), "bad.yaml"),
        (("--slow",), "unrecognized arguments: --slow"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_one_line(
    type_it: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    Path("bad.yaml").write_text("apiVersion: spillover/v1\nkind: Config\nnonsense: 1\n")
    assert type_it(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_folder_without_data_is_looked_at(
    type_it: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("spill-data").mkdir(mode=0o700)
    assert type_it() == 1
    said = capsys.readouterr().out
    assert "problem  store  there is no data in" in said
    assert "Traceback" not in said


def test_the_configuration_of_another_folder_is_not_taken_for_this_one(
    type_it: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("spill.yaml").write_text("apiVersion: spillover/v1\nkind: Config\nstore: memory\n")
    Path("other").mkdir(mode=0o700)
    assert type_it("--data", "other") == 1
    assert "there is no data in" in capsys.readouterr().out


def test_a_terminal_wraps_long_lines_under_themselves(terminal: Output) -> None:
    trouble = Finding(Level.PROBLEM, "store", "word " * 30, "do something")
    doctor._show(terminal, doctor._lines([*CALM, trouble, TROUBLE], each=False))
    lines = terminal.out.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= 120 for line in lines)
    assert sum("problem" in line for line in lines) == 1
    assert len(lines) > 3


def test_what_is_wrong_in_one_way_is_not_called_well_in_another() -> None:
    lines = doctor._lines([Finding(Level.OK, "token", "fine"), TROUBLE, *CALM], each=False)
    assert lines == [
        ("warning", "token", "others can read it; chmod 600 token"),
        ("ok", "", "2 other checks passed (--all lists them)"),
    ]


def test_progress_is_shown_on_a_terminal_and_gone_in_the_end(
    terminal: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_OFTEN", 0.0)
    with doctor._progress(terminal) as tell:
        tell("replaying the journal: event 1,000 of 5,000")
    said = terminal.err.getvalue()  # type: ignore[attr-defined]
    assert said == "\rreplaying the journal: event 1,000 of 5,000\x1b[K\r\x1b[K"
