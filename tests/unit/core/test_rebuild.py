"""A state from a checkpoint says what the one that was written did."""

from spillover.core.state import State
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from tests.support.sameness import Checkpoints, said_by


def test_sums_over_many_jobs_are_kept_though_they_are_longer_than_numbers_of_a_checkpoint() -> None:
    state, checkpoints = State(), Checkpoints()
    state.facts.tally.submit(Shape(Resources(1000, 0, 8)), HOUR, 10**9)
    state.facts.tally.granted = -5
    state.touch_facts()
    assert state.facts.tally.work > 2**64
    checkpoints.write(state)
    assert said_by(checkpoints.load()) == said_by(state)
    assert state.facts.sums == ()
