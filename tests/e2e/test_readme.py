"""The quick start of the README and the tour are true: their commands are typed in their order, and print what the page shows."""

from pathlib import Path

import pytest

from tests.support.tours import Shell, section

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_quick_start_prints_what_the_readme_shows(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        typed = shell.tour(section((ROOT / "README.md").read_text(), "Quick start"))
        assert typed > 5
        assert shell.server is None


@pytest.mark.slow
def test_the_tour_prints_what_its_page_shows(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        typed = shell.tour((ROOT / "docs" / "tour.md").read_text())
        assert typed > 20
        assert shell.server is None
