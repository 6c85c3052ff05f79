"""Where rented machines are told to find the server."""

import pytest

from spillover.config.config import Address, Config
from spillover.server.pools import reached_at

HERE = "127.0.0.1:7071"


@pytest.mark.parametrize(
    ("listens", "said", "names", "told"),
    [
        ("127.0.0.1", None, (), "127.0.0.1:7071"),
        ("10.0.0.5", None, (), "10.0.0.5:7071"),
        ("10.0.0.5", ("spill.example.org", 0), (), "spill.example.org:7071"),
        ("0.0.0.0", ("spill.example.org", 443), (), "spill.example.org:443"),
        ("0.0.0.0", None, ("localhost", "127.0.0.1", "*.x.org", "s.x.org"), "s.x.org:7071"),
        ("::", None, ("::1", "fd00::5"), "[fd00::5]:7071"),
    ],
)
def test_machines_elsewhere_get_an_address_that_they_reach(
    listens: str, said: tuple[str, int] | None, names: tuple[str, ...], told: str
) -> None:
    found = reached_at(Config((), address=said), Address(listens, 7071), HERE, names, "ab")
    assert (found.elsewhere, found.here, found.pin) == (told, HERE, "ab")
