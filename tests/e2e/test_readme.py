"""The tour in the README is true: its commands are typed in their order, and print what it shows."""

from pathlib import Path

import pytest

from tests.support.tours import Shell, section

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
def test_the_tour_prints_what_the_readme_shows(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        typed = shell.tour(section(README.read_text(), "A tour in five minutes"))
        assert typed > 20
        assert shell.server is None
