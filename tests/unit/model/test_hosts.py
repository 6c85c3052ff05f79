"""Which addresses are of the machine itself."""

import pytest

from spillover.model.hosts import is_loopback


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:7071", "localhost:1", "[::1]:80"])
def test_loopback_is_of_the_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["127.evil.example:80", "localhost.evil.example:80", "10.0.0.1:1", "[::]:1", "0.0.0.0:0", "", ":1"],
)
def test_what_others_can_reach_or_name_is_not(address: str) -> None:
    assert not is_loopback(address)
