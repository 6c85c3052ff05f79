"""`spill usage`: hours and cost in groups; and what `spill show` says about efficiency."""

import csv
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.wire.api import Efficiency, Hours


def test_usage_is_a_table_with_a_total_and_only_hours_that_there_are(
    client: Any, spill: Callable[..., Any]
) -> None:
    typed = spill("usage", "--by", "user,project", "--since", "2027-01-31")
    title, ada, bob, total = (line.split("  ") for line in typed.out.splitlines())
    assert [word.strip() for word in title if word.strip()] == [
        *("USER", "PROJECT", "JOBS", "OWNED CPU H", "OWNED GIB H", "RENTED CPU H", "RENTED GPU H"),
        *("RENTED GIB H", "UNUSED CPU", "UNUSED MEMORY", "COST (USD)"),
    ]
    assert [word.strip() for word in ada if word.strip()] == [
        *("ada", "vision", "12", "100.2", "400.0", "8.0", "2.0", "32.0", "25%", "75%", "12.50")
    ]
    assert [word.strip() for word in bob if word.strip()][:4] == ["bob", "vision", "1", "0.010"]
    assert [word.strip() for word in total if word.strip()][:3] == ["total", "13", "100.3"]
    [(_, query)] = client.asked
    assert (query["by"], query["since"].isoformat()) == (
        ["user", "project"],
        "2027-01-31T00:00:00+00:00",
    )


def test_usage_is_csv_and_json(spill: Callable[..., Any]) -> None:
    ada, bob = csv.DictReader(spill("usage", "--by", "user,project", "--csv").out.splitlines())
    assert (ada["user"], ada["jobs"], ada["owned_cpu_h"], ada["rented_gpu_h"], ada["unused_memory_h"]) == (
        *("ada", "12", "100.250000", "2.000000", "300.000000"),
    )
    assert (bob["project"], bob["cost"]) == ("vision", "0.000000")
    told = json.loads(spill("usage", "--by", "user,project", "--json").out)
    assert told["rows"][0]["key"] == {"user": "ada", "project": "vision"}
    assert told["total"]["cost"] == 12.5


def test_usage_has_a_column_for_idle_gpus_if_their_use_was_measured(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "UNUSED GPU" not in spill("usage").out
    report = client.usage()
    row = replace(report.rows[0], measured=Hours(8, 4, 4), unused=Hours(2, 3, 2))
    monkeypatch.setattr(client, "usage", lambda **_: replace(report, rows=[row]))
    head, first = spill("usage").out.splitlines()
    assert head.split()[-6:] == ["UNUSED", "GPU", "UNUSED", "MEMORY", "COST", "(USD)"]
    assert first.split()[-3:-1] == ["75%", "50%"]
    (line,) = csv.DictReader(spill("usage", "--csv", "--by", "user,project").out.splitlines())
    assert (line["measured_gpu_h"], line["unused_gpu_h"]) == ("4.000000", "3.000000")


def test_an_unknown_key_is_refused_with_those_that_there_are(spill: Callable[..., Any]) -> None:
    typed = spill("usage", "--by", "user,team")
    assert typed.code == 2
    assert "'team' is not one of project, user, cluster, queue, day, week, month" in typed.err


def test_show_says_what_was_used_and_what_would_do(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    hint = "asked for 16Gi, used at most 1.2Gi: --memory 2Gi would do"
    used = Efficiency(0.25, 0.075, 14400.0, 3600.0, 16 << 30, 1288490189, 3600.0, 0, [hint])
    client.known = [a_job(efficiency=used)]
    lines = spill("show", "train").out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if " used " in line or line.startswith("GPU")] == [
        "25% (1h of 4h)",
        "8% (at most 1.2Gi of 16Gi)",
        "1h; its use was not measured",
        "for 16Gi, used at most 1.2Gi: --memory 2Gi would do",
    ]
    assert any(line.split(maxsplit=1) == ["hint", hint] for line in lines)
    assert lines[-1].startswith("hint "), "efficiency comes last, after the job file"
    gpus = Efficiency(
        0.25, None, 20.0, 5.0, None, None, 7200.0, gpu=0.5, gpu_used_s=3600.0, gpu_memory_used=3 << 30
    )
    client.known = [a_job(efficiency=gpus)]
    assert "50% (1h of 2h, at most 3Gi of memory)" in spill("show", "train").out
    of_array = Efficiency(0.5, None, 20.0, 10.0, None, None, 0.0, 5)
    client.known = [a_job(efficiency=of_array)]
    assert "50% (10s of 20s, in sum over 5 members)" in spill("show", "train").out
