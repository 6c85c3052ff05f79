"""`spill simulate` in this very process: policies of one's own, and what is said of what may not be as one thinks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from spillover.cli.main import main

SMALL = ("--trace", "synthetic:jobs=60,load=1.2", "--owned", "1x8gpu", "--rented", "gpu=2.5")
FAILING = """
class Own:
    def wait(self, case):
        raise KeyError("prices")
"""
WORKING = """
class Own:
    def wait(self, case):
        return 0
"""


class Typed(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: list[str]


Type = Callable[..., Typed]


@pytest.fixture
def spill(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type `spill simulate` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str) -> Typed:
        code = main(["simulate", *arguments])
        out, err = capsys.readouterr()
        return Typed(code, out, err.splitlines())

    return typed


def install(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the policy wait.own."""
    info = folder / "own_waits-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "own_waits.py").write_text(body)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own_waits\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[spillover.policies]\nwait.own = own_waits:Own\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "own_waits", raising=False)


def test_a_policy_that_fails_is_told_and_its_numbers_are_not_taken_for_its_own(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    typed = spill(*SMALL, "--policy", "wait=own")
    assert typed.code == 1
    assert "rented" in typed.out
    assert typed.err[-1].startswith("spill: these are not numbers of the policy: wait=own failed ")
    assert typed.err[-1].endswith("times (KeyError: 'prices')")
    (failure,) = json.loads(spill(*SMALL, "--policy", "wait=own", "--json").out)["policy_failures"]
    assert (failure["axis"], failure["name"], failure["error"]) == ("wait", "own", "KeyError: 'prices'")
    assert failure["count"] > 0


def test_a_policy_that_fails_is_marked_in_a_sweep_and_beats_no_other(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    sweep = ("--sweep", "wait=own(max_queue=900..901/2)", "--processes", "1")
    typed = spill(*SMALL, *sweep)
    assert typed.code == 1
    assert [line.split()[-1] for line in typed.out.splitlines()[-2:]] == ["failed", "failed"]
    assert any("wait=own failed" in line for line in typed.err)
    again = spill(*SMALL, *sweep, "--json")
    assert again.code == 1
    zero, *others = json.loads(again.out)
    assert (zero["policy_failures"], zero["dominated"]) == ([], False)
    assert all(one["policy_failures"][0]["name"] == "own" for one in others)


def test_a_sweep_simulates_again_when_the_code_of_a_policy_has_changed(
    spill: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("--sweep", "wait=own(max_queue=900..901/2)", "--processes", "1")
    install(tmp_path / "site", WORKING, monkeypatch)
    assert any("3 simulations" in line for line in spill(*SMALL, *sweep).err)
    assert not any("simulations in" in line for line in spill(*SMALL, *sweep).err)
    install(tmp_path / "site", WORKING.replace("0", "10**9"), monkeypatch)
    assert any("2 simulations" in line for line in spill(*SMALL, *sweep).err)


def test_a_policy_that_fails_is_told_by_a_back_test(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", FAILING, monkeypatch)
    sacct = tmp_path / "sacct.txt"
    row = "|2027-01-31T10:00:00|2027-01-31T10:00:00|2027-01-31T11:00:00|cpu=1,gres/gpu=1"
    sacct.write_text(f"JobID|Submit|Start|End|AllocTRES\n1{row}\n2{row}\n")
    asked = ("--sacct", str(sacct), "--owned", "1x1gpu", "--rented", "gpu=1", "--policy", "wait=own")
    assert main(["backtest", *asked, "--json"]) == 1
    out, err = capsys.readouterr()
    (policy,) = json.loads(out)["policies"]
    assert policy["policy_failures"][0]["error"] == "KeyError: 'prices'"
    assert "spill: these are not numbers of wait=own: wait=own failed" in err
