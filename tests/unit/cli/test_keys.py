"""The keys that are for us, among those for the program."""

import pytest

from spillover.cli.live.keys import Keys


@pytest.mark.parametrize(
    ("typed", "sent", "detached"),
    [
        (b"ls\r", b"ls\r", False),
        (b"a\x1dd", b"a", True),
        (b"\x1dDmore", b"", True),
        (b"\x1d\x1dd", b"\x1dd", False),
        (b"\x1dx", b"\x1dx", False),
        (b"a\x1d", b"a", False),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_keys_are_found_however_they_come(typed: bytes, sent: bytes, detached: bool, at_once: bool) -> None:
    keys = Keys()
    pieces = [typed] if at_once else [bytes((key,)) for key in typed]
    assert b"".join(map(keys.feed, pieces)) == sent
    assert keys.detached is detached
