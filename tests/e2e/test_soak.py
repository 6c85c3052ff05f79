"""Half a minute of `make soak`."""

from pathlib import Path

import pytest

from tests.support.soak.story import Wanted, soak
from tests.support.soak.verdict import table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_server_under_mixed_load_leaks_nothing_and_loses_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    report = soak(tmp_path / "soak", Wanted(seconds=30, pause=5), told.append)
    assert report.well, "\n".join((*told, *table(report.rows), *report.details))
