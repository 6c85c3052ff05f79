"""The sections of docs/pools.md about providers."""

import re
from pathlib import Path

import pytest

from spillover.providers.registry import load_providers

PAGE = (Path(__file__).parents[3] / "docs" / "pools.md").read_text()


@pytest.mark.parametrize("name", ["gce", "hetzner"])
def test_every_option_of_a_provider_and_no_other_is_on_the_page(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    table = section.partition("| option |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        *load_providers()[name].form.__struct_fields__
    ]
