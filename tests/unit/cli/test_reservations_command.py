"""`spill reservations`, `spill reserve` and `spill unreserve`: what they ask for, and what they print."""

import json
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.wire.api import ReservationView

KEPT = ReservationView(
    "backfill",
    "train",
    "abcdefghijkl",
    "vision",
    "onprem",
    [f"n{at}" for at in range(1, 7)],
    "2027-01-31T10:00:00.000000Z",
    "2027-01-31T12:00:00.000000Z",
)


def test_a_reservation_is_one_row_with_its_first_nodes(client: Any, spill: Callable[..., Any]) -> None:
    client.reservations = lambda: [KEPT]
    head, row = spill("reservations").out.splitlines()
    assert head.split() == ["START", "END", "KIND", "JOB", "NAME", "PROJECT", "CLUSTER", "NODES"]
    assert row.split()[0] == "2027-01-31"
    assert row.split()[6:] == [
        "backfill",
        "abcdefghijkl",
        "train",
        "vision",
        "onprem",
        *["n1", "n2", "n3", "n4", "and", "2", "more"],
    ]


def test_json_is_a_list_with_all_nodes(client: Any, spill: Callable[..., Any]) -> None:
    client.reservations = lambda: [KEPT]
    (only,) = json.loads(spill("reservations", "--json").out)
    assert (only["kind"], only["job"], only["nodes"][-1]) == ("backfill", "abcdefghijkl", "n6")
    client.reservations = list
    assert json.loads(spill("reservations", "--json").out) == []


def test_without_reservations_the_policies_are_named(client: Any, spill: Callable[..., Any]) -> None:
    client.reservations = list
    client.policy = lambda: SimpleNamespace(policy="backfill=out_of_order")
    assert spill("reservations") == (
        0,
        "",
        "spill: no reservations; the policies are backfill=out_of_order\n",
    )


COURSE = ReservationView(
    "advance",
    "course",
    None,
    "physics",
    "onprem",
    ["n1", "n2"],
    "2027-01-31T10:00:00.000000Z",
    "2027-01-31T12:00:00.000000Z",
    "ada",
    ["n2"],
    ["abcdefghijkl"],
)


def test_a_reservation_that_is_short_of_nodes_or_not_empty_says_so(
    client: Any, spill: Callable[..., Any]
) -> None:
    client.reservations = lambda: [COURSE]
    row = spill("reservations").out.splitlines()[1]
    assert row.endswith("n1 n2; 1 of 2 missing; 1 job of others still runs")


def test_reserve_asks_for_what_its_options_say(client: Any, spill: Callable[..., Any]) -> None:
    asked: list[Any] = []

    def reserve(*where: Any, **options: Any) -> ReservationView:
        asked.append((where, {name: value for name, value in options.items() if value}))
        return COURSE

    client.reserve = reserve
    told = spill(
        *["reserve", "--nodes", "2", "--within", "rack", "--start", "2027-01-31 12:00", "--for", "2h"],
        *["--project", "physics", "--need", "gpu"],
    )
    assert told.out.startswith("reserved 2 nodes of onprem for project physics as course, from 2027-01-31 ")
    assert told.out.endswith(": n1, n2\n")
    (start, length), options = asked.pop()
    assert datetime.fromisoformat(start) == datetime(2027, 1, 31, 12).astimezone()
    assert length == "2h"
    assert options == {"nodes": 2, "within": "rack", "project": "physics", "needs": ["gpu"]}
    told = spill(
        *["reserve", "--node", "n1,n2", "--node", "n3", "--start", "+1d", "--for", "90m"],
        *["--maintenance", "--cluster", "onprem", "--dry-run", "--ignore-jobs"],
    )
    assert told.out.startswith("would reserve")
    assert asked.pop() == (
        ("+1d", "90m"),
        {
            "names": ["n1", "n2", "n3"],
            "maintenance": True,
            "cluster": "onprem",
            "dry_run": True,
            "ignore_jobs": True,
        },
    )


@pytest.mark.parametrize(
    "words",
    [
        "--nodes 0 --start now --for 2h --project p",
        "--nodes 2 --start tomorrow --for 2h --project p",
        "--nodes 2 --start now --for soon --project p",
        "--nodes 2 --start now --for 2h",
        "--nodes 2 --all --start now --for 2h --project p",
        "--start now --for 2h --project p",
        "--nodes 2 --start now --for 2h --project p --maintenance",
        "--node , --start now --for 2h --project p",
    ],
)
def test_bad_options_are_refused_in_one_line(client: Any, spill: Callable[..., Any], words: str) -> None:
    told = spill("reserve", *words.split())
    assert (told.code, told.out) == (2, "")
    assert len(told.err.splitlines()) == 1


def test_unreserve_cancels_each_name_or_none(client: Any, spill: Callable[..., Any]) -> None:
    cancelled: list[str] = []
    client.reservations = lambda: [KEPT, COURSE, replace(COURSE, name="down")]

    def unreserve(name: str) -> str:
        cancelled.append(name)
        return name

    client.unreserve = unreserve
    told = spill("unreserve", "course", "train")
    assert (told.code, told.err) == (
        2,
        "spill: there is no reservation train; `spill reservations` lists them\n",
    )
    assert cancelled == []
    assert spill("unreserve", "course", "down") == (0, "", "")
    assert cancelled == ["course", "down"]
    assert json.loads(spill("unreserve", "course", "--json").out) == {"names": ["course"]}
