"""`spill reservations`: the table, and what is said without reservations."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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
    assert head.split() == ["START", "END", "KIND", "JOB", "NAME", "CLUSTER", "NODES"]
    assert row.split()[0] == "2027-01-31"
    assert row.split()[6:] == [
        "backfill",
        "abcdefghijkl",
        "train",
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
