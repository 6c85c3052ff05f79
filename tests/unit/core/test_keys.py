"""Keys are of their project, and those that left the state lately are remembered for submissions that are under way."""

import pytest

from spillover.core.records import keys
from spillover.core.records.keys import Keys
from spillover.model.ids import JobId

JOB, OTHER = JobId("aaaaaaaaaaaa"), JobId("bbbbbbbbbbbb")


def test_two_projects_have_jobs_under_the_same_key() -> None:
    known = Keys()
    known.take("vision", "k", JOB)
    known.take("nlp", "k", OTHER)
    assert (known.find("vision", "k"), known.find("nlp", "k"), known.find("speech", "k")) == (
        JOB,
        OTHER,
        None,
    )
    known.drop("vision", "k", JOB)
    assert list(known) == [("nlp", "k", OTHER)]


def test_a_job_that_does_not_have_the_key_any_more_does_not_take_it_along() -> None:
    known = Keys()
    known.take("vision", "k", OTHER)
    known.drop("vision", "k", JOB)
    assert known.find("vision", "k") == OTHER


def test_only_a_key_that_left_since_then_may_have_left() -> None:
    known = Keys()
    known.take("vision", "mine", JOB)
    known.archive("vision", "mine", JOB, archived=7)
    assert known.find("vision", "mine") is None
    assert known.may_have_left("vision", "mine", 6)
    assert not known.may_have_left("vision", "mine", 7)
    assert not known.may_have_left("nlp", "mine", 6)
    assert not known.may_have_left("vision", "other", 0)


def test_what_was_archived_before_the_state_was_loaded_may_have_left() -> None:
    known = Keys()
    known.begin(100)
    assert known.may_have_left("vision", "k", 99)
    assert not known.may_have_left("vision", "k", 100)


def test_no_more_than_some_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_LEFT", 3)
    known = Keys()
    for at in range(1, 6):
        known.archive("vision", f"k{at}", JOB, archived=at)
    assert known.may_have_left("vision", "never seen", 1)  # k2 was forgotten, so nobody can tell
    assert not known.may_have_left("vision", "never seen", 2)
    assert known.may_have_left("vision", "k5", 4)
