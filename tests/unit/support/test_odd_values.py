"""Values that are wrong in a place or two."""

from copy import deepcopy

from hypothesis import given

from tests.support.inputs.odd import mutated

VALUE = {"list": [{"inside": 1, "more": [{"deep": "text"}]}]}
AS_IT_WAS = deepcopy(VALUE)


@given(mutated(VALUE))
def test_what_they_are_made_from_stays_as_it_was(value: object) -> None:
    assert value is not VALUE
    assert VALUE == AS_IT_WAS
