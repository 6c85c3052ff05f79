"""Whatever comes from outside costs one job, one agent, one cluster or one request: a few stories of each source, always the same.

`make fuzz-inputs` plays many more. A story that it finds is kept in `test_inputs_found.py`.
"""

import pytest

from tests.support.inputs.source import explore
from tests.support.inputs.sources import SOURCES
from tests.support.tiers import few_of

STORIES = {"agents": 5, "clusters": 5, "requests": 6, "files": 12, "plugins": 6, "clocks": 6}
"""Of each source, so that each takes a few seconds."""


@pytest.mark.parametrize("part", few_of(1, [2, 1]), ids=["half", "all"])
@pytest.mark.parametrize("name", sorted(SOURCES))
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_odd_input_costs_no_more_than_it_may(name: str, part: int) -> None:
    explore(SOURCES[name], STORIES[name] // part)
