"""`spill audit`: what people did, aligned, as JSON and as CSV."""

import csv
import json
from collections.abc import Callable
from typing import Any

from tests.unit.cli.conftest import JOB


def test_what_people_did_is_aligned(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("audit", "--user", "ada", "--since", "2027-01-30", "--until", "2027-02-01", "--job", JOB)
    title, ada, bob = typed.out.splitlines()
    assert title.split() == ["TIME", "USER", "WHAT", "JOB", "PROJECT", "TEXT"]
    assert ada[title.index("USER") :].split()[:2] == ["ada", "job_stopping"]
    assert ada[title.index("TEXT") :] == "stop requested by ada (cancel)"
    assert bob[title.index("JOB") :].split()[:2] == ["-", "-"]
    [(_, query)] = client.asked
    assert (query["user"], query["job"], query["limit"]) == ("ada", JOB, 101)
    assert query["since"].isoformat() == "2027-01-30T00:00:00+00:00"
    assert query["until"].isoformat() == "2027-02-01T00:00:00+00:00"


def test_me_is_the_user_of_the_command(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("audit", "--user", "me").code == 0
    assert client.asked[0][1]["user"] == client.user


def test_the_audit_is_csv_and_json(spill: Callable[..., Any]) -> None:
    stopped, token = csv.DictReader(spill("audit", "--csv").out.splitlines())
    assert (stopped["user"], stopped["type"], stopped["job"], stopped["revision"]) == (
        *("ada", "job_stopping", JOB, "12"),
    )
    assert (token["job"], token["text"]) == ("", "bob created token t1")
    told = json.loads(spill("audit", "--json").out)
    assert [entry["type"] for entry in told] == ["job_stopping", "token_created"]
    assert told[1]["job"] is None


def test_more_than_the_limit_is_told(spill: Callable[..., Any]) -> None:
    typed = spill("audit", "--limit", "1")
    assert len(typed.out.splitlines()) == 2
    assert "there is more" in typed.err


def test_a_time_that_is_none_is_one_line(spill: Callable[..., Any]) -> None:
    typed = spill("audit", "--since", "tuesday")
    assert typed.code == 2
    assert "'tuesday' is not a time" in typed.err
