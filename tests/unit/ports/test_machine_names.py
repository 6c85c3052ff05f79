"""Names of machines at providers."""

import re

import pytest

from spillover.ports.provider import machine_name, name_prefix

OWNER = "0123456789abcdef"
TAKEN_EVERYWHERE = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")


def test_a_usual_id_is_readable_in_the_name() -> None:
    assert machine_name(OWNER, "cloud-17") == "spill-01234567-cloud-17"


@pytest.mark.parametrize(
    "machine", ["Cloud.eu_west-3", "c" * 63 + "-12345", "a--b-1", "_", "x.", "A-1", "ü-1", ""]
)
def test_every_id_has_a_name_that_every_provider_takes(machine: str) -> None:
    name = machine_name(OWNER, machine)
    assert TAKEN_EVERYWHERE.fullmatch(name)
    assert name.startswith(name_prefix(OWNER))


def test_ids_that_look_alike_in_a_name_have_different_names() -> None:
    ids = [
        "eu.west-1",
        "eu_west-1",
        "eu-west-1",
        "EU-west-1",
        "c" * 63 + "-1",
        "c" * 63 + "-2",
        "c" * 64 + "-1",
    ]
    assert len({machine_name(OWNER, each) for each in ids}) == len(ids)
