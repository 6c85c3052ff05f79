"""How calls and maps are shown, as a line and in notebooks."""

import sys
import threading
import time
import types
from typing import Any

import pytest

from spillover.client import showing
from spillover.client.errors import Unreachable
from spillover.client.face import Behind
from spillover.client.flows import Attempts
from spillover.client.gathering import Gathering
from spillover.client.handles import Call, MapHandle
from spillover.client.showing import label_of
from spillover.client.synchronous.sender import Sender
from spillover.wire.api import ArrayView, JobDetail, ResultView


class Asked(Behind[Any]):
    """Answers with these views, one after the other; the last one remains."""

    def __init__(self, *views: JobDetail | Exception) -> None:
        super().__init__(
            Sender.__new__(Sender), self.answer, lambda: Attempts(0.0, time.monotonic), lambda _: None
        )
        self.views = list(views)

    def answer(self, _: Any) -> Any:
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(view, Exception):
            raise view
        return view


def view(state: str, **more: Any) -> JobDetail:
    fields: dict[str, Any] = dict.fromkeys(
        ("started_at", "finished_at", "exit_code", "signal", "reason", "estimate_s")
    )
    fields |= {"cluster": None, "node": None, **more}
    return JobDetail(
        id="abc", name="f", user="ada", project="p", queue="q", state=state, attempt=1, cost=0.0,
        submitted_at="2026-01-01T00:00:00Z", **fields,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "FRESH", 0.0)


def test_arguments_are_shortened_and_only_plain_ones_are_written_out() -> None:
    assert label_of("f", (1, "x", None), {"k": 2.5}) == "f(1, 'x', None, k=2.5)"
    assert label_of("f", (bytearray(1000), "y" * 100)) == "f(<bytearray>, 'yyyyyyyyyyyy...yyyyyyyyyyyyy')"
    assert label_of("f", tuple(range(9))) == "f(0, 1, 2, 3, ...)"


def test_a_call_says_where_it_is() -> None:
    client = Asked(
        view("QUEUED"),
        view("RUNNING", cluster="onprem", node="n1", started_at="2026-01-01T00:00:00Z", estimate_s=1e12),
        Unreachable("no server answers"),
        view("SUCCEEDED", cluster="onprem", node="n1"),
    )
    call = Call[int](client, Gathering("abc", None, "f(7)"))
    assert repr(call).startswith("<Call f(7) job abc queued for ")
    assert repr(call).startswith("<Call f(7) job abc running on onprem/n1 for ")
    assert repr(call).startswith("<Call f(7) job abc running on onprem/n1 for ")
    assert repr(call) == "<Call f(7) job abc succeeded on onprem/n1>"


def test_a_call_whose_value_is_known_is_shown_as_ended() -> None:
    gathering = Gathering("abc", None, "f(7)")
    call = Call[int](Asked(view("QUEUED")), gathering)
    assert "queued" in repr(call)
    gathering.results[0] = ResultView("abc", "SUCCEEDED", 0, None, None, b"", None)
    assert repr(call) == "<Call f(7) job abc succeeded>"


def test_a_call_whose_server_is_away_is_still_shown() -> None:
    call = Call[int](Asked(Unreachable("no server answers")), Gathering("abc", None))
    assert repr(call) == "<Call job abc in an unknown state: no server answers>"
    assert "no server answers" in call._repr_html_()


class Display:
    """What a notebook shows; `update` replaces it."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle)


def test_a_map_is_followed_in_a_notebook_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()

    def first(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        assert display_id
        display.update(bundle, raw=raw)
        return display

    kernel = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    vars(ipython)["get_ipython"] = lambda: kernel
    vars(ipython)["display"] = types.SimpleNamespace(display=first)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", vars(ipython)["display"])
    started: list[Any] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))  # noqa: PLW0108 - it must be bound
    counts = [{"RUNNING": 1, "QUEUED": 3}, {"SUCCEEDED": 2, "RUNNING": 2}, {"SUCCEEDED": 4}]
    views = [
        view("SUCCEEDED" if "SUCCEEDED" in each and len(each) == 1 else "RUNNING", array=ArrayView(4, each))
        for each in counts
        for _ in range(2)  # a bundle is text and HTML
    ]
    runs = MapHandle(Asked(*views), Gathering("abc", 4, "f"))
    runs._ipython_display_()
    (thread,) = started
    thread.run()
    told = [each["text/plain"].partition("abc ")[2] for each in display.shown]
    assert told == ["0 of 4 done; 1 running, 3 queued>", "2 of 4 done; 2 running>", "4 of 4 done>"]
    assert "width:50.00%" in display.shown[1]["text/html"]
    assert "width:100.00%" in display.shown[2]["text/html"]


def test_in_a_terminal_ipython_gets_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ipython = types.ModuleType("IPython")
    vars(ipython)["get_ipython"] = object
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=None))
    Call[int](Asked(view("HELD")), Gathering("abc", None, "f()"))._ipython_display_()
    assert capsys.readouterr().out.startswith("<Call f() job abc held for ")
